package kustomization_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// put creates an object with the label of --watch-configs-label-selector.
func (s *harness) put(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	o.SetLabels(map[string]string{"reconcile.fluxcd.io/watch": "Enabled"})
	s.Create(o)
}

func TestSubstitutionVariables(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" +
			"data: {k: '${one} ${two} ${three} ${four:=default} $five $${six}'}\n",
		"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, annotations: " +
			"{kustomize.toolkit.fluxcd.io/substitute: disabled}}\ndata: {k: '${one}'}\n",
		"c.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec: {ports: [{port: '${port}'}]}\n",
	})
	s.put(&corev1.ConfigMap{Data: map[string]string{"one": "cm", "two": "cm", "three": "cm", "port": "8080"}}, "vars")
	s.put(&corev1.Secret{StringData: map[string]string{"two": "secret\n", "three": "secret"}}, "vars")
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.PostBuild = &kustomizev1.PostBuild{
			Substitute: map[string]string{"three": "spec"},
			SubstituteFrom: []meta.SubstituteReference{{Kind: "ConfigMap", Name: "vars"},
				{Kind: "Secret", Name: "vars"}, {Kind: "Secret", Name: "none", Optional: true}},
		}
	})
	s.Ready("app", commit)
	s.ConfigMapHas("a", "cm secret spec default $five ${six}")
	s.ConfigMapHas("b", "${one}")

	t.Log("a change of the Secret is applied at once")
	s.Patch(&corev1.Secret{}, "vars", `{"stringData":{"two":"changed"}}`)
	s.ConfigMapHas("a", "cm changed spec default $five ${six}")
	s.HasEvent("app", "Progressing", "ConfigMap/"+s.Namespace+"/a configured", "data.k: *** (before) → *** (after)")

	t.Log("the error names the missing variable and its place, but no value of a Secret")
	s.Patch(&corev1.ConfigMap{}, "vars", `{"data":{"one":null}}`)
	s.NotReady(&kustomizev1.Kustomization{}, "app", "BuildFailed", "variables are not set: one (data.k of ConfigMap/"+
		s.Namespace+"/a in a.yaml)")
	s.Patch(&corev1.ConfigMap{}, "vars", `{"data":{"one":"x"}}`)
	s.Patch(&corev1.Secret{}, "vars", `{"stringData":{"port":"hunter2hunter2"}}`)
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "***")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "app"); err != nil {
		t.Fatal(err)
	}
	message := apimeta.FindStatusCondition(k.Status.Conditions, "Ready").Message
	if strings.Contains(message, "hunter2") {
		t.Errorf("the message contains a secret: %s", message)
	}
}

func TestUnreadableVariables(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '${x:=default}'}\n"})
	s.GitRepository("app")
	from := func(kind, name string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.PostBuild = &kustomizev1.PostBuild{
				SubstituteFrom: []meta.SubstituteReference{{Kind: kind, Name: name}}}
		}
	}
	s.put(&corev1.Secret{StringData: map[string]string{"tls.crt": "hunter2hunter2"}}, "tls")
	s.Kustomization("none", "app", "", from("ConfigMap", "none"))
	s.Kustomization("name", "app", "", from("Secret", "tls"))
	s.NotReady(&kustomizev1.Kustomization{}, "none", "BuildFailed", "ConfigMap '"+s.Namespace+
		"/none' of spec.postBuild.substituteFrom not found. Create it, or set optional: true")
	s.NotReady(&kustomizev1.Kustomization{}, "name", "BuildFailed", "is not a valid variable name. Use "+
		"letters, digits and underscores; the first character cannot be a digit")

	t.Log("creating the missing ConfigMap reconciles; without variables the text is kept by default")
	s.put(&corev1.ConfigMap{}, "none")
	s.Ready("none", commit)
	s.ConfigMapHas("a", "${x:=default}")
	s.Patch(&kustomizev1.Kustomization{}, "none", `{"spec":{"postBuild":{"substituteStrategy":"Always"}}}`)
	s.ConfigMapHas("a", "default")
}

