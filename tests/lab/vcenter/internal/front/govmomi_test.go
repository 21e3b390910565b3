package front

import (
	"context"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/vmware/govmomi/object"
	collect "github.com/vmware/govmomi/property"
	auth "github.com/vmware/govmomi/session"
	views "github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// A second check of the encoding: govmomi's own client uses the same protocol,
// in release 9.1.0.0 only.
func TestGovmomiUnderstands(t *testing.T) {
	l := newLab(t, func(c *Config) { c.APIRelease = "9.1.0.0" })
	tls := httptest.NewTLSServer(l.f)
	t.Cleanup(tls.Close)
	ctx := context.Background()
	u := must(url.Parse(tls.URL + "/sdk"))
	sc := soap.NewClient(u, true)
	sc.UseJSON(true)
	c, err := vim25.NewClient(ctx, sc)
	if err != nil {
		t.Fatal(err)
	}
	m := auth.NewManager(c)
	if err := m.Login(ctx, url.UserPassword(testUser, testPassword)); err != nil {
		t.Fatal(err)
	}
	search := object.NewSearchIndex(c)
	find := func(path string) types.ManagedObjectReference {
		r, err := search.FindByInventoryPath(ctx, path)
		if err != nil || r == nil {
			t.Fatalf("%s: %v", path, err)
		}
		return r.Reference()
	}
	spec := *foreignSpec("node-1", "ds-0", "")
	spec.ExtraConfig = []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.a", Value: "b"}}
	task, err := object.NewFolder(c, find("/dc1/vm")).CreateVM(ctx, spec, object.NewResourcePool(c, find("/dc1/host/cluster/Resources")), nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := task.WaitForResult(ctx)
	if err != nil {
		t.Fatal(err)
	}
	vm := object.NewVirtualMachine(c, info.Result.(types.ManagedObjectReference))
	on, err := vm.PowerOn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := on.WaitEx(ctx); err != nil {
		t.Fatal(err)
	}
	v, err := views.NewManager(c).CreateContainerView(ctx, c.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	var vms []mo.VirtualMachine
	if err := v.Retrieve(ctx, []string{"VirtualMachine"}, []string{"name", "config", "runtime", "summary"}, &vms); err != nil {
		t.Fatal(err)
	}
	if len(vms) != 1 || vms[0].Name != "node-1" || vms[0].Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		t.Fatalf("VMs: %+v", vms)
	}
	disks := object.VirtualDeviceList(vms[0].Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	if len(disks) != 1 || disks[0].(*types.VirtualDisk).CapacityInKB != 16<<20 {
		t.Errorf("disks: %+v", disks)
	}
	var pod mo.StoragePod
	if err := collect.DefaultCollector(c).RetrieveOne(ctx, find("/dc1/datastore/workload-datastore-cluster"), nil, &pod); err != nil {
		t.Fatal(err)
	}
	if len(pod.ChildEntity) != 3 || pod.Summary.FreeSpace == 0 {
		t.Errorf("pod: %+v", pod)
	}
	if err := m.Logout(ctx); err != nil {
		t.Error(err)
	}
}
