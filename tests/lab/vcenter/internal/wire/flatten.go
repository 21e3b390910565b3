package wire

import (
	"bytes"
	"encoding/json"
)

const wrapper = "LocalizedMethodFault"

// flatten replaces every LocalizedMethodFault by the fault inside it. The
// wrapper exists in the type system, but not in the JSON protocol. The members
// of objects are sorted, which keeps "_typeName" first.
func flatten(raw []byte) (json.RawMessage, error) {
	if !bytes.Contains(raw, []byte(wrapper)) {
		return raw, nil
	}
	tree, err := parse(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(unwrap(tree))
}

func unwrap(node any) any {
	switch v := node.(type) {
	case map[string]any:
		if v[typeName] == wrapper {
			fault, ok := v["fault"].(map[string]any)
			if !ok {
				return map[string]any{typeName: "MethodFault"}
			}
			return unwrap(fault)
		}
		for k := range v {
			v[k] = unwrap(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unwrap(v[i])
		}
	}
	return node
}
