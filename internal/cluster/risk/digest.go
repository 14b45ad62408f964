package risk

import (
	"encoding/json"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// volatile are the fields of metadata that differ between two computations of the same change.
var volatile = []string{"resourceVersion", "uid", "generation", "managedFields", "creationTimestamp", "selfLink"}

// Identify sets the digest of the change: of its owner, its revision, the inputs that it is made of, and all that it
// writes, values of Secrets included. Two computations of one change have the same digest unless what they would write
// differs. As the digest is public and values may be short, it is made by seal, with a key that only controllers have.
func (c *Change) Identify(seal func(parts ...string) string, inputs string) {
	type object struct {
		Action                       Action
		Group, Kind, Namespace, Name string
		Fields                       []string
		PreviousOwner                string
		New                          map[string]any
	}
	content := struct {
		Owner            Owner
		Revision, Inputs string
		Objects          []object
	}{Owner: c.Owner, Revision: c.Revision, Inputs: inputs}
	for i := range c.Objects {
		o := &c.Objects[i]
		content.Objects = append(content.Objects, object{Action: o.Action, Group: o.Group, Kind: o.Kind,
			Namespace: o.Namespace, Name: o.Name, Fields: o.paths, PreviousOwner: o.PreviousOwner, New: o.content})
	}
	text, err := json.Marshal(content)
	if err != nil { // cannot happen: objects come from JSON
		c.digest = ""
		return
	}
	if c.digest = seal("change", string(text)); c.digest != "" {
		c.digest = "hmac-sha256:" + c.digest
	}
}

// Digest identifies the change for approvals, after [Change.Identify]. A change without a digest cannot be approved.
func (c *Change) Digest() string { return c.digest }

// LeaveOut leaves values of Secrets out of the digest that differ between two renders of the same chart: they are
// random, so that no approval could ever be for them. What a chart makes them of is among the inputs.
func (c *Change) LeaveOut(renders *redact.Known) {
	for i := range c.Objects {
		o := &c.Objects[i]
		if o.Kind != "Secret" || o.Group != "" {
			continue
		}
		named, content := &unstructured.Unstructured{Object: o.content}, maps.Clone(o.content)
		for _, field := range []string{"data", "stringData"} {
			values := maps.Clone(child(content, field))
			for key := range values {
				if renders.Differs(named, "data", key) || renders.Differs(named, "stringData", key) {
					values[key] = "random"
				}
			}
			if values != nil {
				content[field] = values
			}
		}
		o.content = content
	}
}

// lasting returns an object without its status and without fields that the API server sets each time.
func lasting(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	out := maps.Clone(o.Object)
	delete(out, "status")
	metadata := maps.Clone(child(out, "metadata"))
	for _, field := range volatile {
		delete(metadata, field)
	}
	out["metadata"] = metadata
	return out
}
