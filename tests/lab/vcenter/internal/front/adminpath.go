package front

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type fileView struct {
	Datastore string `json:"datastore"`
	Path      string `json:"path"`
	Size      int64  `json:"size"`
}

// inventoryPath is the path from the root, in the format of
// FindByInventoryPath.
func (w *world) inventoryPath(r ref) string {
	var names []string
	for {
		e, ok := w.reg.Get(r).(mo.Entity)
		if !ok || e.Entity().Parent == nil {
			break
		}
		names = append(names, entityName(e))
		r = *e.Entity().Parent
	}
	slices.Reverse(names)
	return "/" + strings.Join(names, "/")
}

// under reports whether r is below top.
func (w *world) under(r, top ref) bool {
	for {
		e, ok := w.reg.Get(r).(mo.Entity)
		if !ok || e.Entity().Parent == nil {
			return false
		}
		if r = *e.Entity().Parent; r == top {
			return true
		}
	}
}

// networkOf is the name of the network a card is on.
func (w *world) networkOf(card *types.VirtualEthernetCard) string {
	switch b := card.Backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return b.DeviceName
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		return w.name(ref{Type: "DistributedVirtualPortgroup", Value: b.Port.PortgroupKey})
	}
	return ""
}

func (w *world) datastoreRoots() map[string]string {
	out := map[string]string{}
	for _, e := range w.reg.All("Datastore") {
		ds := e.(*simulator.Datastore)
		out[ds.Name] = ds.Summary.Url
	}
	return out
}

// listFiles lists the files of all datastores. Files that vanish during the
// listing are left out.
func listFiles(stores map[string]string) []fileView {
	out := []fileView{}
	for name, root := range stores {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			info, err := d.Info()
			rel, relErr := filepath.Rel(root, p)
			if err == nil && relErr == nil {
				out = append(out, fileView{name, filepath.ToSlash(rel), info.Size()})
			}
			return nil
		})
	}
	slices.SortFunc(out, func(a, b fileView) int {
		return strings.Compare(a.Datastore+"\x00"+a.Path, b.Datastore+"\x00"+b.Path)
	})
	return out
}
