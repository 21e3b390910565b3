package front

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

const folderPrefix = "/folder/"

// serveFolder is the datastore file service:
// /folder/{path}?dcPath={datacenter}&dsName={datastore}.
func (f *Front) serveFolder(w http.ResponseWriter, r *http.Request) {
	name := r.Method + " /folder"
	f.calls.add(name)
	hit := f.rules.match(name, "")
	if hit != nil && f.strikeHTTP(w, r, hit) {
		return
	}
	if hit != nil && hit.At == atLostReply {
		f.folder(discard{header: http.Header{}}, r)
		dropConnection()
	}
	f.folder(w, r)
}

// discard is a reply that is not sent.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func (f *Front) folder(w http.ResponseWriter, r *http.Request) {
	if !f.folderUser(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="VMware HTTP server"`)
		http.Error(w, "authentication needed: session cookie or Basic", http.StatusUnauthorized)
		return
	}
	at, status := f.folderPath(r)
	if status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		f.download(w, r, at)
	case http.MethodPut:
		f.upload(w, r, at)
	case http.MethodDelete:
		f.world.mu.Lock()
		fault := f.world.deletePath(at)
		f.world.mu.Unlock()
		f.world.inventory.bump()
		switch fault.(type) {
		case nil:
			w.WriteHeader(http.StatusNoContent)
		case *types.FileNotFound:
			http.NotFound(w, r)
		default:
			http.Error(w, faultName(fault), http.StatusInternalServerError)
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
		http.Error(w, "use GET, HEAD, PUT or DELETE", http.StatusMethodNotAllowed)
	}
}

// folderUser accepts the password or, unless it is configured otherwise, the
// cookie of a session.
func (f *Front) folderUser(r *http.Request) bool {
	if cookie, err := r.Cookie(soapCookie); err == nil && !f.cfg.FolderBasicOnly {
		if f.sessions.get(strings.Trim(cookie.Value, `"`), f.vimKinds()...) != nil {
			return true
		}
	}
	user, password, ok := r.BasicAuth()
	if ok && !f.sessions.valid(user, password) {
		f.calls.login("refused")
		return false
	}
	return ok
}

// folderPath finds the file, or the status of the refusal.
func (f *Front) folderPath(r *http.Request) (location, int) {
	w := f.world
	w.mu.Lock()
	defer w.mu.Unlock()
	q := r.URL.Query()
	dc := w.model.ServiceContent.RootFolder
	for _, name := range strings.FieldsFunc(q.Get("dcPath"), func(c rune) bool { return c == '/' }) {
		next, ok := w.child(dc, name)
		if !ok {
			return location{}, http.StatusNotFound
		}
		dc = next
	}
	name := strings.TrimPrefix(r.URL.Path, folderPrefix)
	at, fault := w.resolve(&dc, "["+q.Get("dsName")+"] "+name)
	switch fault.(type) {
	case nil:
	case *types.InvalidDatastorePath:
		return location{}, http.StatusBadRequest
	default:
		return location{}, http.StatusNotFound
	}
	privilege := browsePrivilege
	if r.Method == http.MethodPut || r.Method == http.MethodDelete {
		privilege = filePrivilege
	}
	if f.denied(privilege, at.ds.Self) != nil {
		return location{}, http.StatusForbidden
	}
	return at, 0
}

func (f *Front) download(w http.ResponseWriter, r *http.Request, at location) {
	file, err := os.Open(at.file)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), file)
}

// upload writes the body to the file. A body that ends early leaves a partial
// file.
func (f *Front) upload(w http.ResponseWriter, r *http.Request, at location) {
	parent, err := os.Stat(filepath.Dir(at.file))
	if err != nil || !parent.IsDir() || at.path.Path == "" {
		http.NotFound(w, r)
		return
	}
	f.world.mu.Lock()
	locked := f.world.locked(at)
	f.world.mu.Unlock()
	if locked != nil {
		http.Error(w, faultName(locked), http.StatusInternalServerError)
		return
	}
	_, missing := os.Stat(at.file)
	file, err := os.OpenFile(at.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		http.Error(w, "cannot create "+at.path.String(), http.StatusInternalServerError)
		return
	}
	_, err = io.Copy(file, r.Body)
	if closing := file.Close(); err == nil {
		err = closing
	}
	f.world.inventory.bump()
	switch {
	case err != nil:
		http.Error(w, "the body ended early", http.StatusBadRequest)
	case missing != nil:
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusOK)
	}
}
