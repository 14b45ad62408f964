package build

import (
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

const originAnnotation = "config.kubernetes.io/origin"

// trackOrigins has kustomize note which file each object comes from.
func (f *filesystem) trackOrigins(k *types.Kustomization) {
	f.annotate = slices.Contains(k.BuildMetadata, types.OriginAnnotations)
	if !f.annotate {
		k.BuildMetadata = append(k.BuildMetadata, types.OriginAnnotations)
	}
}

// takeOrigin remembers an object's file, and takes the note off unless it was asked for.
func (f *filesystem) takeOrigin(o *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	note, ok := annotations[originAnnotation]
	if !ok {
		return
	}
	var origin struct {
		Path         string `json:"path"`
		ConfiguredIn string `json:"configuredIn"` // of a generated one
	}
	if err := yaml.Unmarshal([]byte(note), &origin); err == nil { // kustomize wrote it; where not, the file is unknown
		if name := origin.Path + origin.ConfiguredIn; name != "" {
			f.origins[o] = path.Join(f.root, name)
		}
	}
	if f.annotate {
		return
	}
	delete(annotations, originAnnotation)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		return
	}
	o.SetAnnotations(annotations)
}

// show names an object and its file.
func (f *filesystem) show(o *unstructured.Unstructured) string {
	id := identity{kind: o.GetKind(), namespace: o.GetNamespace(), name: o.GetName()}.String()
	if file := f.origins[o]; file != "" {
		return id + " in " + file
	}
	return id
}
