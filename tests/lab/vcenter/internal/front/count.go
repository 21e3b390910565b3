package front

import (
	"maps"
	"sync"
)

// callCount counts the requests of clients, by the names that rules use.
type callCount struct {
	mu     sync.Mutex
	total  int
	method map[string]int
	logins map[string]int
}

func newCallCount() *callCount {
	c := &callCount{}
	c.reset()
	return c
}

func (c *callCount) add(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	c.method[method]++
}

func (c *callCount) login(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logins[kind]++
}

func (c *callCount) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total, c.method = 0, map[string]int{}
	c.logins = map[string]int{kindVIM: 0, kindREST: 0, "refused": 0}
}

type callView struct {
	Total    int            `json:"total"`
	ByMethod map[string]int `json:"byMethod"`
	Logins   map[string]int `json:"logins"`
}

func (c *callCount) view() callView {
	c.mu.Lock()
	defer c.mu.Unlock()
	return callView{c.total, maps.Clone(c.method), maps.Clone(c.logins)}
}
