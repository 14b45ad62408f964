package ui

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxForeign   = 200 // fields
	maxFieldText = 200 // bytes of a path or a value
)

// ownManagers are the field managers of Kustomizations, HelmReleases and ResourceSets.
var ownManagers = []string{apply.DefaultFieldManager, kube.FieldManager, "flux-operator"}

// foreignField is a field that is not as in git: another client than the controllers set it, or removed it.
type foreignField struct {
	Path    string    `json:"path"`
	Value   string    `json:"value,omitempty"`   // as JSON; empty if the cluster does not have the field
	Git     string    `json:"git,omitempty"`     // what git declares, as JSON; empty if nothing or not known
	Manager string    `json:"manager,omitempty"` // empty if the field was removed
	At      time.Time `json:"at,omitzero"`

	at fieldpath.Path
}

// foreignFields returns the fields that others set, except status, and whether it is known which fields the controllers
// declared. A declared field that someone changed belongs to them until its drift is corrected. values is the object
// without what must not be shown.
func foreignFields(entries []metav1.ManagedFieldsEntry, values *unstructured.Unstructured) ([]foreignField, bool) {
	own, isKnown := &fieldpath.Set{}, false
	for _, e := range entries {
		if isOwn(e) {
			own, isKnown = own.Union(setOf(e)), true
		}
	}
	fields := []foreignField{}
	if !isKnown {
		return fields, false
	}
	for _, e := range entries {
		if isOwn(e) || e.Subresource == "status" {
			continue
		}
		setOf(e).Leaves().Difference(own).Iterate(func(p fieldpath.Path) {
			text := strings.TrimPrefix(p.String(), ".")
			shown, found := valueAt(values.Object, p)
			if !found || strings.HasPrefix(text, "status") || len(fields) == maxForeign {
				return
			}
			f := foreignField{Path: excerpt.Bytes(text, maxFieldText), Value: excerpt.Bytes(shown, maxFieldText),
				Manager: excerpt.Bytes(e.Manager, maxFieldText), at: p.Copy()}
			if e.Time != nil {
				f.At = e.Time.Time
			}
			fields = append(fields, f)
		})
	}
	slices.SortStableFunc(fields, func(a, b foreignField) int { return strings.Compare(a.Path, b.Path) })
	return fields, true
}

// isOwn reports whether the controllers made these fields what git declares.
func isOwn(e metav1.ManagedFieldsEntry) bool {
	return slices.Contains(ownManagers, e.Manager) && e.Subresource == "" &&
		e.Operation == metav1.ManagedFieldsOperationApply
}

func setOf(e metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if e.FieldsV1 == nil || set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())) != nil {
		return &fieldpath.Set{}
	}
	return set
}

// valueAt returns the value at a path as JSON, if the object has it.
func valueAt(at any, p fieldpath.Path) (string, bool) {
	for _, element := range p {
		var found bool
		if at, found = below(at, element); !found {
			return "", false
		}
	}
	text, err := json.Marshal(at)
	return string(text), err == nil
}

// below returns what a field or an item of a value is.
func below(at any, e fieldpath.PathElement) (any, bool) {
	fields, _ := at.(map[string]any)
	items, _ := at.([]any)
	switch {
	case e.FieldName != nil:
		v, ok := fields[*e.FieldName]
		return v, ok
	case e.Index != nil && *e.Index >= 0 && *e.Index < len(items):
		return items[*e.Index], true
	case e.Value != nil:
		isItem := func(i any) bool { return value.Equals(value.NewValueInterface(i), *e.Value) }
		return (*e.Value).Unstructured(), slices.ContainsFunc(items, isItem)
	case e.Key == nil:
		return nil, false
	}
	for _, item := range items {
		fields, ok := item.(map[string]any)
		differs := func(k value.Field) bool { return !value.Equals(value.NewValueInterface(fields[k.Name]), k.Value) }
		if ok && !slices.ContainsFunc(*e.Key, differs) {
			return item, true
		}
	}
	return nil, false
}
