package front

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Ways in which a vCenter can be unreachable.
const (
	outageRefuse      = "refuse"
	outageUnavailable = "unavailable"
	outageHang        = "hang"
)

// outage makes the vCenter unreachable for its clients for a while. The admin
// endpoint still works.
type outage struct {
	mu    sync.Mutex
	mode  string
	over  chan struct{} // closed when the outage ends
	timer *time.Timer
	begin *signal
}

func newOutage() *outage { return &outage{begin: newSignal()} }

func (o *outage) start(mode string, d time.Duration) error {
	switch mode {
	case outageRefuse, outageUnavailable, outageHang:
	default:
		return fmt.Errorf("unknown mode %q: use refuse, unavailable or hang", mode)
	}
	o.end()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mode, o.over = mode, make(chan struct{})
	o.timer = time.AfterFunc(d, o.end)
	o.begin.bump()
	return nil
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mode == "" {
		return
	}
	o.timer.Stop()
	o.mode = ""
	close(o.over)
}

func (o *outage) now() (mode string, over <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mode, o.over
}

// dropConnection ends the request without a reply.
func dropConnection() { panic(http.ErrAbortHandler) }

// unavailable is the answer of the proxy in front of a vCenter during a
// restart.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte("no healthy upstream"))
}

// guard serves h unless there is an outage. An outage also ends the requests
// that wait.
func (o *outage) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch mode, over := o.now(); mode {
		case outageRefuse:
			dropConnection()
		case outageUnavailable:
			unavailable(w)
			return
		case outageHang:
			select {
			case <-over:
				unavailable(w)
			case <-r.Context().Done():
			}
			return
		}
		ctx, cancel := cancelOn(r, o.begin)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}
