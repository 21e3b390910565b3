package front

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// placement is a recommendation that can still be applied.
type placement struct {
	datastore string
	spec      types.StoragePlacementSpec
	// chooseHome means that the client did not choose the datastore of the
	// configuration.
	chooseHome bool
}

// keptPlacements is the number of recommendations that stay valid.
const keptPlacements = 300

func (c *call) recommendDatastores() (json.RawMessage, types.BaseMethodFault) {
	spec := c.req.(*types.RecommendDatastores).StorageSpec
	w := c.f.world
	w.mu.Lock()
	defer w.mu.Unlock()
	pod, fault := w.placementPod(&spec)
	if fault != nil {
		return nil, fault
	}
	var bytes int64
	for _, change := range spec.ConfigSpec.DeviceChange {
		if disk, ok := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk); ok {
			bytes += diskBytes(disk)
		}
	}
	result := types.StoragePlacementResult{}
	for _, ds := range w.candidates(pod, *spec.ResourcePool, bytes) {
		c.f.nextRec++
		key := strconv.Itoa(c.f.nextRec)
		files := spec.ConfigSpec.Files
		c.f.placed[key] = placement{ds.Name, spec, files == nil || files.VmPathName == ""}
		delete(c.f.placed, strconv.Itoa(c.f.nextRec-keptPlacements))
		result.Recommendations = append(result.Recommendations, recommend(key, pod, ds, bytes))
	}
	if len(result.Recommendations) == 0 {
		result.DrsFault = noSpace(pod, bytes)
	}
	return declared(result)
}

// placementPod checks a placement request and finds its datastore cluster.
func (w *world) placementPod(spec *types.StoragePlacementSpec) (*simulator.StoragePod, types.BaseMethodFault) {
	switch {
	case spec.Type != string(types.StoragePlacementSpecPlacementTypeCreate):
		return nil, invalidArgument("storageSpec.type")
	case spec.ResourcePool == nil || spec.ResourcePool.Type != "ResourcePool":
		return nil, invalidArgument("storageSpec.resourcePool")
	case spec.Folder == nil || spec.Folder.Type != "Folder":
		return nil, invalidArgument("storageSpec.folder")
	case spec.ConfigSpec == nil:
		return nil, invalidArgument("storageSpec.configSpec")
	case spec.PodSelectionSpec.StoragePod == nil:
		return nil, invalidArgument("storageSpec.podSelectionSpec.storagePod")
	}
	pod, ok := w.reg.Get(*spec.PodSelectionSpec.StoragePod).(*simulator.StoragePod)
	if !ok || pod.PodStorageDrsEntry == nil || !pod.PodStorageDrsEntry.StorageDrsConfig.PodConfig.Enabled {
		return nil, invalidArgument("storageSpec.podSelectionSpec.storagePod")
	}
	var disks object.VirtualDeviceList
	for _, change := range spec.ConfigSpec.DeviceChange {
		if disk, ok := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk); ok {
			disks = append(disks, disk)
		}
	}
	named := map[int32]bool{}
	for _, initial := range spec.PodSelectionSpec.InitialVmConfig {
		if initial.StoragePod != pod.Self {
			return nil, invalidArgument("storageSpec.podSelectionSpec.initialVmConfig.storagePod")
		}
		for _, locator := range initial.Disk {
			if disks.FindByKey(locator.DiskId) == nil {
				return nil, invalidArgument("storageSpec.podSelectionSpec.initialVmConfig.disk.diskId")
			}
			named[locator.DiskId] = true
		}
	}
	for _, d := range disks {
		if !named[d.GetVirtualDevice().Key] {
			return nil, invalidArgument("storageSpec.podSelectionSpec.initialVmConfig.disk")
		}
	}
	return pod, nil
}

