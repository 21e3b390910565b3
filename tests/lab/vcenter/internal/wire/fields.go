package wire

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// field is one member of a data object in the schema.
type field struct {
	name     string
	typ      reflect.Type
	required bool
	since    string
}

var fieldCache sync.Map // reflect.Type -> []field

// fieldsOf lists the members of t, including those of its base types.
func fieldsOf(t reflect.Type) []field {
	if cached, ok := fieldCache.Load(t); ok {
		return cached.([]field)
	}
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = append(out, fieldsOf(f.Type)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || name == "" {
			continue
		}
		out = append(out, field{
			name:     name,
			typ:      f.Type,
			required: !strings.Contains(options, "omitempty"),
			since:    f.Tag.Get("vim"),
		})
	}
	fieldCache.Store(t, out)
	return out
}

// newer reports whether a member that was introduced in since is unknown to
// release.
func newer(since, release string) bool {
	if since == "" || release == "" {
		return false
	}
	a, b := strings.Split(since, "."), strings.Split(release, ".")
	for i := range min(len(a), len(b)) {
		x, _ := strconv.Atoi(a[i])
		y, _ := strconv.Atoi(b[i])
		if x != y {
			return x > y
		}
	}
	return false
}
