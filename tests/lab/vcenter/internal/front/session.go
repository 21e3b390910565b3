package front

import (
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Kinds of sessions in the admin endpoint.
const (
	kindVIM  = "vim"
	kindREST = "rest"
)

// session is one login. The objects that a client creates in it (views,
// filters, property collectors) end with it. The world's lock protects them.
type session struct {
	id, user, agent, kind string
	login                 time.Time
	done                  chan struct{}
	objects               map[ref]any
	pages                 map[string]*page

	lastCall time.Time // guarded by sessions.mu
}

type sessions struct {
	mu       sync.Mutex
	username string
	password string
	live     map[string]*session
}

func newSessions(username, password string) *sessions {
	return &sessions{username: username, password: password, live: map[string]*session{}}
}

func (s *sessions) valid(user, password string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := subtle.ConstantTimeCompare([]byte(user), []byte(s.username))
	p := subtle.ConstantTimeCompare([]byte(password), []byte(s.password))
	return u&p == 1
}

func (s *sessions) setPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.password = password
}

func (s *sessions) open(kind, user, agent string) *session {
	now := time.Now().UTC()
	n := &session{
		id: uuid.NewString(), user: user, agent: agent, kind: kind, login: now, lastCall: now,
		done: make(chan struct{}), objects: map[ref]any{}, pages: map[string]*page{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[n.id] = n
	return n
}

// get returns a live session of one of the kinds and records the time of the
// call.
func (s *sessions) get(id string, kinds ...string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.live[id]
	if found == nil || !slices.Contains(kinds, found.kind) {
		return nil
	}
	found.lastCall = time.Now().UTC()
	return found
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.live[id]; found != nil {
		delete(s.live, id)
		close(found.done)
	}
}

func (s *sessions) endAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.live)
	for id, found := range s.live {
		delete(s.live, id)
		close(found.done)
	}
	return n
}

type sessionView struct {
	ID        string    `json:"id"`
	User      string    `json:"user"`
	UserAgent string    `json:"userAgent"`
	Kind      string    `json:"kind"`
	LastCall  time.Time `json:"lastCall"`
}

func (s *sessions) list() []sessionView {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []sessionView{}
	for _, v := range s.live {
		out = append(out, sessionView{v.id, v.user, v.agent, v.kind, v.lastCall})
	}
	slices.SortFunc(out, func(a, b sessionView) int { return a.LastCall.Compare(b.LastCall) })
	return out
}

const sessionHeader = "vmware-api-session-id"

// soapCookie is the session cookie of the SOAP API, which the file service
// under /folder accepts.
const soapCookie = "vmware_soap_session"

func (f *Front) vimSession(r *http.Request) *session {
	return f.sessions.get(r.Header.Get(sessionHeader), f.vimKinds()...)
}

// vimKinds are the kinds of sessions that the VI/JSON API accepts, restKinds
// those of the Automation API. They differ unless sessions are shared.
func (f *Front) vimKinds() []string {
	if f.cfg.ShareSessions {
		return []string{kindVIM, kindREST}
	}
	return []string{kindVIM}
}

func (f *Front) restKinds() []string {
	if f.cfg.ShareSessions {
		return []string{kindVIM, kindREST}
	}
	return []string{kindREST}
}
