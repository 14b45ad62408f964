package source

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/source/compose"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// reserved returns the labels that no metadata can change.
func (n *managedNamespaces) reserved() map[string]string {
	return map[string]string{managedByLabel: managedBy, extensionsv1beta1.GeneratorLabel: string(n.obj.UID)}
}

// metadata returns the labels and annotations of a Namespace: those of spec.commonMetadata, of the file in the source,
// and of the changes, in this order.
func (n *managedNamespaces) metadata(name string) (compose.Metadata, error) {
	m := compose.Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	if common := n.obj.Spec.CommonMetadata; common != nil {
		maps.Copy(m.Labels, common.Labels)
		maps.Copy(m.Annotations, common.Annotations)
	}
	if spec := n.obj.Spec.ManagedNamespaces.Metadata; spec != nil {
		if spec.FromSource != nil {
			file, err := n.file(name, *spec.FromSource)
			if err != nil {
				return m, err
			}
			maps.Copy(m.Labels, file.Labels)
			maps.Copy(m.Annotations, file.Annotations)
		}
		for _, c := range spec.From {
			if c.Namespace == "*" || c.Namespace == name {
				change(m, c)
			}
		}
	}
	if _, set := m.Annotations[extensionsv1beta1.ExternalFinalizerAnnotation]; set {
		return m, fault.New(extensionsv1beta1.ValidationFailedReason,
			"the metadata of Namespace '%s' sets the annotation %s, which only others may set", name,
			extensionsv1beta1.ExternalFinalizerAnnotation).
			WithHint("Remove it from spec.commonMetadata, spec.managedNamespaces.metadata.from or the file in the " +
				"source")
	}
	maps.Copy(m.Labels, n.reserved())
	return m, nil
}

// change applies one change to the metadata.
func change(m compose.Metadata, c extensionsv1beta1.NamespaceMetadataChange) {
	switch c.Strategy {
	case extensionsv1beta1.MetadataReset:
		clear(m.Labels)
		clear(m.Annotations)
		fallthrough
	case extensionsv1beta1.MetadataOverride:
		maps.Copy(m.Labels, c.Labels)
		maps.Copy(m.Annotations, c.Annotations)
	case extensionsv1beta1.MetadataMerge:
		addMissing(m.Labels, c.Labels)
		addMissing(m.Annotations, c.Annotations)
	}
}

// addMissing adds the values whose keys are not set.
func addMissing(to, from map[string]string) {
	for key, value := range from {
		if _, set := to[key]; !set {
			to[key] = value
		}
	}
}

// file returns the metadata that the file of a Namespace sets.
func (n *managedNamespaces) file(name string, spec extensionsv1beta1.NamespaceMetadataFile) (compose.Metadata, error) {
	var from *compose.Output
	for i, o := range n.outputs {
		switch {
		case o.Namespace != name:
		case from == nil:
			from = &n.outputs[i]
		case from.Metadata != o.Metadata:
			return compose.Metadata{}, fault.New(meta.BuildFailedReason,
				"the metadata of Namespace '%s' is in two files, '%s' and '%s'", name, from.Metadata, o.Metadata).
				WithHint("Use only captures in spec.managedNamespaces.metadata.fromSource.path that the namespace " +
					"of the artifact contains")
		}
	}
	return compose.NamespaceMetadata(*from, spec, n.trees)
}

// contains reports whether live metadata has all the values.
func contains(live, values map[string]string) bool {
	for key, value := range values {
		if current, set := live[key]; !set || current != value {
			return false
		}
	}
	return true
}

// digestOf returns a digest of metadata.
func digestOf(m compose.Metadata) string {
	data, _ := json.Marshal(m) // maps of text always encode, in the order of their keys
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}
