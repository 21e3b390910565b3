// Package front serves a simulated vCenter to REST clients. It has the VI/JSON
// API, the parts of the Automation API that a VM provisioner needs, the
// datastore file service, and an admin endpoint for tests. govmomi's simulator
// has the inventory and the device logic. The front itself has sessions, tasks,
// the property collector, placement, files and tags.
package front

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// Config has the settings of a simulated vCenter.
type Config struct {
	Username, Password string
	Delays             Delays
	// Hosts of the cluster, and datastores of the datastore cluster.
	Hosts, PodDatastores int
	NoDRS                bool
	// APIRelease is the newest served release, one of Releases.
	APIRelease string
	// ShareSessions makes one session valid for both APIs.
	ShareSessions bool
	// FolderBasicOnly makes the file service accept only user and password, and no
	// session.
	FolderBasicOnly bool
	RequestLog      bool
}

// Releases are the known releases of the VI/JSON API, newest first.
var Releases = []string{"9.1.0.0", "9.0.0.0", "8.0.3.0", "8.0.2.0", "8.0.1.0"}

// Front is one simulated vCenter.
type Front struct {
	cfg         Config
	world       *world
	sessions    *sessions
	delays      *delays
	calls       *callCount
	rules       *rules
	outage      *outage
	permissions *permissions
	tags        *tagging
	handler     http.Handler

	// ctx ends with the front; work counts its goroutines.
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	// The world's lock protects these.
	tasks   map[ref]*task
	busy    map[ref]ref
	names   map[string]chan struct{}
	placed  map[string]placement
	trays   map[ref]*tray
	chain   int32
	nextMAC uint32
	nextRec int
}

// New builds the inventory. Close ends it.
func New(cfg Config) (*Front, error) {
	if !slices.Contains(Releases, cfg.APIRelease) {
		return nil, fmt.Errorf("unknown release %q: known are %v", cfg.APIRelease, Releases)
	}
	if cfg.Hosts < 1 || cfg.PodDatastores < 0 {
		return nil, fmt.Errorf("a cluster needs a host: got %d hosts and %d datastores", cfg.Hosts, cfg.PodDatastores)
	}
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	f := &Front{
		cfg:         cfg,
		world:       w,
		sessions:    newSessions(cfg.Username, cfg.Password),
		delays:      newDelays(cfg.Delays),
		calls:       newCallCount(),
		rules:       newRules(),
		outage:      newOutage(),
		permissions: &permissions{},
		tasks:       map[ref]*task{},
		busy:        map[ref]ref{},
		names:       map[string]chan struct{}{},
		placed:      map[string]placement{},
		trays:       map[ref]*tray{},
	}
	f.tags = newTagging(w)
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.handler = f.routes()
	return f, nil
}

// ServeHTTP serves clients and the admin endpoint.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.handler.ServeHTTP(w, r)
}

// Close ends everything that runs and deletes the datastores' files.
func (f *Front) Close() {
	f.stop()
	f.outage.end()
	f.rules.clear()
	f.work.Wait()
	f.world.lock(f.world.remove)
}
