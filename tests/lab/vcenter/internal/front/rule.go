package front

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25/types"

	"agent-forge.containeroo.ch/lab/vcenter/internal/wire"
)

// The effects of a rule.
const (
	atCall      = "call"      // the call answers the fault
	atTask      = "task"      // the task it starts ends with the fault
	atHang      = "hang"      // the call never answers
	atLostReply = "lostReply" // the call runs, its connection is dropped
	atHTTP      = "http"      // the call answers an HTTP status alone
)

// rule makes calls fail.
type rule struct {
	ID     string          `json:"id"`
	Method string          `json:"method"`
	At     string          `json:"at"`
	Fault  json.RawMessage `json:"fault,omitempty"`
	Status int             `json:"status,omitempty"`
	// Count is the number of calls that fail, 0 for all. Skip is the number of
	// calls that pass before.
	Count  int    `json:"count"`
	Skip   int    `json:"skip"`
	VMName string `json:"vmName,omitempty"`
	Hits   int    `json:"hits"`
	Seen   int    `json:"seen"`

	fault   types.BaseMethodFault
	release chan struct{}
}

type rules struct {
	mu   sync.Mutex
	next int
	all  []*rule
}

func newRules() *rules { return &rules{} }

func (r *rules) add(n *rule) error {
	if n.Method == "" {
		return fmt.Errorf("method is missing: use a name of /_admin/calls, such as CreateVM_Task or \"PUT /folder\"")
	}
	switch n.At {
	case atCall, atTask:
		if len(n.Fault) == 0 {
			return fmt.Errorf("fault is missing: at %q needs an object with \"_typeName\"", n.At)
		}
		fault, err := wire.Fault(n.Fault)
		if err != nil {
			return err
		}
		n.fault = fault
		if n.At == atTask && !strings.HasSuffix(n.Method, "_Task") {
			return fmt.Errorf("%s starts no task: use at \"call\"", n.Method)
		}
	case atHTTP:
		if n.Status < 400 || n.Status > 599 {
			return fmt.Errorf("status %d: at \"http\" needs a status from 400 to 599", n.Status)
		}
	case atHang, atLostReply:
	default:
		return fmt.Errorf("unknown at %q: use call, task, hang, lostReply or http", n.At)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	n.ID, n.Hits, n.Seen, n.release = strconv.Itoa(r.next), 0, 0, make(chan struct{})
	r.all = append(r.all, n)
	return nil
}

// match finds the rule for this call and counts the hit.
func (r *rules) match(method, vmName string) *rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.all {
		if n.Method != method && n.Method != "*" || n.VMName != "" && n.VMName != vmName {
			continue
		}
		if n.Count > 0 && n.Hits >= n.Count {
			continue
		}
		n.Seen++
		if n.Seen <= n.Skip {
			continue
		}
		n.Hits++
		return n
	}
	return nil
}

func (r *rules) list() []rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []rule{}
	for _, n := range r.all {
		out = append(out, *n)
	}
	return out
}

// clear drops all rules and releases the hanging calls.
func (r *rules) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.all {
		close(n.release)
	}
	r.all = nil
}

// remove drops one rule.
func (r *rules) remove(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.all, func(n *rule) bool { return n.ID == id })
	if i < 0 {
		return false
	}
	close(r.all[i].release)
	r.all = slices.Delete(r.all, i, i+1)
	return true
}
