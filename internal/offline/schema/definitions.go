package schema

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Releases are the releases of Kubernetes whose definitions are embedded, the newest first.
var Releases = []string{"1.37.2", "1.35.4"}

// File returns the name of the file with the definitions of a release.
func File(release string) string { return "kubernetes-" + release + ".json.gz" }

//go:embed *.json.gz
var embedded embed.FS

// optional are fields that definitions call required, and whose zero value an API server accepts, by definition.
var optional = map[string]string{"io.k8s.api.core.v1.SleepAction": "seconds", "io.k8s.api.core.v1.HTTPHeader": "value"}

// Definitions are the definitions of kinds.
type Definitions struct {
	Release string // of Kubernetes; empty for those of a cluster
	named   map[string]*Schema
	kinds   map[schema.GroupVersionKind]*kind
	groups  map[string]bool // of Kubernetes: these have no kinds but the ones that are known
}

type kind struct {
	schema   *Schema
	isCustom bool
}

// ForVersion returns the definitions of a version of Kubernetes, such as 1.37; the newest if it is empty.
func ForVersion(version string) (*Definitions, error) {
	i := slices.IndexFunc(Releases, func(release string) bool {
		return version == "" || release == version || strings.HasPrefix(release, strings.TrimPrefix(version, "v")+".")
	})
	if i < 0 {
		return nil, fmt.Errorf("no definitions of Kubernetes %s: choose from %s, or read them from a cluster",
			version, strings.Join(Releases, ", "))
	}
	f, err := embedded.Open(File(Releases[i]))
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	d := &Definitions{Release: Releases[i]}
	return d, d.read(text)
}

// FromOpenAPI returns the definitions of a cluster, as `kubectl get --raw /openapi/v2` prints them.
func FromOpenAPI(document []byte) (*Definitions, error) {
	var d struct {
		Definitions json.RawMessage `json:"definitions"`
	}
	if err := json.Unmarshal(document, &d); err != nil || len(d.Definitions) == 0 {
		return nil, fmt.Errorf("it is not an OpenAPI document of version 2, as kubectl get --raw /openapi/v2 prints it")
	}
	all := &Definitions{}
	return all, all.read(d.Definitions)
}

// read adds the definitions of an OpenAPI document.
func (d *Definitions) read(text []byte) error {
	var kinds map[string]struct {
		GVK []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
	}
	d.kinds, d.groups = map[schema.GroupVersionKind]*kind{}, map[string]bool{}
	if err := json.Unmarshal(text, &d.named); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &kinds); err != nil {
		return err
	}
	for name, field := range optional {
		if s := d.named[name]; s != nil {
			s.Required = slices.DeleteFunc(s.Required, func(required string) bool { return required == field })
		}
	}
	for name, k := range kinds {
		if strings.HasSuffix(name, ".api.resource.Quantity") {
			d.named[name].Format = "quantity"
		}
		if len(k.GVK) != 1 || d.named[name].Properties["metadata"] == nil {
			continue // of all versions, such as DeleteOptions
		}
		d.kinds[k.GVK[0]] = &kind{schema: d.named[name]}
		if strings.HasPrefix(name, "io.k8s.") {
			d.groups[k.GVK[0].Group] = true
		}
	}
	return nil
}

// AddCRD adds the kinds of a CustomResourceDefinition. Kinds that are known already are kept.
func (d *Definitions) AddCRD(crd *unstructured.Unstructured) error {
	text, err := json.Marshal(crd.Object)
	if err != nil {
		return err
	}
	var c struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Served bool
				Schema struct {
					OpenAPIV3Schema *Schema `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&c); err != nil {
		return fmt.Errorf("CustomResourceDefinition '%s' cannot be read: %w", crd.GetName(), err)
	}
	for _, v := range c.Spec.Versions {
		gvk := schema.GroupVersionKind{Group: c.Spec.Group, Version: v.Name, Kind: c.Spec.Names.Kind}
		if d.kinds[gvk] == nil && v.Served && v.Schema.OpenAPIV3Schema != nil {
			d.kinds[gvk] = &kind{schema: v.Schema.OpenAPIV3Schema, isCustom: true}
		}
	}
	return nil
}

// metadata returns the definition of the metadata of objects.
func (d *Definitions) metadata() *Schema {
	return d.named["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]
}

// Check returns why an API server would refuse an object. IsKnown is false if the kind has no definition: whether it
// may exist is then not known.
func (d *Definitions) Check(o map[string]any) (problems []Problem, isKnown bool) {
	u := unstructured.Unstructured{Object: o}
	gvk := u.GroupVersionKind()
	k := d.kinds[gvk]
	switch {
	case k == nil && d.groups[gvk.Group]:
		return []Problem{{Rule: UnknownKind, Path: "kind",
			Message: fmt.Sprintf("Kubernetes %s has no kind %s of %s%s", d.Release, gvk.Kind, u.GetAPIVersion(),
				d.served(gvk.GroupKind()))}}, true
	case k == nil:
		return nil, false
	}
	c := &check{Definitions: d, isCustom: k.isCustom}
	var known map[string]*Schema
	if k.isCustom {
		known = map[string]*Schema{"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": d.metadata()}
	}
	c.value(k.schema, o, "", known)
	if u.GetName() == "" && u.GetGenerateName() == "" {
		c.add(Required, "metadata.name", "is required")
	}
	return c.problems, true
}

// served returns which versions of a kind there are, for the end of a message.
func (d *Definitions) served(gk schema.GroupKind) string {
	var versions []string
	for gvk := range d.kinds {
		if gvk.GroupKind() == gk {
			versions = append(versions, gvk.GroupVersion().String())
		}
	}
	if len(versions) == 0 {
		return ""
	}
	slices.Sort(versions)
	return ": use " + strings.Join(versions, " or ")
}
