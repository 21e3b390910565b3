package front

import (
	"encoding/json"

	"github.com/vmware/govmomi/vim25/types"
)

// prepareGet authenticates a property read. Only the service content and the
// current session can be read without a session.
func (c *call) prepareGet([]byte) types.BaseMethodFault {
	free := c.this.Type == "ServiceInstance" && c.method == "content" ||
		c.this.Type == "SessionManager" && c.method == "currentSession"
	if c.s == nil && !free {
		return notAuthenticated(c.this, "System.View")
	}
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	if !c.f.exists(c.s, c.this) {
		return &types.ManagedObjectNotFound{Obj: c.this}
	}
	return c.f.denied(propertyPrivilege, c.this)
}

// runGet reads one top-level property. Nested paths need the property
// collector.
func (c *call) runGet() (json.RawMessage, types.BaseMethodFault) {
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	obj, ok := c.f.object(c.s, c.this)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: c.this}
	}
	if _, ok := fieldNamed(obj.Type(), c.method); !ok {
		return nil, &types.InvalidProperty{Name: c.method}
	}
	if c.f.world.hides(c.this, c.method) {
		return nil, nil
	}
	v, err := property(obj, c.method)
	if err != nil {
		return nil, &types.InvalidProperty{Name: c.method}
	}
	return declared(v)
}