func TestDecryption(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	team, all := sopskey.New(t), sopskey.New(t)
	secret := func(by *sopskey.Key, name, value string) string {
		return by.Encrypt("yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: "+name+
			"\nstringData:\n  password: "+value+"\n")
	}
	commit := s.Git.Commit("app", map[string]string{"team/s.yaml": secret(team, "team", "hunter2"),
		"all/s.yaml": secret(all, "all", "hunter2")})
	s.GitRepository("app")
	// the Secret of --sops-age-secret
	s.put(&corev1.Secret{StringData: map[string]string{"all.agekey": all.PrivateKey}}, "sops-age")
	s.put(&corev1.Secret{StringData: map[string]string{"other.agekey": sopskey.New(t).PrivateKey}}, "keys")
	decryption := func(secretRef string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.Decryption = &kustomizev1.Decryption{Provider: "sops"}
			if secretRef != "" {
				k.Spec.Decryption.SecretRef = &meta.LocalObjectReference{Name: secretRef}
			}
		}
	}
	s.Kustomization("all", "app", "all", decryption(""))
	s.Kustomization("team", "app", "team", decryption("keys"))
	s.Kustomization("none", "app", "team")
	holds := func(name, want string) {
		t.Helper()
		testenv.Eventually(t, "Secret "+name+" has value "+want, func() error {
			o := &corev1.Secret{}
			if err := s.Get(o, name); err != nil {
				return err
			}
			if got := string(o.Data["password"]); got != want {
				return errors.New("it has another value")
			}
			return nil
		})
	}
	s.Ready("all", commit)
	holds("all", "hunter2")
	s.NotReady(&kustomizev1.Kustomization{}, "none", "BuildFailed", "Secret/"+s.Namespace+
		"/team in team/s.yaml is encrypted with SOPS. Set spec.decryption")

	t.Log("the error names the missing key; adding it to the Secret reconciles")
	s.NotReady(&kustomizev1.Kustomization{}, "team", "BuildFailed", "age "+team.Recipient)
	s.Patch(&corev1.Secret{}, "keys", `{"stringData":{"team.agekey":"`+team.PrivateKey+`"}}`)
	s.Ready("team", commit)
	holds("team", "hunter2")

	t.Log("events and status contain no decrypted values")
	s.Git.Commit("app", map[string]string{"team/s.yaml": secret(team, "team", "hunter3\n  bad/key: hunter3")})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "team", "ReconciliationFailed", "bad/key")
	checkNothingRevealed(t, s)
}

// checkNothingRevealed makes sure that no status and no event contains a decrypted value.
func checkNothingRevealed(t *testing.T, s *harness) {
	t.Helper()
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "team"); err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(k.Status)
	if err != nil || strings.Contains(string(status), "hunter") {
		t.Errorf("%s, %v", status, err)
	}
	events := &corev1.EventList{}
	if err := s.Client.List(t.Context(), events, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, "hunter") {
			t.Errorf("an event contains a decrypted value: %s", e.Message)
		}
	}
}

func TestEmptyBuildPrunesOnlyIfDeclared(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("kept", "1"), "other.md": "x"})
	s.GitRepository("app")
	s.Kustomization("app", "app", "app")
	s.Ready("app", commit)
	s.Git.Commit("app", map[string]string{"app/a.yaml": "", "app/readme.md": "moved"})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "BuildFailed", "pruning would delete all 1")
	s.ConfigMapHas("kept", "1")
	commit = s.Git.Commit("app", map[string]string{"app/kustomization.yaml": "resources: []\n"})
	s.RequestFetch("app")
	s.Ready("app", commit)
	s.Gone(&corev1.ConfigMap{}, "kept")
}

func TestRefusedObjectsAreNamedWithFile(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{
		"ok.yaml": system.ConfigMap("fine", "1"),
		"dir/svc.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\n" +
			"spec: {ports: [{port: 99999}]}\n",
		"dep.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: dep}\n" +
			"spec: {replicas: many, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
			"{containers: [{name: a}]}}}\n",
		"port.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: port}\n" +
			"spec: {ports: [{port: 99999}, {port: -1}]}\n",
	})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "3 objects refused, nothing was changed")
	for _, message := range []string{"/svc in dir/svc.yaml", "/dep in dep.yaml", "replicas",
		"/port in port.yaml", "spec.ports[0].port", "spec.ports[1].port"} {
		s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", message)
	}
	if err := s.Get(&corev1.ConfigMap{}, "fine"); !apierrors.IsNotFound(err) {
		t.Errorf("an object was applied: %v", err)
	}
}
