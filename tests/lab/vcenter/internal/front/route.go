package front

import (
	"log"
	"net/http"
	"strings"
	"time"
)

// routes is the whole server: the admin endpoint, which works during an outage,
// and the interfaces for clients.
func (f *Front) routes() http.Handler {
	admin := f.adminRoutes()
	client := f.outage.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, vimPrefix):
			f.serveVIM(w, r)
		case strings.HasPrefix(r.URL.Path, folderPrefix):
			f.serveFolder(w, r)
		case r.URL.Path == screenPath:
			f.serveScreen(w, r)
		case strings.HasPrefix(r.URL.Path, apiPrefix):
			f.serveREST(w, r)
		default:
			f.calls.add(r.Method + " " + r.URL.Path)
			http.NotFound(w, r)
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, adminPrefix) {
			admin.ServeHTTP(w, r)
			return
		}
		if !f.cfg.RequestLog {
			client.ServeHTTP(w, r)
			return
		}
		begin := time.Now()
		seen := &statusWriter{ResponseWriter: w}
		defer func() {
			log.Printf("%s %s %d %s", r.Method, r.URL.RequestURI(), seen.status, time.Since(begin).Round(time.Microsecond))
		}()
		client.ServeHTTP(seen, r)
	})
}

// statusWriter remembers the status for the request log. 0 is a dropped
// connection.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(p)
}
