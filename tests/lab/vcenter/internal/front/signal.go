package front

import "sync"

// signal is a counter that can be waited for.
type signal struct {
	mu   sync.Mutex
	n    uint64
	next chan struct{}
}

func newSignal() *signal {
	return &signal{n: 1, next: make(chan struct{})}
}

// bump increments the count, wakes all waiters, and returns the new count.
func (s *signal) bump() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	close(s.next)
	s.next = make(chan struct{})
	return s.n
}

// now returns the count and a channel that is closed by the next bump.
func (s *signal) now() (uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, s.next
}
