package front

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// location is a datastore path and the file behind it.
type location struct {
	ds   *simulator.Datastore
	path object.DatastorePath
	file string
}

// resolve finds the file behind "[datastore] path". As on every vCenter, a
// datacenter is required.
func (w *world) resolve(dc *ref, name string) (location, types.BaseMethodFault) {
	var p object.DatastorePath
	if !p.FromString(name) || p.Datastore == "" {
		return location{}, &types.InvalidDatastorePath{DatastorePath: name}
	}
	if dc == nil || dc.Type != "Datacenter" {
		return location{}, invalidArgument("datacenter")
	}
	for _, segment := range strings.Split(p.Path, "/") {
		if segment == ".." {
			return location{}, &types.InvalidDatastorePath{DatastorePath: name}
		}
	}
	ds := w.datastoreNamed(*dc, p.Datastore)
	if ds == nil {
		return location{}, &types.InvalidDatastore{Name: p.Datastore}
	}
	p.Path = strings.Trim(path.Clean("/"+p.Path), "/")
	return location{ds: ds, path: p, file: filepath.Join(ds.Summary.Url, p.Path)}, nil
}

// datastorePaths replaces the local paths in the simulator's file faults.
func (w *world) datastorePaths(fault types.BaseMethodFault) types.BaseMethodFault {
	f, ok := fault.(types.BaseFileFault)
	if !ok {
		return fault
	}
	file := f.GetFileFault()
	for _, e := range w.reg.All("Datastore") {
		ds := e.(*simulator.Datastore)
		if rest, ok := strings.CutPrefix(file.File, ds.Summary.Url); ok {
			file.File = strings.TrimSpace("[" + ds.Name + "] " + strings.TrimPrefix(rest, "/"))
		}
	}
	return fault
}
