package mirror

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

const ociScheme = "oci://"

// Change is an object that names a registry or a Helm repository.
type Change struct {
	Group, Kind, Namespace, Name string
	Field                        string // JSON pointer of the URL or image
	Value                        string
	// Of a Kustomization: images that it sets, and the repositories of images that it deploys.
	images       []meta.Image
	repositories []string
}

// change notes an object that a mirror changes.
func (f *finder) change(o *unstructured.Unstructured) {
	c := Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Field: "/spec/url",
		Value: text(o, "spec", "url")}
	c.Group, _, _ = strings.Cut(o.GetAPIVersion(), "/")
	switch c.Kind {
	case sourcev1.OCIRepositoryKind, sourcev1.HelmRepositoryKind:
	case imagev1.ImageRepositoryKind:
		c.Field, c.Value = "/spec/image", text(o, "spec", "image")
	default:
		return
	}
	f.changes[c.Kind+"/"+c.Namespace+"/"+c.Name] = c
}

func sortChanges(changes map[string]Change) []Change {
	var sorted []Change
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		sorted = append(sorted, changes[key])
	}
	return sorted
}

// changeImages notes the images that a Kustomization deploys. Its spec.images are applied after those of its files, so
// they rename the final images.
func (f *finder) changeImages(obj *kustomizev1.Kustomization, items []Item) {
	c := Change{Group: kustomizev1.GroupVersion.Group, Kind: kustomizev1.KustomizationKind, Namespace: obj.Namespace,
		Name: obj.Name, Field: "/spec/images", images: obj.Spec.Images}
	for _, item := range items {
		if item.Kind == Image && !slices.Contains(c.repositories, item.Repository) {
			c.repositories = append(c.repositories, item.Repository)
		}
	}
	if len(c.repositories) > 0 {
		slices.Sort(c.repositories)
		f.changes[c.Kind+"/"+c.Namespace+"/"+c.Name] = c
	}
}

// setImages returns the patch of a Kustomization.
func (c Change) setImages(prefix string) ([]operation, error) {
	images := slices.Clone(c.images)
	for _, repository := range c.repositories {
		renamed, err := renamed(prefix, repository)
		if err != nil {
			return nil, err
		}
		for _, i := range renamed {
			images = append(images, meta.Image{Name: i.Name, NewName: i.NewName})
		}
	}
	return []operation{{Op: "add", Path: c.Field, Value: images}}, nil
}

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// operations returns the patch that makes an object use a mirror.
func (c Change) operations(prefix string) ([]operation, error) {
	if c.Kind == kustomizev1.KustomizationKind {
		return c.setImages(prefix)
	}
	scheme, rest, ok := strings.Cut(strings.TrimSuffix(c.Value, "/"), "://")
	if c.Kind == imagev1.ImageRepositoryKind {
		item, err := ParseImage(c.Value)
		if err != nil {
			return nil, err
		}
		target, err := Target(prefix, item.Repository)
		return []operation{{Op: "replace", Path: c.Field, Value: target}}, err
	}
	if !ok {
		return nil, fmt.Errorf("spec.url of %s '%s' is not a URL", c.Kind, c.Name)
	}
	target, err := below(prefix, rest) // a Helm repository may be a host without a path
	if err != nil {
		return nil, err
	}
	patch := []operation{{Op: "replace", Path: c.Field, Value: ociScheme + target}}
	if c.Kind == sourcev1.HelmRepositoryKind && scheme != "oci" {
		patch = append(patch, operation{Op: "add", Path: "/spec/type", Value: sourcev1.HelmRepositoryTypeOCI})
	}
	return patch, nil
}

// target selects the objects of a patch. A patch whose object is not in a kustomization has no effect.
type target struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

type patch struct {
	Target target `json:"target"`
	Patch  string `json:"patch"`
}

type imageName struct {
	Name    string `json:"name"`
	NewName string `json:"newName"`
}

// component is a kustomize component.
type component struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Images     []imageName `json:"images,omitempty"`
	Patches    []patch     `json:"patches,omitempty"`
}

// Rewrite writes a kustomize component that makes all objects use the mirror at a prefix.
func (f *Found) Rewrite(w io.Writer, prefix string) error {
	out := component{APIVersion: "kustomize.config.k8s.io/v1alpha1", Kind: "Component"}
	known := map[string]bool{} // repositories
	for _, c := range f.Changes {
		for _, repository := range c.repositories {
			known[repository] = true
		}
	}
	for _, item := range f.Items {
		if item.Kind != Image || known[item.Repository] {
			continue
		}
		known[item.Repository] = true
		images, err := renamed(prefix, item.Repository)
		if err != nil {
			return err
		}
		out.Images = append(out.Images, images...)
	}
	for _, c := range f.Changes {
		operations, err := c.operations(prefix)
		if err != nil {
			return err
		}
		text, err := yaml.Marshal(operations)
		if err != nil {
			return err
		}
		out.Patches = append(out.Patches, patch{Patch: string(text),
			Target: target{Group: c.Group, Kind: c.Kind, Name: c.Name, Namespace: c.Namespace}})
	}
	text, err := yaml.Marshal(out)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// renamed returns the new name in a mirror for each way to write a repository: those of Docker Hub have short names.
func renamed(prefix, repository string) ([]imageName, error) {
	target, err := Target(prefix, repository)
	if err != nil {
		return nil, err
	}
	names := []string{repository}
	if rest, ok := strings.CutPrefix(repository, "docker.io/"); ok {
		names = append(names, rest)
		if short, ok := strings.CutPrefix(rest, "library/"); ok {
			names = append(names, "docker.io/"+short, short)
		}
	}
	var images []imageName
	for _, name := range names {
		images = append(images, imageName{Name: name, NewName: target})
	}
	return images, nil
}
