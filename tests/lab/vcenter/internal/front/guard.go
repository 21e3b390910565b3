package front

import (
	"fmt"
	"log"
	"maps"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// taskGuard watches the simulator's tasks. It turns a panic in a task's
// goroutine, which would end the process, into a fault. It also reports when a
// task is over.
type taskGuard struct {
	mu    sync.Mutex
	tasks map[ref]*guarded
}

type guarded struct {
	done chan struct{}
	info types.TaskInfo
}

func newTaskGuard() *taskGuard {
	return &taskGuard{tasks: map[ref]*guarded{}}
}

// Reference names the guard in the simulator's list of handlers.
func (g *taskGuard) Reference() ref {
	return ref{Type: "TaskGuard", Value: "front"}
}

// PutObject sees each task before it runs.
func (g *taskGuard) PutObject(_ *simulator.Context, obj mo.Reference) {
	task, ok := obj.(*simulator.Task)
	if !ok {
		return
	}
	run := task.Execute
	task.Execute = func(t *simulator.Task) (result types.AnyType, fault types.BaseMethodFault) {
		defer func() {
			if p := recover(); p != nil {
				log.Printf("simulator: task %s: %v", t.Info.Name, p)
				result, fault = nil, systemError(fmt.Sprintf("%s: %v", t.Info.Name, p))
			}
		}()
		return run(t)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tasks[task.Reference()] = &guarded{done: make(chan struct{})}
}

// UpdateObject sees a task's last change of state.
func (g *taskGuard) UpdateObject(_ *simulator.Context, obj mo.Reference, _ []types.PropertyChange) {
	task, ok := obj.(*mo.Task)
	if !ok {
		return
	}
	if task.Info.State != types.TaskInfoStateSuccess && task.Info.State != types.TaskInfoStateError {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.tasks[task.Self]; t != nil {
		t.info = task.Info
		close(t.done)
	}
}

// RemoveObject does nothing, because settle forgets the tasks.
func (g *taskGuard) RemoveObject(*simulator.Context, ref) {}

func (g *taskGuard) wait(task ref) types.TaskInfo {
	g.mu.Lock()
	t := g.tasks[task]
	g.mu.Unlock()
	<-t.done
	return t.info
}

// settle waits for every task that the last call started, including those that
// it did not wait for. Then it forgets them.
func (g *taskGuard) settle() []ref {
	var settled []ref
	for {
		g.mu.Lock()
		pending := maps.Clone(g.tasks)
		g.mu.Unlock()
		if len(pending) == 0 {
			return settled
		}
		for r, t := range pending {
			<-t.done
			settled = append(settled, r)
			g.mu.Lock()
			delete(g.tasks, r)
			g.mu.Unlock()
		}
	}
}
