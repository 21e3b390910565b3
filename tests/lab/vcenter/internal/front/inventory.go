package front

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Names in the inventory, which clients and tests look up.
const (
	datacenterName = "dc1"
	clusterName    = "cluster"
	podName        = "workload-datastore-cluster"
	isoDatastore   = "iso-datastore"
	localDatastore = "local-only"
	outsideStore   = "unmounted-iso"
	outsideHost    = "outside-host"
	switchName     = "dvs"
	portgroupName  = "dvpg-0"
)

// sites are the fixed places of the inventory.
type sites struct {
	datacenter, vmFolder, hostFolder, datastoreFolder, networkFolder ref
	cluster, rootPool, pod                                           ref
}

func (w *world) build(cfg Config) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	root := w.model.ServiceContent.RootFolder
	dc, fault := w.call(root, "CreateDatacenter", &types.CreateDatacenter{This: root, Name: datacenterName})
	if fault != nil {
		return fmt.Errorf("datacenter: %s", faultName(fault))
	}
	w.sites.datacenter = dc.(ref)
	d := w.reg.Get(w.sites.datacenter).(*simulator.Datacenter)
	w.sites.vmFolder, w.sites.hostFolder = d.VmFolder, d.HostFolder
	w.sites.datastoreFolder, w.sites.networkFolder = d.DatastoreFolder, d.NetworkFolder

	hosts, outside, err := w.buildHosts(cfg)
	if err != nil {
		return err
	}
	if err := w.buildNetworks(hosts); err != nil {
		return err
	}
	if err := w.buildDatastores(cfg, hosts, outside); err != nil {
		return err
	}
	w.describe(cfg)
	w.sweep()
	return nil
}

func (w *world) buildHosts(cfg Config) (hosts []ref, outside ref, err error) {
	cluster, fault := w.call(w.sites.hostFolder, "CreateClusterEx", &types.CreateClusterEx{Name: clusterName})
	if fault != nil {
		return nil, ref{}, fmt.Errorf("cluster: %s", faultName(fault))
	}
	w.sites.cluster = cluster.(ref)
	c := w.reg.Get(w.sites.cluster).(*simulator.ClusterComputeResource)
	w.sites.rootPool = *c.ResourcePool
	drs := &c.ConfigurationEx.(*types.ClusterConfigInfoEx).DrsConfig
	drs.Enabled = types.NewBool(!cfg.NoDRS)
	drs.DefaultVmBehavior = types.DrsBehaviorFullyAutomated
	for i := range cfg.Hosts {
		host, fault := w.run(w.sites.cluster, "AddHost_Task", &types.AddHost_Task{
			Spec: types.HostConnectSpec{HostName: fmt.Sprintf("host-%d", i)}, AsConnected: true,
		})
		if fault != nil {
			return nil, ref{}, fmt.Errorf("host: %s", faultName(fault))
		}
		hosts = append(hosts, host.(ref))
	}
	host, fault := w.run(w.sites.hostFolder, "AddStandaloneHost_Task", &types.AddStandaloneHost_Task{
		Spec: types.HostConnectSpec{HostName: outsideHost}, AddConnected: true,
	})
	if fault != nil {
		return nil, ref{}, fmt.Errorf("host: %s", faultName(fault))
	}
	return hosts, host.(ref), nil
}

func (w *world) buildNetworks(hosts []ref) error {
	spec := &types.DVSConfigSpec{Name: switchName}
	for _, host := range hosts {
		spec.Host = append(spec.Host, types.DistributedVirtualSwitchHostMemberConfigSpec{
			Operation: string(types.ConfigSpecOperationAdd), Host: host,
		})
	}
	dvs, fault := w.run(w.sites.networkFolder, "CreateDVS_Task", &types.CreateDVS_Task{
		Spec: types.DVSCreateSpec{ConfigSpec: &types.VMwareDVSConfigSpec{DVSConfigSpec: types.DVSConfigSpec{Name: switchName}}},
	})
	if fault != nil {
		return fmt.Errorf("switch: %s", faultName(fault))
	}
	if _, fault := w.run(dvs.(ref), "ReconfigureDvs_Task", &types.ReconfigureDvs_Task{This: dvs.(ref), Spec: spec}); fault != nil {
		return fmt.Errorf("switch members: %s", faultName(fault))
	}
	if _, fault := w.run(dvs.(ref), "AddDVPortgroup_Task", &types.AddDVPortgroup_Task{
		Spec: []types.DVPortgroupConfigSpec{{
			Name: portgroupName, NumPorts: 128,
			Type: string(types.DistributedVirtualPortgroupPortgroupTypeEarlyBinding),
		}},
	}); fault != nil {
		return fmt.Errorf("portgroup: %s", faultName(fault))
	}
	return nil
}

