package front

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// taskRetention is how long a finished task can still be read.
const taskRetention = 10 * time.Minute

// task is a task as clients see it. The simulator's own tasks run inside it in
// one step, after its delay.
type task struct {
	mo.Task
	cancel context.CancelFunc
	over   time.Time
}

// op is the work of a task.
type op struct {
	name       string // as in "powerOn"
	entity     ref
	delay      string
	cancelable bool
	// reads means that the task changes nothing.
	reads bool
	// exclusive tasks of one entity exclude each other.
	exclusive bool
	// before waits for other work, without the lock of the world.
	before func(context.Context)
	// check finds what can be known before the delay of the work.
	check func() types.BaseMethodFault
	run   func() (any, types.BaseMethodFault)
	// after runs when the task is over, whatever its result is.
	after func()
}

// start begins a task and returns its reference at once.
func (c *call) start(o op) ref {
	f := c.f
	ctx, cancel := context.WithCancel(f.ctx)
	t := &task{cancel: cancel}
	t.Self.Type = "Task"
	injected := c.taskFault
	f.world.mu.Lock()
	f.describe(t, c.user(), o)
	self := f.world.reg.Put(t).Reference()
	t.Info.Key, t.Info.Task = self.Value, self
	f.tasks[self] = t
	busy, taken := f.busy[o.entity]
	if o.exclusive && !taken {
		f.busy[o.entity] = self
	}
	f.world.touch(self)
	f.world.mu.Unlock()

	f.work.Go(func() {
		defer cancel()
		if o.exclusive && taken {
			f.finish(t, nil, &types.TaskInProgress{Task: busy})
		} else {
			result, fault := f.perform(ctx, t, o, injected)
			f.world.lock(func() {
				if o.exclusive {
					delete(f.busy, o.entity)
				}
			})
			f.finish(t, result, fault)
		}
		if o.after != nil {
			o.after()
		}
	})
	return self
}

func (f *Front) describe(t *task, user string, o op) {
	now := time.Now().UTC()
	f.chain++
	t.Info = types.TaskInfo{
		Name:          strings.ToUpper(o.name[:1]) + o.name[1:] + "_Task",
		DescriptionId: fmt.Sprintf("%s.%s", o.entity.Type, o.name),
		Entity:        &o.entity,
		EntityName:    f.world.name(o.entity),
		State:         types.TaskInfoStateRunning,
		Cancelable:    o.cancelable,
		Reason:        &types.TaskReasonUser{UserName: user},
		QueueTime:     now,
		StartTime:     &now,
		EventChainId:  f.chain,
	}
}

// perform waits for the task's delay without the lock, and then does its work
// with the lock.
func (f *Front) perform(ctx context.Context, t *task, o op, injected types.BaseMethodFault) (any, types.BaseMethodFault) {
	if o.before != nil {
		o.before(ctx)
	}
	if o.check != nil {
		var fault types.BaseMethodFault
		f.world.lock(func() { fault = o.check() })
		if fault != nil {
			return nil, fault
		}
	}
	if d := f.delays.get(o.delay); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if injected != nil {
		return nil, injected
	}
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	if ctx.Err() != nil {
		return nil, &types.RequestCanceled{}
	}
	// Now it is too late to cancel.
	t.Info.Cancelable = false
	result, fault := o.run()
	if !o.reads {
		f.world.sweep()
	}
	return result, fault
}

func (f *Front) finish(t *task, result any, fault types.BaseMethodFault) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	now := time.Now().UTC()
	t.over = now
	t.Info.CompleteTime, t.Info.Cancelable = &now, false
	if fault != nil {
		t.Info.State = types.TaskInfoStateError
		t.Info.Error = &types.LocalizedMethodFault{Fault: fault, LocalizedMessage: faultName(fault)}
	} else {
		t.Info.State, t.Info.Progress = types.TaskInfoStateSuccess, 100
		t.Info.Result = result
	}
	f.world.touch(t.Self)
	f.expire(now.Add(-taskRetention))
}

// expire forgets tasks that ended before the given time. The caller holds the
// lock of the world.
func (f *Front) expire(before time.Time) int {
	n := 0
	for r, t := range f.tasks {
		if !t.over.IsZero() && t.over.Before(before) {
			delete(f.tasks, r)
			f.world.forget(r)
			n++
		}
	}
	return n
}
