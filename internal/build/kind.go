package build

import (
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// checkType refuses a kustomization file of another apiVersion or kind than those of kustomize, as kustomize does.
func checkType(name string, is types.TypeMeta) error {
	k := types.Kustomization{TypeMeta: is}
	k.FixKustomization()
	if len(k.EnforceFields()) == 0 {
		return nil
	}
	refused := refusal("%s has apiVersion %q and kind %q. A kustomization file has %s and %s, or %s and %s", name,
		k.APIVersion, k.Kind, types.KustomizationVersion, types.KustomizationKind, types.ComponentVersion,
		types.ComponentKind)
	if strings.HasPrefix(k.APIVersion, "kustomize.toolkit.fluxcd.io/") {
		return refused.WithHint("A Kustomization object needs a file of another name, such as sync.yaml: kustomize " +
			"reads files of this name as its own configuration")
	}
	return refused.WithHint("Correct apiVersion and kind, or give the file another name")
}

// isResource reports whether a file with the name of a kustomization file is listed as a manifest, and holds another
// object. Kustomize refuses to read such a file as a kustomization file.
func (f *filesystem) isResource(name string, content []byte) bool {
	var is types.TypeMeta
	return f.resources.has[name] && yaml.Unmarshal(content, &is) == nil && checkType(name, is) != nil
}

// checkSingle refuses a directory with several kustomization files, and names them.
func (f *filesystem) checkSingle(dir string) error {
	var found []string
	for _, n := range konfig.RecognizedKustomizationFileNames() {
		if name := path.Join(dir, n); f.trace.kind(f.tree, name) == kindFile {
			found = append(found, name)
		}
	}
	if len(found) < 2 {
		return nil
	}
	return refusal("there are %d kustomization files in one directory: %s", len(found), strings.Join(found, ", ")).
		WithHint("Keep one of them")
}
