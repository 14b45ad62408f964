package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// repository is a git repository whose directories are applied unchanged.
type repository struct {
	files   map[string]string
	dirs    []string
	unknown map[string][]string // kinds that the cluster does not serve, as plural.group/version/Kind, by directory
	wrong   map[string]string   // message for a directory that the API server rejects
}

// similar is modeled on real repositories: no kustomization.yaml, a definition with an object of its kind, a namespace
// with objects, an overlay, versions that are no longer served, and a kind that is not served.
var similar = repository{
	files: map[string]string{
		"operator/all.yaml": "# An operator\n---\n" +
			definition("things", "similar.example.com", "v1", "Thing") +
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: similar}\n",
		"operator/profile/thing.yaml": "apiVersion: similar.example.com/v1\nkind: Thing\n" +
			"metadata: {name: a, namespace: similar}\nspec: {x: 1}\n",
		"base/kustomization.yaml": "resources: [web.yaml, hpa.yaml]\n",
		"base/web.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
			"spec: {replicas: 0, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, " +
			"spec: {containers: [{name: web, image: nginx:1}]}}}\n",
		"base/hpa.yaml": "apiVersion: autoscaling/v2beta1\nkind: HorizontalPodAutoscaler\n" +
			"metadata: {name: web}\nspec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, " +
			"name: web}, metrics: [{type: Resource, resource: {name: cpu, targetAverageUtilization: 99}}]}\n",
		"overlay/kustomization.yaml": "namespace: similar-prod\nresources: [../base, namespace.yaml]\n" +
			"commonLabels: {env: prod}\nimages: [{name: nginx, newTag: '2'}]\n",
		"overlay/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: similar-prod}\n",
		"unknown/mesh.yaml": "apiVersion: mesh.similar.example.com/v1alpha1\nkind: Mesh\n" +
			"metadata: {name: mesh, namespace: similar}\nspec: {}\n",
		"unknown/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mesh, namespace: " +
			"similar}\n",
		"README.md":                      "# Similar\n",
		"operator/profile/.sourceignore": "*.md\n",
	},
	dirs:    []string{"operator", "overlay", "base", "unknown"},
	unknown: map[string][]string{"unknown": {"meshes.mesh.similar.example.com/v1alpha1/Mesh"}},
}

// realOnes are the documented repositories, by directory.
var realOnes = map[string]repository{
	"podinfo-deploy": {dirs: []string{
		"webapp/common", "webapp/backend", "webapp/frontend", "overlays/dev", "overlays/staging", "overlays/production",
		"plain", "default", "base/podinfo", "base/backend", "base/frontend",
	}, wrong: map[string]string{"webapp/test": "" +
		`Service/webapp/test in webapp/test/service.yaml: spec.type: Unsupported value: "Ingress"`}},
	"gitops-istio": {
		dirs: []string{"istio", "prod"},
		unknown: map[string][]string{"prod": {"sidecars.networking.istio.io/v1alpha3/Sidecar",
			"canaries.flagger.app/v1beta1/Canary"}},
		// Its definitions are of a version that Kubernetes removed in 1.22, and that the current version does
		// not replace unchanged.
		wrong: map[string]string{"flagger": "CustomResourceDefinition/canaries.flagger.app in " +
			"flagger/flagger-crds.yaml: the cluster does not serve kind CustomResourceDefinition of " +
			"apiextensions.k8s.io/v1beta1"},
	},
}

// realRoot returns the directory of the real repositories: $SLUICE_REALWORLD, or ../shared/realworld if it exists.
func realRoot(t *testing.T) string {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(root, "..", "shared", "realworld")
	if from := os.Getenv("SLUICE_REALWORLD"); from != "" {
		return from
	}
	if _, err := os.Stat(shared); err == nil {
		return shared
	}
	return ""
}

