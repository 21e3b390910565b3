package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"agent-forge.containeroo.ch/lab/vcenter/internal/front"
)

type options struct {
	listen string
	tls    bool
	config front.Config
}

func parseOptions(args []string) (options, error) {
	o := options{config: front.Config{Delays: front.Delays{}}}
	c := &o.config
	set := flag.NewFlagSet("vcenter", flag.ContinueOnError)
	set.StringVar(&o.listen, "listen", "127.0.0.1:0", "loopback address to listen on; port 0 takes a free one")
	set.BoolVar(&o.tls, "tls", true, "serve https with a fresh self-signed certificate")
	set.StringVar(&c.Username, "username", "administrator@vsphere.local", "user that can log in")
	set.StringVar(&c.Password, "password", "password", "the user's password")
	set.IntVar(&c.Hosts, "hosts", 3, "hosts in the cluster")
	set.IntVar(&c.PodDatastores, "pod-datastores", 3, "datastores in the datastore cluster")
	set.BoolVar(&c.NoDRS, "no-drs", false, "switch DRS off in the cluster")
	set.StringVar(&c.APIRelease, "api-release", "8.0.3.0", "newest API release that is served; 8.0.1.0 has no hello")
	set.BoolVar(&c.ShareSessions, "share-sessions", false, "let one session serve the VI and the Automation API")
	set.BoolVar(&c.FolderBasicOnly, "folder-basic-only", false, "let /folder take no session, only user and password")
	set.BoolVar(&c.RequestLog, "request-log", false, "log each request of a client")
	for name, kind := range map[string]string{
		"create-delay": "create", "power-on-delay": "powerOn", "power-off-delay": "powerOff",
		"reconfigure-delay": "reconfigure", "destroy-delay": "destroy", "file-delay": "file",
	} {
		set.Func(name, "time that a "+kind+" task takes, such as 3s (default 0)", func(text string) error {
			d, err := time.ParseDuration(text)
			if err == nil && d < 0 {
				err = errors.New("a delay cannot be negative")
			}
			c.Delays[kind] = d
			return err
		})
	}
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if c.Username == "" || c.Password == "" {
		return o, errors.New("--username and --password must not be empty")
	}
	if !slices.Contains(front.Releases, c.APIRelease) {
		return o, fmt.Errorf("unknown --api-release %q: use one of %v", c.APIRelease, front.Releases)
	}
	return o, nil
}
