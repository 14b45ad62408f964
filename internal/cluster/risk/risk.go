// Package risk classifies changes of objects: each object of a change gets a level, and the rules that say so. Rules
// are CEL expressions over plain values. The preview of a change and gates that judge one use the same rules. The
// package sends no requests.
package risk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Level is how much harm a change may do. The zero value is None.
type Level int

// Levels, in ascending order.
const (
	None Level = iota // nothing changes
	Low
	Medium
	High
)

var levelNames = []string{"none", "low", "medium", "high"}

// String returns the level in lower case.
func (l Level) String() string {
	if l < None || l > High {
		return fmt.Sprintf("level %d", int(l))
	}
	return levelNames[l]
}

// MarshalText implements [encoding.TextMarshaler].
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *Level) UnmarshalText(text []byte) (err error) {
	if string(text) == None.String() {
		*l = None
		return nil
	}
	*l, err = ParseLevel(string(text))
	return err
}

// ParseLevel parses low, medium or high.
func ParseLevel(text string) (Level, error) {
	if n := slices.Index(levelNames, text); n > int(None) {
		return Level(n), nil
	}
	return None, fmt.Errorf("%.40q is not a level: use low, medium or high", text)
}

// Action is what happens to an object.
type Action string

// Actions.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Recreated  Action = "recreated" // deleted, and created again
	Deleted    Action = "deleted"
	Hidden     Action = "hidden"    // it may change, but the account that computed the change may not see it
	Unchanged  Action = "unchanged" // only listed if the object declares fields that its kind does not have
)

// Actions lists all actions.
var Actions = []Action{Created, Configured, Recreated, Deleted, Hidden, Unchanged}

// Object is the change of one object.
type Object struct {
	Action    Action `json:"action"`
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	Fields        []string `json:"fields,omitempty"` // paths of the changed fields of an object that exists
	Images        []Image  `json:"images,omitempty"` // of containers, those that change
	Grants        []string `json:"grants,omitempty"` // rights that the change adds, in words
	Privileges    []string `json:"privileges,omitempty"`
	PreviousOwner string   `json:"previousOwner,omitempty"` // namespace/name of another owner that applied it before
	UnknownFields []string `json:"unknownFields,omitempty"` // fields that the kind does not have; they are left out

	// Old and New are the object before and after the change, without what comes from secrets. Nil if it does not
	// exist.
	Old map[string]any `json:"-"`
	New map[string]any `json:"-"`

	content map[string]any // after the change, as it is: only for the digest
	paths   []string       // of the changed fields, as they are: only for the digest
}

// String returns Kind/namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Image is the change of a container's image.
type Image struct {
	Container string `json:"container"`
	Old       string `json:"old,omitempty"`       // empty for a new container
	New       string `json:"new,omitempty"`       // empty for a container that is removed
	Downgrade bool   `json:"downgrade,omitempty"` // both tags are versions, and the new one is lower
}

// Owner is the object that applies a change.
type Owner struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns Kind/namespace/name.
func (o Owner) String() string { return o.Kind + "/" + o.Namespace + "/" + o.Name }

// Change is what one owner would change. What is not known is empty.
type Change struct {
	Owner     Owner
	Inventory int      // number of objects that the owner applied before
	Revision  string   // that the owner would move to
	Objects   []Object // without objects that do not change, except those that declare unknown fields in a preview
	Author    string   // of the commit, as name <address>; a claim of who wrote the commit
	Signed    bool     // the signature of the commit was verified
	Signers   []string // fingerprints of the keys whose signatures were verified
	Message   string   // of the commit
	Files     []string // that the commit changes
	Secrets   []string // values that must not appear in messages

	digest string // see [Change.Identify]
}

// Finding is what a rule says about a change.
type Finding struct {
	Rule    string `json:"rule"`
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Object  int    `json:"-"` // index in the objects of the change; WholeChange for the change as a whole
}

// WholeChange is the object of a finding about the change as a whole.
const WholeChange = -1

// Assessment is the result of a classification.
type Assessment struct {
	Level    Level // the highest level of all findings; None if nothing changes
	Findings []Finding
}

// Of returns the findings about an object, the highest level first, or about the change as a whole.
func (a Assessment) Of(object int) []Finding {
	var out []Finding
	for _, f := range a.Findings {
		if f.Object == object {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(x, y Finding) int { return cmp.Compare(y.Level, x.Level) })
	return out
}

// LevelOf returns the highest level of the findings about an object.
func (a Assessment) LevelOf(object int) Level {
	if found := a.Of(object); len(found) > 0 {
		return found[0].Level
	}
	return None
}

// Redact masks the secrets of the change in a text.
func (c *Change) Redact(text string) string { return redact.Text(text, c.Secrets...) }

// defaults are the built-in rules, compiled once.
var defaults = sync.OnceValue(Default)

// Level returns the level of the change by the built-in rules.
func (c *Change) Level(ctx context.Context) Level { return defaults().Classify(ctx, c).Level }
