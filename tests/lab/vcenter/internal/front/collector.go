package front

import (
	"encoding/json"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// collector is a property collector of one session. Its versions count the
// deliveries. The last delivery is kept, so that a client that lost the reply
// can ask for it again.
type collector struct {
	mo.PropertyCollector
	filters []*filter
	version uint64
	last    *delivery
	cancel  chan struct{} // closed to end the wait that runs now
}

type delivery struct {
	after string
	reply json.RawMessage
}

// filter holds the last state of each object that the client got.
type filter struct {
	mo.PropertyFilter
	owner *collector
	told  map[ref]*told
}

type told struct {
	at      uint64
	missing bool
	values  map[string]string
}

// collector returns the session's collector with this name. The collector of
// the service content is created at its first use.
func (c *call) collector() (*collector, types.BaseMethodFault) {
	if pc, ok := c.s.objects[c.this].(*collector); ok {
		return pc, nil
	}
	if c.this != c.f.world.model.ServiceContent.PropertyCollector {
		return nil, &types.ManagedObjectNotFound{Obj: c.this}
	}
	pc := &collector{}
	pc.Self = c.this
	c.s.objects[pc.Self] = pc
	return pc, nil
}

func (c *call) createPropertyCollector() (json.RawMessage, types.BaseMethodFault) {
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	pc := &collector{}
	pc.Self = c.s.newRef("PropertyCollector")
	c.s.objects[pc.Self] = pc
	return declared(pc.Self)
}

func (c *call) destroyPropertyCollector() (json.RawMessage, types.BaseMethodFault) {
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	pc, fault := c.collector()
	if fault != nil {
		return nil, fault
	}
	pc.interrupt()
	for _, fl := range pc.filters {
		delete(c.s.objects, fl.Self)
	}
	delete(c.s.objects, pc.Self)
	return nil, nil
}

func (c *call) createFilter() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.CreateFilter)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	pc, fault := c.collector()
	if fault != nil {
		return nil, fault
	}
	if _, fault := c.f.selection(c.s, &req.Spec); fault != nil {
		return nil, fault
	}
	fl := &filter{owner: pc, told: map[ref]*told{}}
	fl.Self = c.s.newRef("PropertyFilter")
	fl.Spec, fl.PartialUpdates = req.Spec, req.PartialUpdates
	c.s.objects[fl.Self] = fl
	pc.filters = append(pc.filters, fl)
	pc.Filter = append(pc.Filter, fl.Self)
	c.f.world.touch(fl.Self)
	return declared(fl.Self)
}

func (c *call) destroyPropertyFilter() (json.RawMessage, types.BaseMethodFault) {
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	fl, ok := c.s.objects[c.this].(*filter)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: c.this}
	}
	delete(c.s.objects, fl.Self)
	pc := fl.owner
	for i, other := range pc.filters {
		if other == fl {
			pc.filters = append(pc.filters[:i:i], pc.filters[i+1:]...)
			pc.Filter = append(pc.Filter[:i:i], pc.Filter[i+1:]...)
			break
		}
	}
	return nil, nil
}

func (c *call) cancelWaitForUpdates() (json.RawMessage, types.BaseMethodFault) {
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	pc, fault := c.collector()
	if fault != nil {
		return nil, fault
	}
	pc.interrupt()
	return nil, nil
}

// interrupt ends the present wait.
func (pc *collector) interrupt() {
	if pc.cancel != nil {
		close(pc.cancel)
		pc.cancel = nil
	}
}
