package front

import (
	"encoding/json"
	"net/http"

	"github.com/vmware/govmomi/vim25/types"

	"agent-forge.containeroo.ch/lab/vcenter/internal/wire"
)

// writeJSON answers a call. An empty answer is "204 No Content".
func writeJSON(w http.ResponseWriter, body json.RawMessage) {
	if body == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// writeFault answers a call with a fault: status 500 and the fault object.
func writeFault(w http.ResponseWriter, fault types.BaseMethodFault) {
	raw, err := wire.Any(fault)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(raw)
}

// writeValue answers with any Go value as JSON.
func writeValue(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}
