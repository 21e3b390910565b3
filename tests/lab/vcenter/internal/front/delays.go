package front

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// Kinds of work whose duration can be set.
const (
	delayCreate      = "create"
	delayPowerOn     = "powerOn"
	delayPowerOff    = "powerOff"
	delayReconfigure = "reconfigure"
	delayDestroy     = "destroy"
	delayFile        = "file"
)

// Delays is how long tasks take, by kind: create, powerOn, powerOff,
// reconfigure, destroy, file.
type Delays map[string]time.Duration

type delays struct {
	mu  sync.Mutex
	now Delays
}

func newDelays(d Delays) *delays {
	return &delays{now: maps.Clone(d)}
}

func (d *delays) get(kind string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now[kind]
}

// set changes the kinds named in change and returns all of them.
func (d *delays) set(change map[string]string) (map[string]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parsed := Delays{}
	for kind, text := range change {
		switch kind {
		case delayCreate, delayPowerOn, delayPowerOff, delayReconfigure, delayDestroy, delayFile:
		default:
			return nil, fmt.Errorf("unknown delay %q: use create, powerOn, powerOff, reconfigure, destroy or file", kind)
		}
		v, err := time.ParseDuration(text)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("delay %s: %q is not a duration such as \"3s\"", kind, text)
		}
		parsed[kind] = v
	}
	if d.now == nil {
		d.now = Delays{}
	}
	maps.Copy(d.now, parsed)
	out := map[string]string{}
	for _, kind := range []string{delayCreate, delayPowerOn, delayPowerOff, delayReconfigure, delayDestroy, delayFile} {
		out[kind] = d.now[kind].String()
	}
	return out, nil
}
