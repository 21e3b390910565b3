package front

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// Names of the tags that exist from the start.
const (
	tagCategory = "agent-forge"
	tagWorker   = "worker"
	tagOnDemand = "on-demand"
)

type category struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	Description     string   `json:"description"`
	Cardinality     string   `json:"cardinality"`
	AssociableTypes []string `json:"associable_types"`
	UsedBy          []string `json:"used_by"`
}

type tag struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	CategoryID  string   `json:"category_id"`
	UsedBy      []string `json:"used_by"`
}

// objectID is the name of a managed object in the Automation API.
type objectID struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// tagging is the tag service. Take its lock after the world's lock.
type tagging struct {
	mu         sync.Mutex
	world      *world
	categories []*category
	tags       []*tag
	attached   map[objectID][]string
}

func newTagging(w *world) *tagging {
	t := &tagging{world: w, attached: map[objectID][]string{}}
	c, _ := t.createCategory(category{
		Name: tagCategory, Description: "tags of the lab", Cardinality: "MULTIPLE",
		AssociableTypes: []string{"VirtualMachine"},
	})
	for _, name := range []string{tagWorker, tagOnDemand} {
		_, _ = t.createTag(tag{Name: name, Description: "tag of the lab", CategoryID: c})
	}
	return t
}

// tagError is an error of the Automation API.
type tagError struct {
	status int
	kind   string
	text   string
}

func (e *tagError) Error() string { return e.text }

func invalidTag(format string, args ...any) *tagError {
	return &tagError{400, "INVALID_ARGUMENT", fmt.Sprintf(format, args...)}
}

func noSuch(what, id string) *tagError {
	return &tagError{404, "NOT_FOUND", fmt.Sprintf("%s %s does not exist", what, id)}
}

func (t *tagging) createCategory(c category) (string, *tagError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Name == "" || c.Cardinality != "SINGLE" && c.Cardinality != "MULTIPLE" {
		return "", invalidTag("a category needs a name and the cardinality SINGLE or MULTIPLE")
	}
	if slices.ContainsFunc(t.categories, func(o *category) bool { return strings.EqualFold(o.Name, c.Name) }) {
		return "", &tagError{400, "ALREADY_EXISTS", "a category named " + c.Name + " exists"}
	}
	c.ID = "urn:vmomi:InventoryServiceCategory:" + uuid.NewString() + ":GLOBAL"
	c.UsedBy = []string{}
	if c.AssociableTypes == nil {
		c.AssociableTypes = []string{}
	}
	t.categories = append(t.categories, &c)
	return c.ID, nil
}

func (t *tagging) createTag(n tag) (string, *tagError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.Name == "" {
		return "", invalidTag("a tag needs a name")
	}
	if t.category(n.CategoryID) == nil {
		return "", noSuch("category", n.CategoryID)
	}
	if slices.ContainsFunc(t.tags, func(o *tag) bool { return o.CategoryID == n.CategoryID && strings.EqualFold(o.Name, n.Name) }) {
		return "", &tagError{400, "ALREADY_EXISTS", "a tag named " + n.Name + " exists in this category"}
	}
	n.ID = "urn:vmomi:InventoryServiceTag:" + uuid.NewString() + ":GLOBAL"
	n.UsedBy = []string{}
	t.tags = append(t.tags, &n)
	return n.ID, nil
}

func (t *tagging) category(id string) *category {
	for _, c := range t.categories {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (t *tagging) tag(id string) *tag {
	for _, n := range t.tags {
		if n.ID == id {
			return n
		}
	}
	return nil
}

func (t *tagging) deleteTag(id string) *tagError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tag(id) == nil {
		return noSuch("tag", id)
	}
	t.tags = slices.DeleteFunc(t.tags, func(n *tag) bool { return n.ID == id })
	for o, ids := range t.attached {
		t.attached[o] = slices.DeleteFunc(ids, func(has string) bool { return has == id })
	}
	return nil
}

func (t *tagging) deleteCategory(id string) *tagError {
	t.mu.Lock()
	if t.category(id) == nil {
		t.mu.Unlock()
		return noSuch("category", id)
	}
	t.categories = slices.DeleteFunc(t.categories, func(c *category) bool { return c.ID == id })
	var inside []string
	for _, n := range t.tags {
		if n.CategoryID == id {
			inside = append(inside, n.ID)
		}
	}
	t.mu.Unlock()
	for _, n := range inside {
		_ = t.deleteTag(n)
	}
	return nil
}

// attach is idempotent, like the real one.
func (t *tagging) attach(id string, o objectID) *tagError {
	if e := t.exists(o); e != nil {
		return e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.tag(id)
	if n == nil {
		return noSuch("tag", id)
	}
	has := t.attached[o]
	if slices.Contains(has, id) {
		return nil
	}
	c := t.category(n.CategoryID)
	if len(c.AssociableTypes) > 0 && !slices.Contains(c.AssociableTypes, o.Type) {
		return invalidTag("tags of category %s do not go on a %s", c.Name, o.Type)
	}
	if c.Cardinality == "SINGLE" && slices.ContainsFunc(has, func(other string) bool { return t.tag(other).CategoryID == c.ID }) {
		return invalidTag("%s has a tag of category %s already", o.ID, c.Name)
	}
	t.attached[o] = append(has, id)
	return nil
}

func (t *tagging) detach(id string, o objectID) *tagError {
	if e := t.exists(o); e != nil {
		return e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tag(id) == nil {
		return noSuch("tag", id)
	}
	t.attached[o] = slices.DeleteFunc(t.attached[o], func(has string) bool { return has == id })
	return nil
}

func (t *tagging) exists(o objectID) *tagError {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	if t.world.reg.Get(ref{Type: o.Type, Value: o.ID}) == nil {
		return noSuch("object", o.Type+":"+o.ID)
	}
	return nil
}

// of lists the tags of an object.
func (t *tagging) of(o objectID) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.attached[o]...)
}

// objects lists the objects with a tag.
func (t *tagging) objects(id string) ([]objectID, *tagError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tag(id) == nil {
		return nil, noSuch("tag", id)
	}
	out := []objectID{}
	for o, ids := range t.attached {
		if slices.Contains(ids, id) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b objectID) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// forget drops the tags of an object that is gone.
func (t *tagging) forget(r ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attached, objectID{r.Type, r.Value})
}
