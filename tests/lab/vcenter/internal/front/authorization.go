package front

import (
	"encoding/json"

	"github.com/vmware/govmomi/vim25/types"
)

// hasUserPrivilege answers which privileges the user has on objects, by the
// denials.
func (c *call) hasUserPrivilege() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.HasUserPrivilegeOnEntities)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	var all []types.EntityPrivilege
	for _, entity := range req.Entities {
		answer := types.EntityPrivilege{Entity: entity}
		for _, id := range req.PrivId {
			answer.PrivAvailability = append(answer.PrivAvailability, types.PrivilegeAvailability{
				PrivId: id, IsGranted: c.f.denied(id, entity) == nil,
			})
		}
		all = append(all, answer)
	}
	return declared(all)
}
