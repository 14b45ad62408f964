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
	"github.com/sluice-gitops/sluice/internal/cli/manifest"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestDiffKustomization checks that there is no difference to what the controller applied, until a file changes.
func TestDiffKustomization(t *testing.T) {
	c, namespace := withDefinitions(t)
	controllers(t)
	sops, git := testenv.NewSOPS(t), testenv.NewGit(t)
	files := map[string]string{
		"deploy/app.yaml": configMap + "${region}-${zone}\n",
		"deploy/old.yaml": strings.Replace(configMap, "name: app", "name: old", 1) + "\"1\"\n",
		"deploy/secret.yaml": sops.Encrypt("yaml",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: encrypted\nstringData:\n  password: hunter2\ndata:\n"+
				"  token: aHVudGVyMw==\n"),
		"deploy/plain.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: plain\nstringData:\n" +
			"  password: hunter4\n",
		"child/a.yaml":     strings.Replace(configMap, "name: app", "name: child", 1) + "l${at}\n",
		"deploy/vars.yaml": strings.Replace(configMap, "name: app", "name: level", 1) + "\"1\"\n",
		"deploy/child.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n" +
			"  name: child\nspec:\n  interval: 1h\n  path: ./child\n" +
			"  prune: true\n  targetNamespace: " + namespace + "\n  sourceRef: {kind: GitRepository, name: app}\n" +
			"  postBuild: {substituteFrom: [{kind: ConfigMap, name: level, optional: false}]}\n",
	}
	git.Commit("app", files)
	in := metav1.ObjectMeta{Namespace: namespace}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: withName(in, "vars"), Data: map[string]string{"region": "eu", "zone": "1"}},
		&corev1.Secret{ObjectMeta: withName(in, "keys"), StringData: map[string]string{"a.agekey": sops.PrivateKey}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	at(t, "create", "source", "git", "app", "--url", git.URL+"/app.git", "--branch", "main", "-n", namespace).
		wants(t, exitOK)
	ks := &kustomizev1.Kustomization{ObjectMeta: withName(in, "app")}
	ks.Spec = kustomizev1.KustomizationSpec{
		Interval: meta.Duration{Duration: 3600e9}, Path: "./deploy", Prune: true, TargetNamespace: namespace,
		Decryption: &kustomizev1.Decryption{Provider: "sops", SecretRef: localRef("keys")},
	}
	ks.Spec.PostBuild = &kustomizev1.PostBuild{
		SubstituteFrom: []meta.SubstituteReference{{Kind: "ConfigMap", Name: "vars"}}}
	ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name = "GitRepository", "app"
	if err := c.Create(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	at(t, "reconcile", "ks", "app", "-n", namespace).wants(t, exitOK)
	at(t, "reconcile", "ks", "child", "-n", namespace).wants(t, exitOK)

	dir := write(t, files)
	local := []string{"ks", "app", "--path", filepath.Join(dir, "deploy"), "-n", namespace}
	command := func(verb string, more ...string) []string { return append(append([]string{verb}, local...), more...) }
	built, err := manifest.Decode([]byte(at(t, command("build", "--recursive")...).wants(t, exitOK).out))
	if err != nil || len(built) != 7 {
		t.Fatalf("built %d objects, want 7 (%v)", len(built), err)
	}
	for _, o := range built {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(schema.FromAPIVersionAndKind(o.GetAPIVersion(), o.GetKind()))
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Secret" {
			continue // encrypted values are masked, and the API server does not store stringData
		}
		if missing := lacks(live.Object, o.Object, ""); missing != "" {
			t.Errorf("%s/%s: the applied object differs from the built one at %s", o.GetKind(), o.GetName(),
				missing)
		}
	}
	if r := at(t, command("diff", "--recursive")...).wants(t, exitOK, "no changes"); r.out != "" {
		t.Errorf("unexpected differences:\n%s", r.out)
	}

	change := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("deploy/app.yaml", configMap+"${region}-2\n")
	change("deploy/plain.yaml", strings.Replace(files["deploy/plain.yaml"], "hunter4", "hunter5", 1))
	change("deploy/new.yaml", strings.Replace(configMap, "name: app", "name: new", 1)+"\"1\"\n")
	// the child uses a variable of this ConfigMap
	change("deploy/vars.yaml", strings.Replace(files["deploy/vars.yaml"], "\"1\"", "\"2\"", 1))
	if err := os.Remove(filepath.Join(dir, "deploy/old.yaml")); err != nil {
		t.Fatal(err)
	}
	r := at(t, command("diff")...).wants(t, 1, "5 objects would change")
	golden(t, "diff.txt", r.out)
	r = at(t, command("diff", "--recursive")...).wants(t, 1, "6 objects would change")
	if !strings.Contains(r.out, "/child configured\n    ~ data.at: l1 → l2") || strings.Contains(r.out, "hunter") {
		t.Errorf("the diff is\n%s", r.out)
	}

	change("deploy/bad.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: bad\nspec:\n"+
		"  ports: [{port: 123456}]\n")
	at(t, command("diff")...).wants(t, 2, "spec.ports[0].port")
	change("deploy/bad.yaml", "")
	at(t, "diff", "ks", "none", "--path", dir, "-n", namespace).wants(t, 2, "none' not found")
	if err := os.Rename(filepath.Join(dir, "child"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	change("deploy/child.yaml", strings.NewReplacer("name: child", "name: later", "./child", "./moved").
		Replace(files["deploy/child.yaml"]))
	at(t, command("diff", "--recursive")...).wants(t, 2, "later' is not in the cluster", "--ignore-not-found")
	at(t, command("diff", "--recursive", "--ignore-not-found")...).wants(t, 1, "would change")

	for _, name := range []string{"app", "child"} {
		runWith(t.Context(), "", "delete", "ks", name, "--silent", "-n", namespace, "--kubeconfig",
			testenv.Kubeconfig(t))
	}
	at(t, "delete", "source", "git", "app", "--silent", "-n", namespace).wants(t, exitOK)
}

func withName(m metav1.ObjectMeta, name string) metav1.ObjectMeta {
	m.Name = name
	return m
}
