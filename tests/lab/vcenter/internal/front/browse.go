package front

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) searchDatastore() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.SearchDatastore_Task)
	return c.search(req.DatastorePath, req.SearchSpec, false)
}

func (c *call) searchSubFolders() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.SearchDatastoreSubFolders_Task)
	return c.search(req.DatastorePath, req.SearchSpec, true)
}

func (c *call) search(name string, spec *types.HostDatastoreBrowserSearchSpec, recurse bool) (json.RawMessage, types.BaseMethodFault) {
	w := c.f.world
	if spec == nil {
		spec = &types.HostDatastoreBrowserSearchSpec{}
	}
	return declared(c.start(op{
		name: "searchDatastore", entity: c.this, cancelable: true, reads: true,
		run: func() (any, types.BaseMethodFault) {
			at, fault := w.resolve(&w.sites.datacenter, name)
			if fault != nil {
				return nil, fault
			}
			info, err := os.Stat(at.file)
			if err != nil {
				return nil, fileFault(err, at)
			}
			if !info.IsDir() {
				return nil, &types.FileNotFound{FileFault: types.FileFault{File: at.path.String()}}
			}
			if !recurse {
				return listDirectory(at, spec)
			}
			return listTree(at, spec)
		},
	}))
}

func listTree(root location, spec *types.HostDatastoreBrowserSearchSpec) (any, types.BaseMethodFault) {
	out := []types.HostDatastoreBrowserSearchResults{}
	err := filepath.WalkDir(root.file, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		at := root
		at.file = p
		rel, err := filepath.Rel(root.file, p)
		if err != nil {
			return err
		}
		at.path.Path = strings.Trim(path.Join(root.path.Path, rel), "./")
		res, fault := listDirectory(at, spec)
		if fault == nil {
			out = append(out, res.(types.HostDatastoreBrowserSearchResults))
		}
		return nil
	})
	if err != nil {
		return nil, fileFault(err, root)
	}
	return types.ArrayOfHostDatastoreBrowserSearchResults{HostDatastoreBrowserSearchResults: out}, nil
}

// listDirectory lists one directory. Without a pattern every name matches.
func listDirectory(at location, spec *types.HostDatastoreBrowserSearchSpec) (any, types.BaseMethodFault) {
	entries, err := os.ReadDir(at.file)
	if err != nil {
		return nil, fileFault(err, at)
	}
	folder := at.path.String()
	if !strings.HasSuffix(folder, "/") && at.path.Path != "" {
		folder += "/"
	}
	res := types.HostDatastoreBrowserSearchResults{Datastore: &at.ds.Self, FolderPath: folder, File: []types.BaseFileInfo{}}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !matches(e.Name(), spec.MatchPattern) {
			continue
		}
		res.File = append(res.File, describeFile(info, spec.Details))
	}
	return res, nil
}

func matches(name string, patterns []string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, p := range patterns {
		if ok, err := path.Match(p, name); ok && err == nil {
			return true
		}
	}
	return false
}

func describeFile(info fs.FileInfo, want *types.FileQueryFlags) types.BaseFileInfo {
	out := types.FileInfo{Path: info.Name()}
	if want == nil {
		return &out
	}
	if want.FileSize {
		out.FileSize = info.Size()
	}
	if want.Modification {
		t := info.ModTime().UTC()
		out.Modification = &t
	}
	if !want.FileType {
		return &out
	}
	if info.IsDir() {
		return &types.FolderFileInfo{FileInfo: out}
	}
	switch strings.ToLower(path.Ext(info.Name())) {
	case ".iso":
		return &types.IsoImageFileInfo{FileInfo: out}
	case ".vmx":
		return &types.VmConfigFileInfo{FileInfo: out}
	case ".vmdk":
		return &types.VmDiskFileInfo{FileInfo: out}
	case ".log":
		return &types.VmLogFileInfo{FileInfo: out}
	case ".nvram":
		return &types.VmNvramFileInfo{FileInfo: out}
	}
	return &out
}
