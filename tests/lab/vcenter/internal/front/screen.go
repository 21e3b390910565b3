package front

import (
	"bytes"
	"image"
	"image/png"
	"net/http"
)

const (
	screenPath      = "/screen"
	screenPrivilege = "VirtualMachine.Interact.ConsoleInteract"
)

// serveScreen is the picture of a console: /screen?id={moref}.
func (f *Front) serveScreen(w http.ResponseWriter, r *http.Request) {
	name := r.Method + " " + screenPath
	f.calls.add(name)
	if hit := f.rules.match(name, ""); hit != nil && f.strikeHTTP(w, r, hit) {
		return
	}
	if !f.folderUser(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="VMware HTTP server"`)
		http.Error(w, "authentication needed: session cookie or Basic", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	if status := f.screenOf(ref{Type: "VirtualMachine", Value: r.URL.Query().Get("id")}); status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	var body bytes.Buffer
	if err := png.Encode(&body, image.NewGray(image.Rect(0, 0, 8, 4))); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	_, _ = w.Write(body.Bytes())
}

// screenOf is the status of a refusal, or 0.
func (f *Front) screenOf(r ref) int {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	vm, fault := f.world.vm(r)
	switch {
	case fault != nil:
		return http.StatusNotFound
	case f.denied(screenPrivilege, r) != nil:
		return http.StatusForbidden
	case vm.Runtime.PowerState != on:
		return http.StatusNotFound
	}
	return 0
}
