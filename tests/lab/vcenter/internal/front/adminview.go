package front

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

type inventoryView struct {
	Version  uint64        `json:"version"`
	VMs      []vmView      `json:"vms"`
	Sessions []sessionView `json:"sessions"`
	Files    []fileView    `json:"files"`
	Folders  []string      `json:"folders"`
	Tags     []tagView     `json:"tags"`
}

type vmView struct {
	Moref        string            `json:"moref"`
	Name         string            `json:"name"`
	Path         string            `json:"path"`
	UUID         string            `json:"uuid"`
	InstanceUUID string            `json:"instanceUuid"`
	Power        string            `json:"power"`
	Cdroms       []cdromView       `json:"cdroms"`
	Nics         []nicView         `json:"nics"`
	Disks        []diskView        `json:"disks"`
	ExtraConfig  map[string]string `json:"extraConfig"`
	Annotation   string            `json:"annotation"`
	NumCPU       int32             `json:"numCPU"`
	MemoryMB     int32             `json:"memoryMB"`
	Firmware     string            `json:"firmware"`
	GuestID      string            `json:"guestId"`
	BootOrder    []string          `json:"bootOrder"`
	VMPathName   string            `json:"vmPathName"`
	Host         string            `json:"host"`
	Pool         string            `json:"pool"`
	Tags         []string          `json:"tags"`
	CreatedAt    *time.Time        `json:"createdAt"`
	PoweredOnAt  *time.Time        `json:"poweredOnAt"`
}

type cdromView struct {
	Key            int32  `json:"key"`
	Path           string `json:"path"`
	Connected      bool   `json:"connected"`
	StartConnected bool   `json:"startConnected"`
}

type nicView struct {
	Key     int32  `json:"key"`
	Type    string `json:"type"`
	MAC     string `json:"mac"`
	Network string `json:"network"`
}

type diskView struct {
	Key          int32  `json:"key"`
	GB           int64  `json:"gb"`
	File         string `json:"file"`
	UUID         string `json:"uuid"`
	Thin         bool   `json:"thin"`
	EagerlyScrub bool   `json:"eagerlyScrub"`
	Controller   string `json:"controller"`
}

type tagView struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Category string `json:"category"`
}

// maxAdminWait limits a long poll.
const maxAdminWait = 5 * time.Minute

// adminInventory shows everything. It answers at once or, with waitVersion,
// when the inventory is newer or timeoutMs have passed. files=false leaves the
// files out.
func (f *Front) adminInventory(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	seen, err := strconv.ParseUint(q.Get("waitVersion"), 10, 64)
	if q.Has("waitVersion") && err != nil {
		adminError(w, http.StatusBadRequest, "waitVersion is not a number")
		return
	}
	wait := 30 * time.Second
	if q.Has("timeoutMs") {
		ms, err := strconv.ParseUint(q.Get("timeoutMs"), 10, 31)
		if err != nil {
			adminError(w, http.StatusBadRequest, "timeoutMs is not a number")
			return
		}
		wait = min(time.Duration(ms)*time.Millisecond, maxAdminWait)
	}
	if q.Has("waitVersion") {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		for waiting := true; waiting; {
			now, changed := f.world.inventory.now()
			if now > seen {
				break
			}
			select {
			case <-changed:
			case <-timer.C:
				waiting = false
			case <-r.Context().Done():
				return
			case <-f.ctx.Done():
				return
			}
		}
	}
	writeValue(w, http.StatusOK, f.view(q.Get("files") != "false"))
}

func (f *Front) view(files bool) inventoryView {
	out := inventoryView{VMs: []vmView{}, Folders: []string{}, Files: []fileView{}, Tags: []tagView{}, Sessions: f.sessions.list()}
	w := f.world
	var stores map[string]string
	w.lock(func() {
		out.Version, _ = w.inventory.now()
		stores = w.datastoreRoots()
		for _, e := range w.reg.All("VirtualMachine") {
			out.VMs = append(out.VMs, f.describeVM(e.(*simulator.VirtualMachine)))
		}
		for _, e := range w.reg.All("Folder") {
			if r := e.Reference(); r == w.sites.vmFolder || w.under(r, w.sites.vmFolder) {
				out.Folders = append(out.Folders, w.inventoryPath(r))
			}
		}
	})
	f.tags.mu.Lock()
	for _, t := range f.tags.tags {
		out.Tags = append(out.Tags, tagView{t.ID, t.Name, f.tags.category(t.CategoryID).Name})
	}
	f.tags.mu.Unlock()
	if files {
		out.Files = listFiles(stores)
	}
	slices.SortFunc(out.VMs, func(a, b vmView) int { return strings.Compare(a.Path, b.Path) })
	slices.Sort(out.Folders)
	return out
}

