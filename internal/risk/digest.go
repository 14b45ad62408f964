package risk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
)

// volatile are the fields of metadata that differ between two computations of the same change.
var volatile = []string{"resourceVersion", "uid", "generation", "managedFields", "creationTimestamp", "selfLink"}

// Digest identifies the content of a change: its owner, its revision, and what happens to each object. Two computations
// of one change have the same digest unless what they would write differs. Values of Secrets are not part of it; the
// revision covers them.
func (c *Change) Digest() string {
	type object struct {
		Action                       Action
		Group, Kind, Namespace, Name string
		Fields                       []string
		PreviousOwner                string
		New                          map[string]any
	}
	content := struct {
		Owner    Owner
		Revision string
		Objects  []object
	}{Owner: c.Owner, Revision: c.Revision}
	for i := range c.Objects {
		o := &c.Objects[i]
		content.Objects = append(content.Objects, object{Action: o.Action, Group: o.Group, Kind: o.Kind,
			Namespace: o.Namespace, Name: o.Name, Fields: o.Fields, PreviousOwner: o.PreviousOwner,
			New: lasting(o.New)})
	}
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(content); err != nil { // cannot happen: objects come from JSON
		return ""
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// lasting returns an object without its status and without fields that the API server sets each time.
func lasting(o map[string]any) map[string]any {
	if o == nil {
		return nil
	}
	out := maps.Clone(o)
	delete(out, "status")
	metadata := maps.Clone(child(out, "metadata"))
	for _, field := range volatile {
		delete(metadata, field)
	}
	out["metadata"] = metadata
	return out
}
