package front

import (
	"net/http"
	"slices"
	"strings"
)

// serveTagging serves /api/cis/tagging/{category|tag|tag-association}[/{id}].
func (f *Front) serveTagging(w http.ResponseWriter, r *http.Request, rest string) {
	kind, id, _ := strings.Cut(rest, "/")
	switch kind {
	case "category":
		f.serveCategory(w, r, id)
	case "tag":
		f.serveTag(w, r, id)
	case "tag-association":
		f.serveAssociation(w, r, id)
	default:
		restError(w, http.StatusNotFound, "NOT_FOUND", "no such operation")
	}
}

func (f *Front) serveCategory(w http.ResponseWriter, r *http.Request, id string) {
	t := f.tags
	switch {
	case r.Method == http.MethodPost && id == "":
		var c struct {
			Name            string   `json:"name"`
			Description     string   `json:"description"`
			Cardinality     string   `json:"cardinality"`
			AssociableTypes []string `json:"associable_types"`
			CategoryID      string   `json:"category_id"`
		}
		if !readREST(w, r, &c) {
			return
		}
		made, err := t.createCategory(category{
			Name: c.Name, Description: c.Description, Cardinality: c.Cardinality, AssociableTypes: c.AssociableTypes,
		})
		tagReply(w, http.StatusCreated, made, err)
	case r.Method == http.MethodGet && id == "":
		t.mu.Lock()
		ids := []string{}
		for _, c := range t.categories {
			ids = append(ids, c.ID)
		}
		t.mu.Unlock()
		writeValue(w, http.StatusOK, ids)
	case r.Method == http.MethodGet:
		t.mu.Lock()
		c := t.category(id)
		t.mu.Unlock()
		if c == nil {
			tagReply(w, 0, nil, noSuch("category", id))
			return
		}
		writeValue(w, http.StatusOK, c)
	case r.Method == http.MethodDelete && id != "":
		tagReply(w, http.StatusNoContent, nil, t.deleteCategory(id))
	default:
		restError(w, http.StatusNotFound, "NOT_FOUND", "no such operation")
	}
}

func (f *Front) serveTag(w http.ResponseWriter, r *http.Request, id string) {
	t := f.tags
	action := r.URL.Query().Get("action")
	switch {
	case r.Method == http.MethodPost && action == "list-tags-for-category":
		var ask struct {
			CategoryID string `json:"category_id"`
		}
		if id != "" {
			ask.CategoryID = id
		} else if !readREST(w, r, &ask) {
			return
		}
		f.tagsOfCategory(w, ask.CategoryID)
	case r.Method == http.MethodPost && id == "" && action == "":
		var n struct {
			Name        string `json:"name"`
			Description string `json:"description"`
			CategoryID  string `json:"category_id"`
			TagID       string `json:"tag_id"`
		}
		if !readREST(w, r, &n) {
			return
		}
		made, err := t.createTag(tag{Name: n.Name, Description: n.Description, CategoryID: n.CategoryID})
		tagReply(w, http.StatusCreated, made, err)
	case r.Method == http.MethodGet && id == "":
		t.mu.Lock()
		ids := []string{}
		for _, n := range t.tags {
			ids = append(ids, n.ID)
		}
		t.mu.Unlock()
		writeValue(w, http.StatusOK, ids)
	case r.Method == http.MethodGet:
		t.mu.Lock()
		n := t.tag(id)
		t.mu.Unlock()
		if n == nil {
			tagReply(w, 0, nil, noSuch("tag", id))
			return
		}
		writeValue(w, http.StatusOK, n)
	case r.Method == http.MethodDelete && id != "":
		tagReply(w, http.StatusNoContent, nil, t.deleteTag(id))
	default:
		restError(w, http.StatusNotFound, "NOT_FOUND", "no such operation")
	}
}

func (f *Front) tagsOfCategory(w http.ResponseWriter, id string) {
	f.tags.mu.Lock()
	known := f.tags.category(id) != nil
	ids := []string{}
	for _, n := range f.tags.tags {
		if n.CategoryID == id {
			ids = append(ids, n.ID)
		}
	}
	f.tags.mu.Unlock()
	if !known {
		tagReply(w, 0, nil, noSuch("category", id))
		return
	}
	writeValue(w, http.StatusOK, ids)
}