// candidates are the pod's datastores with enough space that a host of the pool
// has, the emptiest first.
func (w *world) candidates(pod *simulator.StoragePod, pool ref, bytes int64) []*simulator.Datastore {
	var out []*simulator.Datastore
	for _, r := range pod.ChildEntity {
		ds, ok := w.reg.Get(r).(*simulator.Datastore)
		if !ok || !ds.Summary.Accessible || ds.Summary.FreeSpace < bytes ||
			ds.Summary.MaintenanceMode != string(types.DatastoreSummaryMaintenanceModeStateNormal) {
			continue
		}
		seen := slices.ContainsFunc(w.hostsOf(pool), func(h ref) bool {
			return w.sees(h, []need{{datastore: r}}, true) == nil
		})
		if seen {
			out = append(out, ds)
		}
	}
	slices.SortStableFunc(out, func(a, b *simulator.Datastore) int {
		return int((b.Summary.FreeSpace - a.Summary.FreeSpace) >> 20)
	})
	return out
}

func recommend(key string, pod *simulator.StoragePod, ds *simulator.Datastore, bytes int64) types.ClusterRecommendation {
	used := func(free int64) float32 {
		return float32(ds.Summary.Capacity-free) * 100 / float32(max(ds.Summary.Capacity, 1))
	}
	return types.ClusterRecommendation{
		Key: key, Type: "V1", Time: time.Now().UTC(), Rating: 3,
		Reason: "storagePlacement", ReasonText: "Satisfy storage initial placement requests",
		Target: &pod.Self,
		Action: []types.BaseClusterAction{&types.StoragePlacementAction{
			ClusterAction:   types.ClusterAction{Type: "StoragePlacementV1"},
			RelocateSpec:    types.VirtualMachineRelocateSpec{Datastore: &ds.Self},
			Destination:     ds.Self,
			SpaceUtilBefore: used(ds.Summary.FreeSpace),
			SpaceUtilAfter:  used(ds.Summary.FreeSpace - bytes),
		}},
	}
}

// noSpace is the result if no datastore has room for the VM: no
// recommendations, and a fault inside the result.
func noSpace(pod *simulator.StoragePod, bytes int64) *types.ClusterDrsFaults {
	fault := withMessage(&types.InsufficientStorageSpace{}, "storagedrs.nospace",
		fmt.Sprintf("no datastore of %s has %d bytes free", pod.Name, bytes))
	return &types.ClusterDrsFaults{
		Reason: "storagePlacement",
		FaultsByVm: []types.BaseClusterDrsFaultsFaultsByVm{&types.ClusterDrsFaultsFaultsByVm{
			Fault: []types.LocalizedMethodFault{{Fault: fault}},
		}},
	}
}

// applyRecommendation creates the VM of a recommendation.
func (c *call) applyRecommendation() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.ApplyStorageDrsRecommendation_Task)
	w := c.f.world
	if len(req.Key) != 1 {
		return nil, invalidArgument("key")
	}
	var chosen placement
	var known bool
	var fault types.BaseMethodFault
	w.lock(func() {
		if chosen, known = c.f.placed[req.Key[0]]; known {
			delete(c.f.placed, req.Key[0])
			place(chosen)
			fault = c.f.createArguments(*chosen.spec.Folder, chosen.spec.ConfigSpec, *chosen.spec.ResourcePool, chosen.spec.Host)
		}
	})
	if !known {
		return nil, invalidArgument("key")
	}
	if fault != nil {
		return nil, fault
	}
	spec := chosen.spec
	return declared(c.start(op{
		name: "applyRecommendation", entity: c.this, delay: delayCreate,
		run: func() (any, types.BaseMethodFault) {
			vm, fault := c.f.create(*spec.Folder, spec.ConfigSpec, *spec.ResourcePool, spec.Host)
			if fault != nil {
				return nil, fault
			}
			made := vm.(ref)
			return types.ApplyStorageRecommendationResult{Vm: &made}, nil
		},
	}))
}

// place writes the chosen datastore into the configuration.
func place(p placement) {
	spec := p.spec.ConfigSpec
	spec.Name = escapeName(spec.Name)
	if p.chooseHome {
		spec.Files = &types.VirtualMachineFileInfo{VmPathName: "[" + p.datastore + "]"}
	}
	for _, change := range spec.DeviceChange {
		disk, ok := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		if b, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
			b.GetVirtualDeviceFileBackingInfo().FileName = "[" + p.datastore + "]"
		}
	}
}
