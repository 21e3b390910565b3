package front

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/vim25/types"
)

type retrieveResult struct {
	TypeName string          `json:"_typeName"`
	Token    string          `json:"token,omitempty"`
	Objects  []objectContent `json:"objects"`
}

// page is the rest that ContinueRetrievePropertiesEx has to return.
type page struct {
	size int
	rest []objectContent
}

func (c *call) retrievePropertiesEx() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.RetrievePropertiesEx)
	f := c.f
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	var all []objectContent
	for i := range req.SpecSet {
		chosen, fault := f.selection(c.s, &req.SpecSet[i])
		if fault != nil {
			return nil, fault
		}
		for _, sel := range chosen {
			if sel.missing {
				continue
			}
			content, fault := f.read(c.s, sel)
			if fault != nil {
				return nil, fault
			}
			all = append(all, content)
		}
	}
	if req.Options.MaxObjects < 0 {
		return nil, invalidArgument("options.maxObjects")
	}
	return c.page(&page{size: int(req.Options.MaxObjects), rest: all})
}

func (c *call) continueRetrievePropertiesEx() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.ContinueRetrievePropertiesEx)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	p := c.s.pages[req.Token]
	if p == nil {
		return nil, &types.InvalidProperty{Name: "token"}
	}
	delete(c.s.pages, req.Token)
	return c.page(p)
}

func (c *call) cancelRetrievePropertiesEx() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.CancelRetrievePropertiesEx)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	if c.s.pages[req.Token] == nil {
		return nil, &types.InvalidProperty{Name: "token"}
	}
	delete(c.s.pages, req.Token)
	return nil, nil
}

// page returns the next objects of p and keeps the others under a token.
func (c *call) page(p *page) (json.RawMessage, types.BaseMethodFault) {
	if len(p.rest) == 0 {
		return nil, nil
	}
	out := retrieveResult{TypeName: "RetrieveResult", Objects: p.rest}
	if p.size > 0 && len(p.rest) > p.size {
		out.Objects, p.rest = p.rest[:p.size], p.rest[p.size:]
		out.Token = uuid.NewString()
		c.s.pages[out.Token] = p
	}
	return marshal(out)
}

func marshal(v any) (json.RawMessage, types.BaseMethodFault) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, systemError(err.Error())
	}
	return raw, nil
}
