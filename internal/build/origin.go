package build

import (
	"path"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

const originAnnotation = "config.kubernetes.io/origin"

// origins finds the files that objects come from, on the first call of origin. For objects built by kustomize it needs
// another build: kustomize records origins as annotations, which makes a build about 50% slower.
type origins struct {
	once  sync.Once
	files map[*unstructured.Unstructured]string
}

// origin returns the file that a built object comes from, or "" if it is not known.
func (f *filesystem) origin(o *unstructured.Unstructured) string {
	f.origins.once.Do(f.findOrigins)
	return f.origins.files[o]
}

func (f *filesystem) findOrigins() {
	if f.origins.files != nil {
		return // plain recorded them
	}
	again := newFilesystem(f.ctx, f.tree)
	again.track, again.remote, again.secrets = true, f.remote, secrets{keys: f.secrets.keys, redact: true}
	k, err := again.prepare(f.request)
	if err != nil {
		return
	}
	objects, err := again.make(k)
	if err != nil || len(objects) != len(f.built) {
		return
	}
	f.origins.files = map[*unstructured.Unstructured]string{}
	for i, o := range f.built {
		f.origins.files[o] = again.origins.files[objects[i]]
	}
}

// trackOrigins makes kustomize record the file that each object comes from.
func (f *filesystem) trackOrigins(k *types.Kustomization) {
	f.annotate = slices.Contains(k.BuildMetadata, types.OriginAnnotations)
	if f.track && !f.annotate {
		k.BuildMetadata = append(k.BuildMetadata, types.OriginAnnotations)
	}
}

// takeOrigin records the file of an object.
func (f *filesystem) takeOrigin(o *unstructured.Unstructured) {
	if !f.track {
		return
	}
	var origin struct {
		Path         string `json:"path"`
		ConfiguredIn string `json:"configuredIn"` // of a generated object
	}
	note := o.GetAnnotations()[originAnnotation]
	if err := yaml.Unmarshal([]byte(note), &origin); err != nil || origin.Path+origin.ConfiguredIn == "" {
		return // kustomize wrote none
	}
	if f.origins.files == nil {
		f.origins.files = map[*unstructured.Unstructured]string{}
	}
	f.origins.files[o] = path.Join(f.root, origin.Path+origin.ConfiguredIn)
}

// show returns the name of an object with its file.
func (f *filesystem) show(o *unstructured.Unstructured) string {
	id := identity{kind: o.GetKind(), namespace: o.GetNamespace(), name: o.GetName()}.String()
	if file := f.origin(o); file != "" {
		return id + " in " + file
	}
	return id
}
