package differential

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
)

// entry is the directory of generated trees that is built.
const entry = "app"

// TestBuildsAreThoseOfKustomize compares builds of generated trees with those of kustomize's library, called as Flux
// calls it.
func TestBuildsAreThoseOfKustomize(t *testing.T) {
	comparison[map[string]string]{
		quick: 400, full: 6000, generate: repository, compare: compareBuilds, smaller: smallerRepositories,
		show: showRepository,
	}.run(t)
}

func compareBuilds(t *testing.T, files map[string]string) string {
	t.Helper()
	if !hasEntry(files) {
		return ""
	}
	return compareBuild(t, files, entry)
}

// compareBuild compares the build of a directory.
func compareBuild(t *testing.T, files map[string]string, dir string) string {
	t.Helper()
	root := writeTree(t, files)
	defer os.RemoveAll(root) //nolint:errcheck // the test removes it again
	want, wantErr := kustomize(filepath.Join(root, filepath.FromSlash(dir)))
	return compareWith(t, files, dir, want, wantErr)
}

// compareWith compares the build of a directory with what kustomize gives.
func compareWith(t *testing.T, files map[string]string, dir, want string, wantErr error) string {
	t.Helper()
	result, err := build.Build(t.Context(), build.Request{Tree: artifact.FromMap(files).WithoutLinks(), Path: dir})
	if err != nil {
		if wantErr == nil && !refusedOnPurpose(err) {
			return fmt.Sprintf("kustomize builds it:\n%s\nrefused here: %v", want, err)
		}
		return ""
	}
	got, marshalErr := json.Marshal(result.Objects)
	if marshalErr != nil {
		return marshalErr.Error()
	}
	if len(result.Objects) == 0 {
		got = []byte("[]")
	}
	if wantErr != nil {
		return fmt.Sprintf("kustomize refuses it: %v\nbuilt here:\n%s", wantErr, got)
	}
	if string(got) != want {
		return fmt.Sprintf("kustomize gives\n%s\nbuilt here:\n%s", want, got)
	}
	return ""
}

// hasEntry reports whether the directory that is built has a file.
func hasEntry(files map[string]string) bool {
	for name := range files {
		if strings.HasPrefix(name, entry+"/") && !strings.HasPrefix(files[name], "symlink:") {
			return true
		}
	}
	return false
}

// refusals are parts of the messages of what kustomize builds and Sluice refuses. Each is a row of docs/comparison.md,
// but the first, which Flux refuses as well after the build.
var refusals = []string{
	"is encrypted with SOPS",
	"is declared twice",
	"this is not a Kubernetes object",
	"Give it a metadata.name",
	"must be text. Quote it",
	"must be a map",
	"is a number beyond 64 bits",
	"has no apiVersion",
}

func refusedOnPurpose(err error) bool {
	return slices.ContainsFunc(refusals, func(part string) bool { return strings.Contains(err.Error(), part) })
}

// writeTree writes the files of a tree without symlinks, and returns the directory.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := os.MkdirTemp(t.TempDir(), "")
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, entry), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if strings.HasPrefix(content, "symlink:") {
			continue
		}
		full := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
			os.WriteFile(full, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// kustomize builds a directory with kustomize's library as Flux does: with a kustomization file that is generated if
// there is none, or else written again.
func kustomize(dir string) (objects string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("kustomize panics: %v", p)
		}
	}()
	if err := writeEntry(dir); err != nil {
		return "", err
	}
	options := &krusty.Options{LoadRestrictions: types.LoadRestrictionsNone, PluginConfig: types.DisabledPluginConfig()}
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	return objectsOf(built)
}

// objectsOf returns the objects of a build as JSON, read from its YAML as an apply reads them.
func objectsOf(built resmap.ResMap) (string, error) {
	list := []json.RawMessage{}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return "", err
		}
		b, err := yaml.YAMLToJSON(text)
		if err != nil {
			return "", err
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(b); err != nil {
			return "", err
		}
		if b, err = o.MarshalJSON(); err != nil {
			return "", err
		}
		list = append(list, b)
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// writeEntry writes the kustomization file of the entry as Flux does.
func writeEntry(dir string) error {
	k := types.Kustomization{TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion,
		Kind: types.KustomizationKind}}
	file := ""
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && !info.IsDir() {
			file = filepath.Join(dir, name)
			break
		}
	}
	if file == "" {
		resources, err := manifestsBelow(dir)
		if err != nil {
			return err
		}
		if k.Resources = resources; len(resources) == 0 {
			k.Namespace = "_placeholder"
		}
		file = filepath.Join(dir, konfig.DefaultKustomizationFileName())
	} else {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(content, &k); err != nil {
			return err
		}
		if len(k.Resources) == 0 {
			k.BuildMetadata = []string{types.OriginAnnotations}
		}
	}
	b, err := yaml.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