// association is the body of every tag-association action.
type association struct {
	ObjectID  *objectID  `json:"object_id"`
	ObjectIDs []objectID `json:"object_ids"`
	TagIDs    []string   `json:"tag_ids"`
}

func (f *Front) serveAssociation(w http.ResponseWriter, r *http.Request, id string) {
	if r.Method != http.MethodPost {
		restError(w, http.StatusNotFound, "NOT_FOUND", "no such operation")
		return
	}
	var ask association
	action := r.URL.Query().Get("action")
	if action != "list-attached-objects" && !readREST(w, r, &ask) {
		return
	}
	t := f.tags
	if slices.Contains([]string{"attach", "detach", "attach-multiple-tags-to-object", "detach-multiple-tags-from-object", "list-attached-tags"}, action) {
		if ask.ObjectID == nil {
			tagReply(w, 0, nil, invalidTag("object_id is missing"))
			return
		}
		if strings.HasPrefix(action, "attach") || strings.HasPrefix(action, "detach") {
			if f.tagDenied(w, *ask.ObjectID) {
				return
			}
		}
	}
	defer f.world.inventory.bump()
	switch action {
	case "attach":
		tagReply(w, http.StatusNoContent, nil, t.attach(id, *ask.ObjectID))
	case "detach":
		tagReply(w, http.StatusNoContent, nil, t.detach(id, *ask.ObjectID))
	case "list-attached-objects":
		objects, err := t.objects(id)
		tagReply(w, http.StatusOK, objects, err)
	case "list-attached-tags":
		if err := t.exists(*ask.ObjectID); err != nil {
			tagReply(w, 0, nil, err)
			return
		}
		writeValue(w, http.StatusOK, t.of(*ask.ObjectID))
	case "list-attached-tags-on-objects":
		out := []map[string]any{}
		for _, o := range ask.ObjectIDs {
			if ids := t.of(o); len(ids) > 0 {
				out = append(out, map[string]any{"object_id": o, "tag_ids": ids})
			}
		}
		writeValue(w, http.StatusOK, out)
	case "list-attached-objects-on-tags":
		out := []map[string]any{}
		for _, tagID := range ask.TagIDs {
			objects, err := t.objects(tagID)
			if err != nil {
				tagReply(w, 0, nil, err)
				return
			}
			out = append(out, map[string]any{"tag_id": tagID, "object_ids": objects})
		}
		writeValue(w, http.StatusOK, out)
	case "attach-multiple-tags-to-object":
		batch(w, ask, t.attach)
	case "detach-multiple-tags-from-object":
		batch(w, ask, t.detach)
	default:
		restError(w, http.StatusNotFound, "NOT_FOUND", "no such operation")
	}
}

// batch does everything that is possible and lists the failures, with status
// 200.
func batch(w http.ResponseWriter, ask association, do func(string, objectID) *tagError) {
	messages := []map[string]any{}
	for _, id := range ask.TagIDs {
		if err := do(id, *ask.ObjectID); err != nil {
			messages = append(messages, map[string]any{"id": err.kind, "default_message": err.text, "args": []string{}})
		}
	}
	writeValue(w, http.StatusOK, map[string]any{"success": len(messages) == 0, "error_messages": messages})
}

func (f *Front) tagDenied(w http.ResponseWriter, o objectID) bool {
	f.world.mu.Lock()
	fault := f.denied(tagPrivilege, ref{Type: o.Type, Value: o.ID})
	f.world.mu.Unlock()
	if fault != nil {
		restError(w, http.StatusForbidden, "UNAUTHORIZED", "no privilege "+tagPrivilege+" on "+o.ID)
	}
	return fault != nil
}

func tagReply(w http.ResponseWriter, status int, body any, err *tagError) {
	switch {
	case err != nil:
		restError(w, err.status, err.kind, err.text)
	case status == http.StatusNoContent:
		w.WriteHeader(status)
	default:
		writeValue(w, status, body)
	}
}
