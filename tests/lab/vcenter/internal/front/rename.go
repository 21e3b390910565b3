package front

import (
	"encoding/json"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) rename() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.Rename_Task)
	w := c.f.world
	if req.NewName == "" || len(req.NewName) > 80 {
		return nil, &types.InvalidName{Name: req.NewName}
	}
	return declared(c.start(op{
		name: "rename", entity: c.this, exclusive: c.this.Type == "VirtualMachine",
		run: func() (any, types.BaseMethodFault) {
			e, ok := w.reg.Get(c.this).(mo.Entity)
			if !ok {
				return nil, &types.ManagedObjectNotFound{Obj: c.this}
			}
			if e.Entity().Parent != nil {
				taken, ok := w.child(*e.Entity().Parent, escapeName(req.NewName))
				if ok && taken != c.this {
					return nil, &types.DuplicateName{Name: req.NewName, Object: taken}
				}
				if ok {
					return nil, nil // its own name
				}
			}
			return w.run(c.this, c.method, req)
		},
	}))
}
