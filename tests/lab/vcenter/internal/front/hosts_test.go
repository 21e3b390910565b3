package front

import (
	"slices"
	"strings"
	"testing"
)

// The values that a client reads to choose a host without DRS.
func TestHostsShowWhatTheySee(t *testing.T) {
	l := loggedIn(t, func(c *Config) { c.NoDRS = true })
	hosts := must(decodeList(l.get(l.find("/dc1/host/cluster"), "host")))
	if len(hosts) != 3 {
		t.Fatalf("hosts: %v", hosts)
	}
	names := func(on ref, property string) []string {
		var out []string
		for _, r := range must(decodeList(l.get(on, property))) {
			name := unquote(l.get(ref{Type: r["type"].(string), Value: r["value"].(string)}, "name"))
			// The name of the switch's own portgroup ends with a number.
			if uplinks := "dvs-DVUplinks"; strings.HasPrefix(name, uplinks) {
				name = uplinks
			}
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	for _, c := range []struct {
		path     string
		stores   []string
		networks []string
	}{
		{"/dc1/host/cluster/host-0", []string{"ds-0", "ds-1", "ds-2", "iso-datastore", "local-only"}, []string{"VM Network", "dvpg-0", "dvs-DVUplinks"}},
		{"/dc1/host/cluster/host-1", []string{"ds-0", "ds-1", "ds-2", "iso-datastore"}, []string{"VM Network", "dvpg-0", "dvs-DVUplinks"}},
		{"/dc1/host/outside-host/outside-host", []string{"unmounted-iso"}, []string{"VM Network"}},
	} {
		host := l.find(c.path)
		if got := names(host, "datastore"); !slices.Equal(got, c.stores) {
			t.Errorf("%s: datastores %v", c.path, got)
		}
		if got := names(host, "network"); !slices.Equal(got, c.networks) {
			t.Errorf("%s: networks %v", c.path, got)
		}
		runtime := l.get(host, "runtime").object(t)
		if runtime["connectionState"] != "connected" || runtime["inMaintenanceMode"] != false {
			t.Errorf("%s: runtime %v", c.path, runtime)
		}
	}
	if got := names(l.find("/dc1/host/cluster"), "datastore"); !slices.Equal(got, []string{"ds-0", "ds-1", "ds-2", "iso-datastore", "local-only"}) {
		t.Errorf("cluster: datastores %v", got)
	}
	mounts := must(decodeList(l.get(l.find("/dc1/datastore/iso-datastore"), "host")))
	if len(mounts) != 3 || mounts[0]["mountInfo"].(obj)["accessible"] != true {
		t.Errorf("mounts: %v", mounts)
	}
}
