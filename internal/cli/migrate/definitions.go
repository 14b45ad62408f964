package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var definitionGVK = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
	Kind: "CustomResourceDefinition"}

// Definition is a CustomResourceDefinition of Flux in the cluster.
type Definition struct {
	Name           string   `json:"name"`
	Versions       []string `json:"versions"`
	StorageVersion string   `json:"storageVersion"`
	StoredVersions []string `json:"storedVersions"`
}

// definition is a CustomResourceDefinition with its content.
type definition struct {
	Definition
	kind, group string
	live        *unstructured.Unstructured
}

func (d *definition) storageGVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: d.group, Version: d.StorageVersion, Kind: d.kind}
}

func definitionRef(name string) Ref {
	return Ref{Group: definitionGVK.Group, Version: definitionGVK.Version, Kind: definitionGVK.Kind, Name: name}
}

// CRD is what is needed of a CustomResourceDefinition here and by an installation.
type CRD struct {
	Name, Group, Kind, Plural string
	Versions                  []CRDVersion
	StoredVersions            []string // status.storedVersions
}

// CRDVersion is a version of a CustomResourceDefinition.
type CRDVersion struct {
	Name            string
	Served, Storage bool
	Schema          map[string]any // nil without one
}

// ParseCRD reads a CustomResourceDefinition. What it lacks is empty.
func ParseCRD(u *unstructured.Unstructured) CRD {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, path...)
		return s
	}
	d := CRD{Name: u.GetName(), Group: text("spec", "group"), Kind: text("spec", "names", "kind"),
		Plural: text("spec", "names", "plural")}
	d.StoredVersions, _, _ = unstructured.NestedStringSlice(u.Object, "status", "storedVersions")
	for _, raw := range versionsOf(u) {
		v := CRDVersion{Served: raw["served"] == true, Storage: raw["storage"] == true}
		v.Name, _ = raw["name"].(string)
		v.Schema, _, _ = unstructured.NestedMap(raw, "schema", "openAPIV3Schema")
		d.Versions = append(d.Versions, v)
	}
	return d
}

// StorageVersion returns the version that objects are stored in, or "".
func (d CRD) StorageVersion() string {
	for _, v := range d.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// parseDefinition returns a definition with its content.
func parseDefinition(u *unstructured.Unstructured) *definition {
	crd := ParseCRD(u)
	d := &definition{kind: crd.Kind, group: crd.Group, live: u}
	d.Name, d.StorageVersion, d.StoredVersions = crd.Name, crd.StorageVersion(), crd.StoredVersions
	for _, v := range crd.Versions {
		d.Versions = append(d.Versions, v.Name)
	}
	return d
}

// versionsOf returns spec.versions. Changes of the maps change the definition.
func versionsOf(u *unstructured.Unstructured) []map[string]any {
	spec, _ := u.Object["spec"].(map[string]any)
	raw, _ := spec["versions"].([]any)
	var versions []map[string]any
	for _, v := range raw {
		if m, ok := v.(map[string]any); ok {
			versions = append(versions, m)
		}
	}
	return versions
}

// schemaOf returns the schema of a version, or nil.
func schemaOf(u *unstructured.Unstructured, version string) map[string]any {
	for _, v := range ParseCRD(u).Versions {
		if v.Name == version {
			return v.Schema
		}
	}
	return nil
}

// operatorGroup is the group of Flux Operator's kinds.
const operatorGroup = "fluxcd.controlplane.io"

// isFluxGroup reports whether a group has kinds of Flux.
func isFluxGroup(group string) bool {
	return strings.HasSuffix(group, ".toolkit.fluxcd.io") || group == "source.extensions.fluxcd.io"
}

// definitions returns the CustomResourceDefinitions of Flux in the cluster, and those of Flux Operator that we have as
// well, sorted by name.
func (e *Engine) definitions(ctx context.Context) ([]*definition, error) {
	var found []*definition
	err := list(ctx, e.Client, definitionGVK, func(u *unstructured.Unstructured) error {
		if d := parseDefinition(u); isFluxGroup(d.group) ||
			d.group == operatorGroup && e.ours(d.Name) != nil {
			found = append(found, d)
		}
		return nil
	})
	slices.SortFunc(found, func(a, b *definition) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// ours returns our CustomResourceDefinition with a name, or nil.
func (e *Engine) ours(name string) *definition {
	for _, u := range e.Definitions {
		if u.GetName() == name {
			return parseDefinition(u)
		}
	}
	return nil
}

// checkDefinition returns why a definition cannot be replaced by ours without loss; "" if it can.
func (e *Engine) checkDefinition(d *definition) string {
	ours := e.ours(d.Name)
	if ours == nil {
		return fmt.Sprintf("Sluice has no kind '%s' of group '%s'. Upgrade Sluice, or delete the "+
			"CustomResourceDefinition '%s' if nothing uses it", d.kind, d.group, d.Name)
	}
	if !slices.Contains(ours.Versions, d.StorageVersion) {
		return fmt.Sprintf("CustomResourceDefinition '%s' stores version %s, which Sluice does not "+
			"serve (it serves %s). "+
			"Upgrade Flux to version 2.3 or later first, then run sluice migrate", d.Name, d.StorageVersion,
			strings.Join(ours.Versions, ", "))
	}
	return ""
}

// hasUnservedStored reports whether objects may be stored in versions that ours lacks.
func (e *Engine) hasUnservedStored(d *definition) bool {
	ours := e.ours(d.Name)
	return ours != nil && slices.ContainsFunc(d.StoredVersions, func(v string) bool {
		return !slices.Contains(ours.Versions, v)
	})
}

// lostFields returns the fields of an object that our definition does not have, and which would be lost therefore.
func (e *Engine) lostFields(d *definition, o Object) []string {
	ours := e.ours(d.Name)
	if ours == nil {
		return nil
	}
	s := schemaOf(ours.live, d.StorageVersion)
	if s == nil {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(s, "properties", "spec")
	return unknownFields(spec, o.live.Object["spec"], "spec")
}
