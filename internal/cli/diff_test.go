package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
)

// diffTest is a Kustomization that a controller applied, and a checkout of its files.
type diffTest struct {
	client    client.Client
	namespace string
	dir       string
	files     map[string]string
}

// TestDiffKustomization checks that the output is empty for what the controller applied, until a file changes.
func TestDiffKustomization(t *testing.T) {
	c, namespace := withControllers(t)
	d := newDiffTest(t, c, namespace)
	defer func() {
		for _, name := range []string{"app", "child"} {
			at(t, "delete", "ks", name, "--silent", "-n", namespace)
		}
		at(t, "delete", "source", "git", "app", "--silent", "-n", namespace).wants(t, exitOK)
	}()
	d.checkBuildMatchesCluster(t)
	if r := d.run(t, "diff", "--recursive").wants(t, exitOK, "no changes"); r.out != "" {
		t.Errorf("unexpected differences:\n%s", r.out)
	}
	d.checkChanges(t)
	d.checkErrors(t)
}

// newDiffTest commits files, and applies them with the controllers.
func newDiffTest(t *testing.T, c client.Client, namespace string) *diffTest {
	t.Helper()
	sops, git := sopskey.New(t), testenv.NewGit(t)
	named := func(name string) string { return strings.Replace(configMap, "name: app", "name: "+name, 1) }
	files := map[string]string{
		"deploy/app.yaml": configMap + "${region}-${zone}\n",
		"deploy/old.yaml": named("old") + "\"1\"\n",
		"deploy/secret.yaml": sops.Encrypt("yaml",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: encrypted\nstringData:\n  password: hunter2\ndata:\n"+
				"  token: aHVudGVyMw==\n"),
		"deploy/plain.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: plain\nstringData:\n" +
			"  password: hunter4\n",
		"child/a.yaml":     named("child") + "l${at}\n",
		"deploy/vars.yaml": named("level") + "\"1\"\n",
		"deploy/child.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n" +
			"  name: child\nspec:\n  interval: 1h\n  path: ./child\n" +
			"  prune: true\n  targetNamespace: " + namespace + "\n  sourceRef: {kind: GitRepository, name: app}\n" +
			"  postBuild: {substituteFrom: [{kind: ConfigMap, name: level, optional: false}]}\n",
	}
	git.Commit("app", files)
	object := metav1.ObjectMeta{Namespace: namespace}
	ks := &kustomizev1.Kustomization{ObjectMeta: withName(object, "app")}
	ks.Spec = kustomizev1.KustomizationSpec{
		Interval: meta.Duration{Duration: 3600e9}, Path: "./deploy", Prune: true, TargetNamespace: namespace,
		Decryption: &kustomizev1.Decryption{Provider: "sops", SecretRef: localRef("keys")},
	}
	ks.Spec.PostBuild = &kustomizev1.PostBuild{
		SubstituteFrom: []meta.SubstituteReference{{Kind: "ConfigMap", Name: "vars"}}}
	ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name = "GitRepository", "app"
	at(t, "create", "source", "git", "app", "--url", git.URL+"/app.git", "--branch", "main", "-n", namespace).
		wants(t, exitOK)
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: withName(object, "vars"), Data: map[string]string{"region": "eu", "zone": "1"}},
		&corev1.Secret{ObjectMeta: withName(object, "keys"),
			StringData: map[string]string{"a.agekey": sops.PrivateKey}},
		ks,
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	at(t, "reconcile", "ks", "app", "-n", namespace).wants(t, exitOK)
	at(t, "reconcile", "ks", "child", "-n", namespace).wants(t, exitOK)
	return &diffTest{client: c, namespace: namespace, dir: write(t, files), files: files}
}

// run runs `sluice build` or `sluice diff` with the checkout.
func (d *diffTest) run(t *testing.T, verb string, flags ...string) result {
	t.Helper()
	args := []string{verb, "ks", "app", "--path", filepath.Join(d.dir, "deploy"), "-n", d.namespace}
	return at(t, append(args, flags...)...)
}

func (d *diffTest) change(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (d *diffTest) checkBuildMatchesCluster(t *testing.T) {
	t.Helper()
	built, err := manifest.Decode([]byte(d.run(t, "build", "--recursive").wants(t, exitOK).out))
	if err != nil || len(built) != 7 {
		t.Fatalf("built %d objects, want 7 (%v)", len(built), err)
	}
	for _, o := range built {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(schema.FromAPIVersionAndKind(o.GetAPIVersion(), o.GetKind()))
		if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Secret" {
			continue // encrypted values are masked, and the API server does not store stringData
		}
		if missing := lacks(live.Object, o.Object, ""); missing != "" {
			t.Errorf("%s/%s: the applied object differs from the built one at %s", o.GetKind(), o.GetName(), missing)
		}
	}
}

func (d *diffTest) checkChanges(t *testing.T) {
	t.Helper()
	d.change(t, "deploy/app.yaml", configMap+"${region}-2\n")
	d.change(t, "deploy/plain.yaml", strings.Replace(d.files["deploy/plain.yaml"], "hunter4", "hunter5", 1))
	d.change(t, "deploy/new.yaml", strings.Replace(configMap, "name: app", "name: new", 1)+"\"1\"\n")
	// the child uses a variable of this ConfigMap
	d.change(t, "deploy/vars.yaml", strings.Replace(d.files["deploy/vars.yaml"], "\"1\"", "\"2\"", 1))
	if err := os.Remove(filepath.Join(d.dir, "deploy/old.yaml")); err != nil {
		t.Fatal(err)
	}
	r := d.run(t, "diff").wants(t, 1, "5 objects would change")
	golden(t, "diff.txt", r.out)
	r = d.run(t, "diff", "--recursive").wants(t, 1, "6 objects would change")
	if !strings.Contains(r.out, "/child configured\n    ~ data.at: l1 → l2") || strings.Contains(r.out, "hunter") {
		t.Errorf("the diff is\n%s", r.out)
	}
}

func (d *diffTest) checkErrors(t *testing.T) {
	t.Helper()
	d.change(t, "deploy/bad.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: bad\nspec:\n"+
		"  ports: [{port: 123456}]\n")
	d.run(t, "diff").wants(t, 2, "spec.ports[0].port")
	d.change(t, "deploy/bad.yaml", "")
	at(t, "diff", "ks", "none", "--path", d.dir, "-n", d.namespace).wants(t, 2, "none' not found")
	if err := os.Rename(filepath.Join(d.dir, "child"), filepath.Join(d.dir, "moved")); err != nil {
		t.Fatal(err)
	}
	d.change(t, "deploy/child.yaml", strings.NewReplacer("name: child", "name: later", "./child", "./moved").
		Replace(d.files["deploy/child.yaml"]))
	d.run(t, "diff", "--recursive").wants(t, 2, "later' is not in the cluster", "--ignore-not-found")
	d.run(t, "diff", "--recursive", "--ignore-not-found").wants(t, 1, "would change")
}

func withName(m metav1.ObjectMeta, name string) metav1.ObjectMeta {
	m.Name = name
	return m
}