// The test applies every directory of the repositories with the built controllers. The condition names kinds
// that are not served. Once they are served, the directory is applied without a request.
func TestRepositoriesAreApplied(t *testing.T) {
	repositories := map[string]repository{"similar": similar}
	if root := realRoot(t); root == "" {
		t.Log("SLUICE_REALWORLD is not set: set it to the directory with gitops-istio and podinfo-deploy; only " +
			"a similar " +
			"repository is applied")
	} else {
		for name, r := range realOnes {
			r.files = filesBelow(t, filepath.Join(root, name))
			repositories[name] = r
		}
	}
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := testenv.Kubeconfig(t)
	if out, err := exec.Command(sluice, "install", "--crds-only", "--kubeconfig", kubeconfig).
		CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	namespace, git := testenv.Namespace(t), testenv.NewGit(t)
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	process := controller(t, sluice, kubeconfig, namespace, t.TempDir())
	defer func() {
		_ = process.Process.Signal(syscall.SIGTERM) // it may have stopped already
		_ = process.Wait()
	}()
	for name, r := range repositories {
		commit := git.Commit(name, r.files)
		for _, o := range r.declarations(namespace, git.URL, name) {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		for dir, kinds := range r.unknown {
			for _, kind := range kinds {
				message := "does not serve kind " + kind[strings.LastIndex(kind, "/")+1:]
				testenv.Eventually(t, name+"/"+dir+" reports that the cluster "+message,
					func() error { return refused(t, c, namespace, called(name, dir), message) })
			}
		}
		for dir, message := range r.wrong {
			testenv.Eventually(t, name+"/"+dir+" is refused",
				func() error { return refused(t, c, namespace, called(name, dir), message) })
		}
		for _, kinds := range r.unknown {
			for _, kind := range kinds {
				serve(t, c, kind)
			}
		}
		for _, dir := range r.dirs {
			testenv.Eventually(t, name+"/"+dir+" is applied",
				func() error { return whole(t, c, namespace, called(name, dir), commit) })
		}
	}
}

// called returns the name of the Kustomization of a directory.
func called(repo, dir string) string { return repo + "-" + strings.ReplaceAll(dir, "/", "-") }

func (r repository) declarations(namespace, url, name string) []client.Object {
	hour := meta.Duration{Duration: time.Hour}
	out := []client.Object{&sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: sourcev1.GitRepositorySpec{URL: url + "/" + name, Interval: hour,
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}},
	}}
	for _, dir := range slices.Concat(r.dirs, slices.Collect(maps.Keys(r.wrong))) {
		k := &kustomizev1.Kustomization{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: called(name, dir)},
			Spec: kustomizev1.KustomizationSpec{
				Interval: hour, RetryInterval: &meta.Duration{Duration: time.Second}, Path: dir, Prune: true,
				SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
					NamespacedName: meta.NamespacedName{Name: name}},
			},
		}
		if strings.HasPrefix(dir, "base") { // objects without a namespace
			k.Spec.TargetNamespace = namespace
		}
		out = append(out, k)
	}
	return out
}

// refused returns an error unless the Ready condition of a Kustomization is False and contains a text.
func refused(t *testing.T, c client.Client, namespace, name, message string) error {
	t.Helper()
	k := &kustomizev1.Kustomization{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, k); err != nil {
		return err
	}
	if ready := apimeta.FindStatusCondition(k.Status.Conditions, "Ready"); ready == nil ||
		!strings.Contains(ready.Message, message) {
		return fmt.Errorf("%+v", ready)
	}
	return nil
}

// whole returns an error unless a Kustomization is Ready at a commit and has applied objects.
func whole(t *testing.T, c client.Client, namespace, name, commit string) error {
	t.Helper()
	k := &kustomizev1.Kustomization{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, k); err != nil {
		return err
	}
	if !apimeta.IsStatusConditionTrue(k.Status.Conditions, "Ready") ||
		!strings.HasSuffix(k.Status.LastAppliedRevision, commit) || k.Status.Inventory == nil {
		return fmt.Errorf("%+v", apimeta.FindStatusCondition(k.Status.Conditions, "Ready"))
	}
	return nil
}

// serve creates the definition of a kind, given as plural.group/version/Kind.
func serve(t *testing.T, c client.Client, kind string) {
	t.Helper()
	plural, rest, _ := strings.Cut(kind, ".")
	parts := strings.Split(rest, "/")
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(definition(plural, parts[0], parts[1], parts[2])), &o.Object); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// definition returns the definition of a kind with any fields.
func definition(plural, group, version, kind string) string {
	return strings.NewReplacer("PLURAL", plural, "GROUP", group, "VERSION", version, "KIND", kind).Replace(
		"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: PLURAL.GROUP}\nspec:\n" +
			"  group: GROUP\n  names: {plural: PLURAL, kind: KIND}\n  scope: Namespaced\n  versions:\n" +
			"  - {name: VERSION, served: true, storage: true, schema: {openAPIV3Schema: {type: object, " +
			"x-kubernetes-preserve-unknown-fields: true}}}\n")
}

// filesBelow returns the files of a directory.
func filesBelow(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(file)
		files[filepath.ToSlash(name)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
