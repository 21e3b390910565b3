package front

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Every method of every kind of object is called with the smallest body that
// the schema allows. The vCenter must survive all calls.
func TestNoCallBringsItDown(t *testing.T) {
	l := loggedIn(t)
	l.made("node-1", "ds-0")
	objects := map[string]mo.Reference{}
	l.f.world.lock(func() {
		for _, o := range l.f.world.reg.AllReference("") {
			objects[o.Reference().Type] = o
		}
	})
	hasFault := reflect.TypeFor[soap.HasFault]()
	called := 0
	for _, kind := range slices.Sorted(maps.Keys(objects)) {
		o := objects[kind]
		v := reflect.ValueOf(o)
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			if m.Type.NumOut() != 1 || m.Type.Out(0) != hasFault || m.Type.NumIn() < 2 {
				continue
			}
			request := m.Type.In(m.Type.NumIn() - 1).Elem()
			if strings.HasPrefix(request.Name(), "Log") || request.PkgPath() != reflect.TypeFor[types.Login]().PkgPath() {
				continue
			}
			called++
			l.least(o.Reference(), request)
		}
	}
	if called < 200 {
		t.Errorf("only %d methods called", called)
	}
	l.inventory()
	if a := l.get(ref{Type: "Folder", Value: "group-d1"}, "name"); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
	t.Logf("%d methods", called)
}

// least calls a method with every required field, empty.
func (l *lab) least(on ref, request reflect.Type) {
	l.t.Helper()
	body := leastObject(request, on, 0)
	delete(body, "_typeName")
	raw, err := json.Marshal(body)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", l.server.URL+l.path(on, request.Name()), strings.NewReader(string(raw)))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set(sessionHeader, l.session)
	res, err := l.client.Do(req)
	if err != nil {
		l.t.Fatalf("%s.%s %s: %v", on.Type, request.Name(), raw, err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 200 && res.StatusCode != 204 && res.StatusCode != 500 {
		l.t.Errorf("%s.%s: status %d", on.Type, request.Name(), res.StatusCode)
	}
}

func leastObject(t reflect.Type, on ref, depth int) obj {
	out := obj{"_typeName": t.Name()}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			maps.Copy(out, leastObject(f.Type, on, depth))
			out["_typeName"] = t.Name()
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || name == "" || strings.Contains(options, "omitempty") {
			continue
		}
		if v := leastValue(f.Type, on, depth+1); v != nil {
			out[name] = v
		}
	}
	return out
}

func leastValue(t reflect.Type, on ref, depth int) any {
	if depth > 4 {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[ref]():
		return moref(on)
	case t == reflect.TypeFor[time.Time]():
		return time.Now()
	case t.Kind() == reflect.Struct:
		return leastObject(t, on, depth)
	case t.Kind() == reflect.Slice:
		return []any{}
	case t.Kind() == reflect.String:
		if values, ok := reflect.Zero(t).Interface().(interface{ Strings() []string }); ok {
			return values.Strings()[0]
		}
		return ""
	case t.Kind() == reflect.Bool:
		return false
	case t.Kind() == reflect.Interface:
		if base, ok := types.TypeFunc()(strings.TrimPrefix(t.Name(), "Base")); ok && base.Kind() == reflect.Struct {
			return leastObject(base, on, depth)
		}
		return boxed("")
	}
	return 0
}
