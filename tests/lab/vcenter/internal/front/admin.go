package front

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const adminPrefix = "/_admin/"

// adminRoutes is the endpoint for tests. It needs no authentication and works
// during an outage.
func (f *Front) adminRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_admin/inventory", f.adminInventory)
	mux.HandleFunc("GET /_admin/calls", func(w http.ResponseWriter, _ *http.Request) {
		writeValue(w, http.StatusOK, f.calls.view())
	})
	mux.HandleFunc("DELETE /_admin/calls", func(w http.ResponseWriter, _ *http.Request) {
		f.calls.reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_admin/faults", f.adminAddRule)
	mux.HandleFunc("GET /_admin/faults", func(w http.ResponseWriter, _ *http.Request) {
		writeValue(w, http.StatusOK, f.rules.list())
	})
	mux.HandleFunc("DELETE /_admin/faults", func(w http.ResponseWriter, _ *http.Request) {
		f.rules.clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_admin/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if !f.rules.remove(r.PathValue("id")) {
			adminError(w, http.StatusNotFound, "no such rule")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_admin/sessions/kill", func(w http.ResponseWriter, _ *http.Request) {
		writeValue(w, http.StatusOK, map[string]int{"killed": f.sessions.endAll()})
	})
	mux.HandleFunc("POST /_admin/password", f.adminPassword)
	mux.HandleFunc("POST /_admin/outage", f.adminOutage)
	mux.HandleFunc("POST /_admin/delays", f.adminDelays)
	mux.HandleFunc("POST /_admin/permissions", f.adminPermissions)
	mux.HandleFunc("POST /_admin/tasks/expire", f.adminExpire)
	mux.HandleFunc("POST /_admin/datastores/{name}", f.adminDatastore)
	mux.HandleFunc("GET /_admin/datastores/{name}/files/{path...}", f.adminFile)
	mux.HandleFunc("POST /_admin/folders/delete", f.adminDeleteFolder)
	mux.HandleFunc("POST /_admin/vms", f.adminCreateVM)
	mux.HandleFunc("POST /_admin/vms/{moref}/{action}", f.adminVM)
	return mux
}

func adminError(w http.ResponseWriter, status int, text string) {
	writeValue(w, status, map[string]string{"error": text})
}

// readAdmin decodes a body. An empty body is an empty object.
func readAdmin(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil && len(body) > 0 {
		err = strict(body, into)
	}
	if err != nil {
		adminError(w, http.StatusBadRequest, err.Error())
	}
	return err == nil
}

func (f *Front) adminAddRule(w http.ResponseWriter, r *http.Request) {
	var n struct {
		Method string          `json:"method"`
		At     string          `json:"at"`
		Fault  json.RawMessage `json:"fault"`
		Status int             `json:"status"`
		Count  int             `json:"count"`
		Skip   int             `json:"skip"`
		VMName string          `json:"vmName"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	made := &rule{Method: n.Method, At: n.At, Fault: n.Fault, Status: n.Status, Count: n.Count, Skip: n.Skip, VMName: n.VMName}
	if err := f.rules.add(made); err != nil {
		adminError(w, http.StatusBadRequest, err.Error())
		return
	}
	writeValue(w, http.StatusOK, map[string]string{"id": made.ID})
}

func (f *Front) adminPassword(w http.ResponseWriter, r *http.Request) {
	var n struct {
		Password string `json:"password"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	f.sessions.setPassword(n.Password)
	w.WriteHeader(http.StatusNoContent)
}

func (f *Front) adminOutage(w http.ResponseWriter, r *http.Request) {
	var n struct {
		Mode    string  `json:"mode"`
		Seconds float64 `json:"seconds"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	if n.Seconds <= 0 {
		f.outage.end()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := f.outage.start(n.Mode, time.Duration(n.Seconds*float64(time.Second))); err != nil {
		adminError(w, http.StatusBadRequest, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Front) adminDelays(w http.ResponseWriter, r *http.Request) {
	change := map[string]string{}
	if !readAdmin(w, r, &change) {
		return
	}
	now, err := f.delays.set(change)
	if err != nil {
		adminError(w, http.StatusBadRequest, err.Error())
		return
	}
	writeValue(w, http.StatusOK, now)
}

func (f *Front) adminPermissions(w http.ResponseWriter, r *http.Request) {
	var n struct {
		Deny []denial `json:"deny"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	f.permissions.set(n.Deny)
	w.WriteHeader(http.StatusNoContent)
}

// adminExpire forgets all finished tasks, as a vCenter does after a while.
func (f *Front) adminExpire(w http.ResponseWriter, _ *http.Request) {
	f.world.mu.Lock()
	n := f.expire(time.Now().UTC().Add(time.Second))
	f.world.mu.Unlock()
	writeValue(w, http.StatusOK, map[string]int{"expired": n})
}

// adminDatastore changes the state that a datastore shows.
func (f *Front) adminDatastore(w http.ResponseWriter, r *http.Request) {
	var n struct {
		FreeBytes   *int64 `json:"freeBytes"`
		Maintenance *bool  `json:"maintenance"`
		Accessible  *bool  `json:"accessible"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	ds := f.world.datastoreNamed(f.world.sites.datacenter, r.PathValue("name"))
	if ds == nil {
		adminError(w, http.StatusNotFound, fmt.Sprintf("no datastore %q", r.PathValue("name")))
		return
	}
	if n.FreeBytes != nil {
		ds.Summary.FreeSpace = *n.FreeBytes
		ds.Info.GetDatastoreInfo().FreeSpace = *n.FreeBytes
	}
	if n.Maintenance != nil {
		ds.Summary.MaintenanceMode = "normal"
		if *n.Maintenance {
			ds.Summary.MaintenanceMode = "inMaintenance"
		}
	}
	if n.Accessible != nil {
		ds.Summary.Accessible = *n.Accessible
	}
	f.world.sweep()
	w.WriteHeader(http.StatusNoContent)
}

// adminFile serves a datastore file to the played guests, which read the medium
// in their CD drive.
func (f *Front) adminFile(w http.ResponseWriter, r *http.Request) {
	f.world.mu.Lock()
	dc := f.world.sites.datacenter
	at, fault := f.world.resolve(&dc, "["+r.PathValue("name")+"] "+r.PathValue("path"))
	f.world.mu.Unlock()
	if fault != nil {
		adminError(w, http.StatusNotFound, fmt.Sprintf("no file [%s] %s", r.PathValue("name"), r.PathValue("path")))
		return
	}
	f.download(w, r, at)
}
