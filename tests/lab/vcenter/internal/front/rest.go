package front

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

const apiPrefix = "/api/"

// restError answers as the Automation API does.
func restError(w http.ResponseWriter, status int, kind, text string) {
	writeValue(w, status, map[string]any{
		"error_type": kind,
		"messages": []map[string]any{{
			"id": "com.vmware.vapi." + strings.ToLower(kind), "default_message": text, "args": []string{},
		}},
	})
}

// serveREST serves the Automation API.
func (f *Front) serveREST(w http.ResponseWriter, r *http.Request) {
	name := restName(r)
	f.calls.add(name)
	hit := f.rules.match(name, "")
	if hit != nil && f.strikeHTTP(w, r, hit) {
		return
	}
	if hit != nil && hit.At == atLostReply {
		f.rest(discard{header: http.Header{}}, r)
		dropConnection()
	}
	f.rest(w, r)
}

// strikeHTTP applies a rule outside the VI/JSON API.
func (f *Front) strikeHTTP(w http.ResponseWriter, r *http.Request, hit *rule) bool {
	if hit.At != atCall {
		return f.strike(w, r, hit)
	}
	switch hit.fault.(type) {
	case *types.NotAuthenticated, *types.InvalidLogin:
		restError(w, http.StatusUnauthorized, "UNAUTHENTICATED", faultName(hit.fault))
	case *types.NoPermission:
		restError(w, http.StatusForbidden, "UNAUTHORIZED", faultName(hit.fault))
	default:
		restError(w, http.StatusInternalServerError, "ERROR", faultName(hit.fault))
	}
	return true
}

// restName is the name of a request for counts and rules: method, path
// without ids, action.
func restName(r *http.Request) string {
	path := r.URL.Path
	for prefix, id := range map[string]string{
		"/api/cis/tagging/category/": "{category_id}", "/api/cis/tagging/tag/": "{tag_id}",
		"/api/cis/tagging/tag-association/": "{tag_id}",
	} {
		if strings.HasPrefix(path, prefix) {
			path = prefix + id
		}
	}
	if action := r.URL.Query().Get("action"); action != "" {
		path += "?action=" + action
	}
	return r.Method + " " + path
}

func (f *Front) rest(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/api/vcenter/system":
		f.hello(w, r)
		return
	case r.URL.Path == "/api/session":
		f.restSession(w, r)
		return
	}
	s := f.sessions.get(r.Header.Get(sessionHeader), f.restKinds()...)
	if s == nil {
		restError(w, http.StatusUnauthorized, "UNAUTHENTICATED", "Authentication required.")
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/cis/tagging/"); ok {
		f.serveTagging(w, r, rest)
		return
	}
	restError(w, http.StatusNotFound, "NOT_FOUND", "no such operation")
}

// restSession opens, shows and closes a session of the Automation API.
func (f *Front) restSession(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	s := f.sessions.get(id, f.restKinds()...)
	switch r.Method {
	case http.MethodPost:
		user, password, ok := r.BasicAuth()
		if !ok || !f.sessions.valid(user, password) {
			f.calls.login("refused")
			restError(w, http.StatusUnauthorized, "UNAUTHENTICATED", "Authentication failed.")
			return
		}
		f.calls.login(kindREST)
		n := f.sessions.open(kindREST, user, r.UserAgent())
		w.Header().Set(sessionHeader, n.id)
		writeValue(w, http.StatusCreated, n.id)
	case http.MethodGet:
		if s == nil {
			restError(w, http.StatusUnauthorized, "UNAUTHENTICATED", "Authentication required.")
			return
		}
		writeValue(w, http.StatusOK, map[string]any{"user": s.user, "created_time": s.login, "last_accessed_time": s.login})
	case http.MethodDelete:
		if s == nil {
			restError(w, http.StatusUnauthorized, "UNAUTHENTICATED", "Authentication required.")
			return
		}
		f.sessions.end(id)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// hello negotiates the release: the first served one of the client's list. It
// exists since 8.0.2.0.
func (f *Front) hello(w http.ResponseWriter, r *http.Request) {
	if f.cfg.APIRelease == "8.0.1.0" || r.Method != http.MethodPost || r.URL.Query().Get("action") != "hello" {
		http.NotFound(w, r)
		return
	}
	var ask struct {
		Releases []string `json:"api_releases"`
	}
	if !readREST(w, r, &ask) {
		return
	}
	if len(ask.Releases) == 0 {
		restError(w, http.StatusBadRequest, "INVALID_ARGUMENT", "api_releases is empty")
		return
	}
	chosen := ""
	for _, release := range ask.Releases {
		if f.serves(release) {
			chosen = release
			break
		}
	}
	writeValue(w, http.StatusOK, map[string]string{"api_release": chosen})
}

// readREST decodes a body strictly.
func readREST(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		err = strict(body, into)
	}
	if err != nil {
		restError(w, http.StatusBadRequest, "INVALID_ARGUMENT", err.Error())
		return false
	}
	return true
}

func strict(body []byte, into any) error {
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}