// manifestsBelow lists the manifests below a directory, and its directories with a kustomization file.
func manifestsBelow(dir string) (names []string, err error) {
	factory := provider.NewDefaultDepProvider().GetResourceFactory()
	err = filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		if err != nil || full == dir {
			return err
		}
		name := "." + strings.TrimPrefix(full, dir)
		if d.IsDir() {
			for _, k := range konfig.RecognizedKustomizationFileNames() {
				if info, err := os.Stat(filepath.Join(full, k)); err == nil && !info.IsDir() {
					is, err := isComponent(filepath.Join(full, k))
					if err != nil {
						return err
					}
					if !is {
						names = append(names, name)
					}
					return fs.SkipDir
				}
			}
			return nil
		}
		if ext := filepath.Ext(full); ext != ".yaml" && ext != ".yml" {
			return nil
		}
		content, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		if _, err := factory.SliceFromBytes(content); err != nil {
			return err
		}
		names = append(names, name)
		return nil
	})
	return names, err
}

// isComponent reports whether a kustomization file is one of a component. Generated kustomization files leave
// components out, which is a row of docs/comparison.md: Flux fails. Both fail if the file of a component is broken.
func isComponent(file string) (bool, error) {
	var is types.TypeMeta
	content, err := os.ReadFile(file)
	if err != nil || yaml.Unmarshal(content, &is) != nil || is.Kind != types.ComponentKind {
		return false, nil
	}
	return true, (&types.Kustomization{}).Unmarshal(content)
}

// TestBrokenComponentsAreRefused has a component with an unknown field that no kustomization file lists.
func TestBrokenComponentsAreRefused(t *testing.T) {
	files := map[string]string{"app/base/kustomization.yaml": "kind: Component\nunknownField: 1\n"}
	if difference := compareBuilds(t, files); difference != "" {
		t.Error(difference)
	}
	_, err := build.Build(t.Context(), build.Request{Tree: artifact.FromMap(files), Path: entry})
	if err == nil || !strings.Contains(err.Error(), "unknownField") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}

// TestReplacementsOfCertificates has the replacements that kubebuilder writes: the name and the namespace of a Service
// become parts of the entries of a list. Cluster API has them.
func TestReplacementsOfCertificates(t *testing.T) {
	replacement := func(field, index string) string {
		return "- source: {kind: Service, fieldPath: metadata." + field + "}\n  targets:\n" +
			"  - select: {kind: Certificate}\n    fieldPaths: [.spec.dnsNames.0, .spec.dnsNames.1]\n" +
			"    options: {delimiter: '.', index: " + index + ", create: true}\n"
	}
	difference := compareBuilds(t, map[string]string{
		"app/kustomization.yaml": "namespace: system\nnamePrefix: team-\nresources: [a.yaml]\nreplacements:\n" +
			replacement("name", "0") + replacement("namespace", "1"),
		"app/a.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n" +
			"apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: web}\n" +
			"spec: {dnsNames: [NAME.NAMESPACE.svc, NAME.NAMESPACE.svc.cluster.local, localhost]}\n",
	})
	if difference != "" {
		t.Error(difference)
	}
}

func showRepository(files map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&out, "=== %s\n%s\n", name, files[name])
	}
	return out.String()
}

// smallerRepositories returns the tree without one of its files, and without one of the lines of a file.
func smallerRepositories(files map[string]string) (all []map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		without := maps.Clone(files)
		delete(without, name)
		all = append(all, without)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		lines := strings.Split(files[name], "\n")
		for size := len(lines) / 2; size > 0; size /= 2 {
			for at := 0; at+size <= len(lines) && len(lines) > 1; at += size {
				with := maps.Clone(files)
				with[name] = strings.Join(slices.Delete(slices.Clone(lines), at, at+size), "\n")
				all = append(all, with)
			}
		}
	}
	return all
}