func (w *world) buildDatastores(cfg Config, hosts []ref, outside ref) error {
	pod, fault := w.call(w.sites.datastoreFolder, "CreateStoragePod", &types.CreateStoragePod{Name: podName})
	if fault != nil {
		return fmt.Errorf("datastore cluster: %s", faultName(fault))
	}
	w.sites.pod = pod.(ref)
	for i := range cfg.PodDatastores {
		ds, err := w.addDatastore(fmt.Sprintf("ds-%d", i), hosts)
		if err != nil {
			return err
		}
		w.moveIntoPod(ds)
	}
	for name, mounts := range map[string][]ref{
		isoDatastore:   hosts,
		localDatastore: hosts[:min(1, len(hosts))],
		outsideStore:   {outside},
	} {
		if _, err := w.addDatastore(name, mounts); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) addDatastore(name string, hosts []ref) (ref, error) {
	dir := filepath.Join(w.dir.path, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return ref{}, err
	}
	var made ref
	for _, host := range hosts {
		system := w.reg.Get(host).(*simulator.HostSystem).ConfigManager.DatastoreSystem
		ds, fault := w.call(*system, "CreateLocalDatastore", &types.CreateLocalDatastore{Name: name, Path: dir})
		if fault != nil {
			return ref{}, fmt.Errorf("datastore %s: %s", name, faultName(fault))
		}
		if ds.(ref).Value != "" {
			made = ds.(ref)
		}
	}
	for _, e := range w.reg.All("Datastore") {
		if entityName(e) == name {
			made = e.Reference()
		}
	}
	store := w.reg.Get(made).(*simulator.Datastore)
	store.Summary.Type = string(types.HostFileSystemVolumeFileSystemTypeVMFS)
	store.Summary.MultipleHostAccess = types.NewBool(len(hosts) > 1)
	return made, nil
}

// moveIntoPod makes the pod the parent of ds. The simulator's own move leaves
// duplicates.
func (w *world) moveIntoPod(ds ref) {
	pod := w.reg.Get(w.sites.pod).(*simulator.StoragePod)
	folder := w.reg.Get(w.sites.datastoreFolder).(*simulator.Folder)
	simulator.RemoveReference(&folder.ChildEntity, ds)
	pod.ChildEntity = append(pod.ChildEntity, ds)
	w.reg.Get(ds).(*simulator.Datastore).Parent = &pod.Self
}

// refreshPods recomputes the sums of a datastore cluster.
func (w *world) refreshPods() {
	for _, e := range w.reg.All("StoragePod") {
		pod := e.(*simulator.StoragePod)
		sum := types.StoragePodSummary{Name: pod.Name}
		for _, child := range pod.ChildEntity {
			if ds, ok := w.reg.Get(child).(*simulator.Datastore); ok {
				sum.Capacity += ds.Summary.Capacity
				sum.FreeSpace += ds.Summary.FreeSpace
			}
		}
		pod.Summary = &sum
	}
}

// describe puts the version of the simulated vCenter into the service content.
func (w *world) describe(cfg Config) {
	si := w.reg.Get(ref{Type: "ServiceInstance", Value: "ServiceInstance"}).(*simulator.ServiceInstance)
	about := &si.Content.About
	about.Name = "VMware vCenter Server"
	about.ApiVersion = cfg.APIRelease
	about.Version = cfg.APIRelease[:len(cfg.APIRelease)-2]
	// The simulator gives the same one to all simulators of a machine.
	about.InstanceUuid = uuid.NewString()
	about.FullName = fmt.Sprintf("%s %s build-%s", about.Name, about.Version, about.Build)
}

// datastoreNamed finds a datastore of a datacenter by name.
func (w *world) datastoreNamed(dc ref, name string) *simulator.Datastore {
	d, ok := w.reg.Get(dc).(*simulator.Datacenter)
	if !ok {
		return nil
	}
	for _, r := range d.Datastore {
		if ds, ok := w.reg.Get(r).(*simulator.Datastore); ok && ds.Name == name {
			return ds
		}
	}
	return nil
}

// datacenterOf finds the datacenter of an object through its parents.
func (w *world) datacenterOf(r ref) (ref, bool) {
	for {
		e, ok := w.reg.Get(r).(mo.Entity)
		if !ok {
			return ref{}, false
		}
		if r.Type == "Datacenter" {
			return r, true
		}
		if e.Entity().Parent == nil {
			return ref{}, false
		}
		r = *e.Entity().Parent
	}
}
