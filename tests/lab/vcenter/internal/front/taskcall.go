package front

import (
	"encoding/json"

	"github.com/vmware/govmomi/vim25/types"
)

// cancelTask asks a task to end. The task ends a little later with the error
// RequestCanceled.
func (c *call) cancelTask() (json.RawMessage, types.BaseMethodFault) {
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	t := c.f.tasks[c.this]
	switch {
	case t == nil:
		return nil, &types.ManagedObjectNotFound{Obj: c.this}
	case !t.over.IsZero() || t.Info.Cancelled:
		return nil, &types.InvalidState{}
	case !t.Info.Cancelable:
		return nil, &types.NotSupported{}
	}
	t.Info.Cancelled = true
	c.f.world.touch(t.Self)
	t.cancel()
	return nil, nil
}
