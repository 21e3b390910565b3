package front

import (
	"context"
	"errors"
	"net/http"
)

// errOutage is the cause of a request that an outage ended.
var errOutage = errors.New("outage")

// cancelOn returns the request's context. It also ends at the next bump of s.
func cancelOn(r *http.Request, s *signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	_, next := s.now()
	left := make(chan struct{})
	go func() {
		select {
		case <-next:
			cancel(errOutage)
		case <-left:
		}
	}()
	return ctx, func() { close(left); cancel(nil) }
}
