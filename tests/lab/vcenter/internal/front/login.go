package front

import (
	"encoding/json"

	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) login() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.Login)
	if c.s != nil || !c.f.sessions.valid(req.UserName, req.Password) {
		c.f.calls.login("refused")
		return nil, &types.InvalidLogin{}
	}
	c.f.calls.login(kindVIM)
	c.opened = c.f.sessions.open(kindVIM, req.UserName, c.agent)
	return declared(userSession(c.opened))
}

func (c *call) logout() (json.RawMessage, types.BaseMethodFault) {
	c.f.sessions.end(c.s.id)
	return nil, nil
}

func (c *call) serviceContent() (json.RawMessage, types.BaseMethodFault) {
	get := *c
	get.method = "content"
	return get.runGet()
}
