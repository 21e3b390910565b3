package front

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"agent-forge.containeroo.ch/lab/vcenter/internal/wire"
)

const vimPrefix = "/sdk/vim25/"

// maxBody limits a request's JSON.
const maxBody = 16 << 20

// serveVIM serves /sdk/vim25/{release}/{type}/{id}/{method or property}.
func (f *Front) serveVIM(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, vimPrefix), "/")
	if len(parts) != 4 || slices.Contains(parts, "") {
		f.calls.add(r.Method + " " + vimPrefix)
		http.NotFound(w, r)
		return
	}
	c := &call{
		f: f, ctx: r.Context(), agent: r.UserAgent(),
		release: parts[0], this: ref{Type: parts[1], Value: parts[2]}, method: parts[3],
	}
	name := c.method
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet:
		name = "GET " + c.method
	default:
		f.calls.add(r.Method + " " + vimPrefix)
		http.Error(w, "use GET for a property, POST for a method", http.StatusMethodNotAllowed)
		return
	}
	f.calls.add(name)
	if !f.serves(c.release) {
		http.NotFound(w, r)
		return
	}
	c.s = f.vimSession(r)
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		writeFault(w, invalidRequest("body: "+err.Error()))
		return
	}
	prepare, run := c.prepareCall, c.runCall
	if r.Method == http.MethodGet {
		prepare, run = c.prepareGet, c.runGet
	}
	fault := prepare(body)
	if fault != nil && !isMissingSession(fault) {
		// A malformed call is refused before any rule applies.
		writeFault(w, fault)
		return
	}
	hit := f.rules.match(name, c.vmName())
	if hit != nil && f.strike(w, r, hit) {
		return
	}
	if fault != nil {
		writeFault(w, fault)
		return
	}
	if hit != nil && hit.At == atTask {
		c.taskFault = hit.fault
	}
	reply, fault := run()
	if hit != nil && hit.At == atLostReply || errors.Is(context.Cause(r.Context()), errOutage) {
		dropConnection()
	}
	if c.opened != nil {
		w.Header().Set(sessionHeader, c.opened.id)
	}
	if fault != nil {
		writeFault(w, fault)
		return
	}
	writeJSON(w, reply)
}

// serves reports whether the release is not newer than the configured one.
func (f *Front) serves(release string) bool {
	i := slices.Index(Releases, release)
	return i >= 0 && i >= slices.Index(Releases, f.cfg.APIRelease)
}

func isMissingSession(fault types.BaseMethodFault) bool {
	_, ok := fault.(*types.NotAuthenticated)
	return ok
}

// strike applies a rule that replaces the call's reply.
func (f *Front) strike(w http.ResponseWriter, r *http.Request, hit *rule) bool {
	switch hit.At {
	case atCall:
		writeFault(w, hit.fault)
	case atHTTP:
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(hit.Status)
		_, _ = w.Write([]byte("upstream error"))
	case atHang:
		select {
		case <-hit.release:
			unavailable(w)
		case <-r.Context().Done():
		}
	default:
		return false
	}
	return true
}

// prepareCall authenticates and decodes a method call.
func (c *call) prepareCall(body []byte) types.BaseMethodFault {
	if c.s == nil && !anonymous[c.method] {
		return notAuthenticated(c.this, "System.View")
	}
	req, err := wire.Request(c.method, body, c.release)
	if errors.Is(err, wire.ErrUnknownMethod) {
		return &types.MethodNotFound{Receiver: c.this, Method: c.method}
	}
	if err != nil {
		return invalidRequest(err.Error())
	}
	if m, ok := methods[c.method]; ok && m.on != "" && m.on != c.this.Type {
		return &types.MethodNotFound{Receiver: c.this, Method: c.method}
	}
	c.req = req
	reflect.ValueOf(req).Elem().FieldByName("This").Set(reflect.ValueOf(c.this))
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	if !c.f.exists(c.s, c.this) {
		return &types.ManagedObjectNotFound{Obj: c.this}
	}
	if !unresolved[c.method] {
		if fault := c.refsExist(reflect.ValueOf(req)); fault != nil {
			return fault
		}
	}
	return c.permitted()
}

func (c *call) runCall() (reply json.RawMessage, fault types.BaseMethodFault) {
	defer func() {
		if p := recover(); p != nil {
			log.Printf("front: %s.%s: %v", c.this, c.method, p)
			reply, fault = nil, systemError(c.method+": internal error")
		}
	}()
	if m, ok := methods[c.method]; ok {
		return m.serve(c)
	}
	return c.simulated()
}

// refused methods of the simulator could access the machine that it runs on,
// with local paths or with configurations that start containers. Others would
// wait inside the simulator for more tasks.
var refused = map[string]bool{
	"CloneVM_Task": true, "InstantClone_Task": true, "CreateChildVM_Task": true, "RegisterVM_Task": true,
	"CreateVApp": true, "ImportVApp": true, "CreateLocalDatastore": true, "CreateNasDatastore": true,
	"MoveIntoFolder_Task": true, "RelocateVM_Task": true,
}

// simulated passes a call to the simulator.
func (c *call) simulated() (json.RawMessage, types.BaseMethodFault) {
	if refused[c.method] {
		return nil, &types.NotSupported{}
	}
	if strings.HasSuffix(c.method, "_Task") {
		name := strings.TrimSuffix(c.method, "_Task")
		return declared(c.start(op{
			name: strings.ToLower(name[:1]) + name[1:], entity: c.this, exclusive: c.this.Type == "VirtualMachine",
			run: func() (any, types.BaseMethodFault) { return c.f.world.run(c.this, c.method, c.req) },
		}))
	}
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	result, fault := c.f.world.call(c.this, c.method, c.req)
	if fault != nil {
		return nil, fault
	}
	c.f.world.sweep()
	return declared(result)
}

// vmName is the name of the VM of a call, for rules.
func (c *call) vmName() string {
	if req, ok := c.req.(*types.CreateVM_Task); ok {
		return req.Config.Name
	}
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	switch c.this.Type {
	case "VirtualMachine":
		return c.f.world.name(c.this)
	case "Task":
		if t := c.f.tasks[c.this]; t != nil {
			return t.Info.EntityName
		}
	}
	return ""
}
