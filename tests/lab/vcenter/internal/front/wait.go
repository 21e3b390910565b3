package front

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// waitForUpdatesEx waits for the next change of the collector's filters. It
// ends early if the client disconnects, if the session or the collector ends,
// or if another wait of the same collector begins.
func (c *call) waitForUpdatesEx() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.WaitForUpdatesEx)
	f := c.f
	limit, fault := waitLimit(req.Options)
	if fault != nil {
		return nil, fault
	}
	var timeout <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		timeout = t.C
	}
	cancel := make(chan struct{})
	f.world.mu.Lock()
	pc, fault := c.collector()
	if fault == nil {
		fault = pc.begin(req.Version, cancel)
	}
	f.world.mu.Unlock()
	if fault != nil {
		return nil, fault
	}
	defer f.world.lock(func() { pc.leave(cancel) })
	room := maxUpdates
	if req.Options != nil && req.Options.MaxObjectUpdates > 0 {
		room = min(room, int(req.Options.MaxObjectUpdates))
	}
	for {
		_, changed := f.world.all.now()
		reply, fault := c.collect(pc, cancel, req.Version, room)
		if reply != nil || fault != nil || limit == 0 {
			return reply, fault
		}
		select {
		case <-changed:
		case <-timeout:
			return nil, nil
		case <-cancel:
			return nil, &types.RequestCanceled{}
		case <-c.s.done:
			return nil, &types.RequestCanceled{}
		case <-c.ctx.Done():
			return nil, &types.RequestCanceled{}
		}
	}
}

// waitLimit is the time to wait; negative for no limit.
func waitLimit(o *types.WaitOptions) (time.Duration, types.BaseMethodFault) {
	if o == nil || o.MaxWaitSeconds == nil {
		return -1, nil
	}
	if *o.MaxWaitSeconds < 0 {
		return 0, invalidArgument("options.maxWaitSeconds")
	}
	return time.Duration(*o.MaxWaitSeconds) * time.Second, nil
}

// begin checks the version, and registers cancel as the channel that ends this
// wait.
func (pc *collector) begin(version string, cancel chan struct{}) types.BaseMethodFault {
	switch {
	case version == "":
		pc.last = nil
		for _, fl := range pc.filters {
			fl.told = map[ref]*told{}
		}
	case version == strconv.FormatUint(pc.version, 10):
		pc.last = nil
	case pc.last != nil && version == pc.last.after:
	default:
		return &types.InvalidCollectorVersion{}
	}
	pc.interrupt()
	pc.cancel = cancel
	return nil
}

// leave ends a wait that was not interrupted.
func (pc *collector) leave(cancel chan struct{}) {
	if pc.cancel == cancel {
		pc.cancel = nil
	}
}

// collect returns the changes since version, nil if there are none.
func (c *call) collect(pc *collector, cancel chan struct{}, version string, room int) (json.RawMessage, types.BaseMethodFault) {
	w := c.f.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if pc.cancel != cancel {
		return nil, &types.RequestCanceled{}
	}
	if pc.last != nil {
		return pc.last.reply, nil
	}
	set := updateSet{TypeName: "UpdateSet"}
	for _, fl := range pc.filters {
		update, truncated, fault := fl.updates(c.f, c.s, room)
		if fault != nil {
			return nil, fault
		}
		room -= len(update.ObjectSet)
		set.Truncated = set.Truncated || truncated
		if len(update.ObjectSet) > 0 || len(update.MissingSet) > 0 {
			set.FilterSet = append(set.FilterSet, update)
		}
	}
	if len(set.FilterSet) == 0 && version != "" {
		return nil, nil
	}
	pc.version++
	set.Version = strconv.FormatUint(pc.version, 10)
	reply, fault := marshal(set)
	if fault != nil {
		return nil, fault
	}
	pc.last = &delivery{after: version, reply: reply}
	return reply, nil
}