func (f *Front) describeVM(vm *simulator.VirtualMachine) vmView {
	w := f.world
	v := vmView{
		Moref: vm.Self.Value, Name: vm.Name, Path: w.inventoryPath(vm.Self),
		UUID: vm.Config.Uuid, InstanceUUID: vm.Config.InstanceUuid, Power: string(vm.Runtime.PowerState),
		Cdroms: []cdromView{}, Nics: []nicView{}, Disks: []diskView{}, ExtraConfig: map[string]string{},
		Annotation: vm.Config.Annotation, NumCPU: vm.Config.Hardware.NumCPU, MemoryMB: vm.Config.Hardware.MemoryMB,
		Firmware: vm.Config.Firmware, GuestID: vm.Config.GuestId, BootOrder: bootOrder(vm.Config.BootOptions),
		VMPathName: vm.Config.Files.VmPathName, Tags: f.tags.of(objectID{"VirtualMachine", vm.Self.Value}),
		CreatedAt: vm.Config.CreateDate, PoweredOnAt: vm.Runtime.BootTime,
	}
	if vm.Runtime.Host != nil {
		v.Host = w.name(*vm.Runtime.Host)
	}
	if vm.ResourcePool != nil {
		v.Pool = w.inventoryPath(*vm.ResourcePool)
	}
	for _, o := range vm.Config.ExtraConfig {
		v.ExtraConfig[o.GetOptionValue().Key] = fmt.Sprint(o.GetOptionValue().Value)
	}
	devices := object.VirtualDeviceList(vm.Config.Hardware.Device)
	for _, d := range devices {
		switch dev := d.(type) {
		case *types.VirtualCdrom:
			v.Cdroms = append(v.Cdroms, describeCdrom(dev))
		case *types.VirtualDisk:
			v.Disks = append(v.Disks, describeDisk(dev, devices))
		case types.BaseVirtualEthernetCard:
			card := dev.GetVirtualEthernetCard()
			v.Nics = append(v.Nics, nicView{card.Key, deviceType(d), strings.ToLower(card.MacAddress), w.networkOf(card)})
		}
	}
	return v
}

func deviceType(d any) string {
	name := fmt.Sprintf("%T", d)
	return name[strings.LastIndex(name, ".")+1:]
}

func describeCdrom(c *types.VirtualCdrom) cdromView {
	v := cdromView{Key: c.Key}
	if iso, ok := c.Backing.(*types.VirtualCdromIsoBackingInfo); ok {
		v.Path = iso.FileName
	}
	if c.Connectable != nil {
		v.Connected, v.StartConnected = c.Connectable.Connected, c.Connectable.StartConnected
	}
	return v
}

func describeDisk(d *types.VirtualDisk, all object.VirtualDeviceList) diskView {
	v := diskView{Key: d.Key, GB: diskBytes(d) >> 30, Controller: "none"}
	if b, ok := d.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
		v.File = b.GetVirtualDeviceFileBackingInfo().FileName
	}
	if b, ok := d.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
		v.Thin = b.ThinProvisioned != nil && *b.ThinProvisioned
		v.UUID = b.Uuid
		v.EagerlyScrub = b.EagerlyScrub != nil && *b.EagerlyScrub
	}
	if c := all.FindByKey(d.ControllerKey); c != nil {
		v.Controller = deviceType(c)
	}
	return v
}

func bootOrder(o *types.VirtualMachineBootOptions) []string {
	out := []string{}
	if o == nil {
		return out
	}
	for _, b := range o.BootOrder {
		switch dev := b.(type) {
		case *types.VirtualMachineBootOptionsBootableDiskDevice:
			out = append(out, fmt.Sprintf("disk:%d", dev.DeviceKey))
		case *types.VirtualMachineBootOptionsBootableEthernetDevice:
			out = append(out, fmt.Sprintf("ethernet:%d", dev.DeviceKey))
		case *types.VirtualMachineBootOptionsBootableCdromDevice:
			out = append(out, "cdrom")
		case *types.VirtualMachineBootOptionsBootableFloppyDevice:
			out = append(out, "floppy")
		}
	}
	return out
}
