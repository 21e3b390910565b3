package front

import (
	"context"
	"encoding/json"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// A guest can lock the tray of its CD-ROM drive. If a client then removes the
// medium, the VM asks a question, and the task waits for the answer.

// trayQuestion is the message id of the question.
const trayQuestion = "msg.cdromdisconnect.locked"

// tray is the lock of one VM's drive.
type tray struct {
	// answer gets the choice, once.
	answer chan string
}

// lockTray locks the tray of a VM's drive. The caller holds the lock of the
// world.
func (f *Front) lockTray(vm ref) {
	f.trays[vm] = &tray{answer: make(chan string, 1)}
}

// takesMedium reports whether a change disconnects or empties a drive that has
// an image. The caller holds the lock of the world.
func takesMedium(vm *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) bool {
	have := object.VirtualDeviceList(vm.Config.Hardware.Device)
	for _, change := range changes {
		d := change.GetVirtualDeviceConfigSpec()
		old := have.FindByKey(d.Device.GetVirtualDevice().Key)
		if _, ok := old.(*types.VirtualCdrom); !ok || d.Operation == types.VirtualDeviceConfigSpecOperationAdd {
			continue
		}
		if _, iso := old.GetVirtualDevice().Backing.(*types.VirtualCdromIsoBackingInfo); iso {
			return true
		}
	}
	return false
}

// askTray asks before the medium is removed from a locked drive, and returns
// after the answer. It refuses the change if the answer is no.
func (f *Front) askTray(ctx context.Context, r ref, changes []types.BaseVirtualDeviceConfigSpec) types.BaseMethodFault {
	var locked *tray
	f.world.lock(func() {
		vm, fault := f.world.vm(r)
		if fault != nil || vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn || !takesMedium(vm, changes) {
			return
		}
		if locked = f.trays[r]; locked != nil {
			vm.Runtime.Question = question()
			f.world.touch(r)
		}
	})
	if locked == nil {
		return nil
	}
	choice := ""
	select {
	case choice = <-locked.answer:
	case <-ctx.Done():
	}
	f.world.lock(func() {
		delete(f.trays, r)
		if vm, fault := f.world.vm(r); fault == nil {
			vm.Runtime.Question = nil
			f.world.touch(r)
		}
	})
	if choice != "0" {
		return &types.GenericVmConfigFault{Reason: "the CD-ROM drive is locked by the guest"}
	}
	return nil
}

func question() *types.VirtualMachineQuestionInfo {
	choice := func(key, label string) types.BaseElementDescription {
		return &types.ElementDescription{Key: key, Description: types.Description{Label: label, Summary: label}}
	}
	text := "The guest operating system has locked the CD-ROM door and is probably using the CD-ROM. Disconnect anyway and override the lock?"
	return &types.VirtualMachineQuestionInfo{
		Id: "1", Text: trayQuestion + ":" + text,
		Choice:  types.ChoiceOption{ChoiceInfo: []types.BaseElementDescription{choice("0", "button.yes"), choice("1", "button.no")}, DefaultIndex: 1},
		Message: []types.VirtualMachineMessage{{Id: trayQuestion, Text: text}},
	}
}

// answerVM answers the question of a VM.
func (c *call) answerVM() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.AnswerVM)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	vm, fault := c.f.world.vm(c.this)
	if fault != nil {
		return nil, fault
	}
	locked := c.f.trays[c.this]
	if vm.Runtime.Question == nil || vm.Runtime.Question.Id != req.QuestionId || locked == nil {
		return nil, &types.InvalidArgument{InvalidProperty: "questionId"}
	}
	select {
	case locked.answer <- req.AnswerChoice:
	default:
	}
	return nil, nil
}
