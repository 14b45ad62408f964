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
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" +
			"data: {k: '${one} ${two} ${three} ${four:=default} $five $${six}'}\n",
		"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, annotations: " +
			"{kustomize.toolkit.fluxcd.io/substitute: disabled}}\ndata: {k: '${one}'}\n",
		"c.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec: {ports: [{port: '${port}'}]}\n",
	})
	s.put(&corev1.ConfigMap{Data: map[string]string{"one": "cm", "two": "cm", "three": "cm", "port": "8080"}}, "vars")
	s.put(&corev1.Secret{StringData: map[string]string{"two": "secret\n", "three": "secret"}}, "vars")
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.PostBuild = &kustomizev1.PostBuild{
			Substitute: map[string]string{"three": "spec"},
			SubstituteFrom: []meta.SubstituteReference{{Kind: "ConfigMap", Name: "vars"},
				{Kind: "Secret", Name: "vars"}, {Kind: "Secret", Name: "none", Optional: true}},
		}
	})
	s.Ready("app", commit)
	s.ConfigMapHas("a", "cm secret spec default $five ${six}")
	s.ConfigMapHas("b", "${one}")

	t.Log("a change of the Secret is applied")
	s.Patch(&corev1.Secret{}, "vars", `{"stringData":{"two":"changed"}}`)
	s.Pass("app")
	s.ConfigMapHas("a", "cm changed spec default $five ${six}")
	s.HasEvent("app", "Progressing", "ConfigMap/"+s.Namespace+"/a configured", "data.k: *** (before) → *** (after)")

	t.Log("the error names the missing variable and its place, but no value of a Secret")
	s.Patch(&corev1.ConfigMap{}, "vars", `{"data":{"one":null}}`)
	s.Pass("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "BuildFailed", "variables are not set: one (data.k of ConfigMap/"+
		s.Namespace+"/a in a.yaml)")
	s.Patch(&corev1.ConfigMap{}, "vars", `{"data":{"one":"x"}}`)
	s.Patch(&corev1.Secret{}, "vars", `{"stringData":{"port":"hunter2hunter2"}}`)
	s.Pass("app")
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

// TestChangedInputsReconcile only changes what Kustomizations read: the Kustomization is reconciled at once.
func TestChangedInputsReconcile(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	key := sopskey.New(t)
	commit := s.Git.Commit("app", map[string]string{
		"vars/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '${one} ${two}'}\n",
		"team/s.yaml": key.Encrypt("yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: team\n"+
			"stringData:\n  password: hunter2\n")})
	s.GitRepository("app")
	s.put(&corev1.Secret{StringData: map[string]string{"two": "2"}}, "vars")
	s.put(&corev1.Secret{StringData: map[string]string{"other.agekey": sopskey.New(t).PrivateKey}}, "keys")
	s.Kustomization("vars", "app", "vars", func(k *kustomizev1.Kustomization) {
		k.Spec.PostBuild = &kustomizev1.PostBuild{SubstituteFrom: []meta.SubstituteReference{
			{Kind: "ConfigMap", Name: "vars"}, {Kind: "Secret", Name: "vars"}}}
	})
	s.Kustomization("team", "app", "team", func(k *kustomizev1.Kustomization) {
		k.Spec.Decryption = &kustomizev1.Decryption{Provider: "sops",
			SecretRef: &meta.LocalObjectReference{Name: "keys"}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "vars", "BuildFailed", "not found")
	s.put(&corev1.ConfigMap{Data: map[string]string{"one": "1"}}, "vars")
	s.ConfigMapHas("a", "1 2")
	s.Ready("vars", commit)
	s.Patch(&corev1.Secret{}, "vars", `{"stringData":{"two":"changed"}}`)
	s.ConfigMapHas("a", "1 changed")
	s.Patch(&corev1.ConfigMap{}, "vars", `{"data":{"one":"another"}}`)
	s.ConfigMapHas("a", "another changed")
	s.NotReady(&kustomizev1.Kustomization{}, "team", "BuildFailed", "age "+key.Recipient)
	s.Patch(&corev1.Secret{}, "keys", `{"stringData":{"team.agekey":"`+key.PrivateKey+`"}}`)
	s.Ready("team", commit)
}

func TestUnreadableVariables(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '${x:=default}'}\n"})
	from := func(kind, name string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.PostBuild = &kustomizev1.PostBuild{
				SubstituteFrom: []meta.SubstituteReference{{Kind: kind, Name: name}}}
		}
	}
	s.put(&corev1.Secret{StringData: map[string]string{"tls.crt": "hunter2hunter2"}}, "tls")
	s.apply("none", "app", "", from("ConfigMap", "none"))
	s.apply("name", "app", "", from("Secret", "tls"))
	s.NotReady(&kustomizev1.Kustomization{}, "none", "BuildFailed", "ConfigMap '"+s.Namespace+
		"/none' of spec.postBuild.substituteFrom not found. Create it, or set optional: true")
	s.NotReady(&kustomizev1.Kustomization{}, "name", "BuildFailed", "is not a valid variable name. Use "+
		"letters, digits and underscores; the first character cannot be a digit")

	t.Log("the missing ConfigMap is created; without variables the text is kept by default")
	s.put(&corev1.ConfigMap{}, "none")
	s.Pass("none")
	s.Ready("none", commit)
	s.ConfigMapHas("a", "${x:=default}")
	s.patch("none", `{"spec":{"postBuild":{"substituteStrategy":"Always"}}}`)
	s.ConfigMapHas("a", "default")
}

func TestDecryption(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	team, all := sopskey.New(t), sopskey.New(t)
	secret := func(by *sopskey.Key, name, value string) string {
		return by.Encrypt("yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: "+name+
			"\nstringData:\n  password: "+value+"\n")
	}
	commit := s.Commit("app", map[string]string{"team/s.yaml": secret(team, "team", "hunter2"),
		"all/s.yaml": secret(all, "all", "hunter2")})
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
	s.apply("all", "app", "all", decryption(""))
	s.apply("team", "app", "team", decryption("keys"))
	s.apply("none", "app", "team")
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

	t.Log("the error names the missing key, which is then added to the Secret")
	s.NotReady(&kustomizev1.Kustomization{}, "team", "BuildFailed", "age "+team.Recipient)
	s.Patch(&corev1.Secret{}, "keys", `{"stringData":{"team.agekey":"`+team.PrivateKey+`"}}`)
	s.Pass("team")
	s.Ready("team", commit)
	holds("team", "hunter2")

	t.Log("events and status contain no decrypted values")
	s.Commit("app", map[string]string{"team/s.yaml": secret(team, "team", "hunter3\n  bad/key: hunter3")})
	s.Pass("team")
	s.NotReady(&kustomizev1.Kustomization{}, "team", "ReconciliationFailed", "bad/key")
	checkNothingRevealed(t, s)
}

// checkNothingRevealed makes sure that no status and no event contains a decrypted value.
func checkNothingRevealed(t *testing.T, s *steps) {
	t.Helper()
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "team"); err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(k.Status)
	if err != nil || strings.Contains(string(status), "hunter") {
		t.Errorf("%s, %v", status, err)
	}
	events := s.system.Events()
	if len(events) == 0 {
		t.Error("no event was emitted")
	}
	for _, e := range events {
		if strings.Contains(e.Note, "hunter") {
			t.Errorf("an event contains a decrypted value: %s", e.Note)
		}
	}
}

func TestEmptyBuildPrunesOnlyIfDeclared(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("kept", "1"), "other.md": "x"})
	s.apply("app", "app", "app")
	s.Ready("app", commit)
	s.Commit("app", map[string]string{"app/a.yaml": "", "app/readme.md": "moved"})
	s.Pass("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "BuildFailed", "pruning would delete all 1")
	s.ConfigMapHas("kept", "1")
	commit = s.Commit("app", map[string]string{"app/kustomization.yaml": "resources: []\n"})
	s.Pass("app")
	s.Ready("app", commit)
	s.Gone(&corev1.ConfigMap{}, "kept")
}

func TestRefusedObjectsAreNamedWithFile(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{
		"ok.yaml": system.ConfigMap("fine", "1"),
		"dir/svc.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\n" +
			"spec: {ports: [{port: 99999}]}\n",
		"dep.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: dep}\n" +
			"spec: {replicas: many, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
			"{containers: [{name: a}]}}}\n",
		"port.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: port}\n" +
			"spec: {ports: [{port: 99999}, {port: -1}]}\n",
	})
	s.apply("app", "app", "")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "3 objects refused, nothing was changed")
	for _, message := range []string{"/svc in dir/svc.yaml", "/dep in dep.yaml", "replicas",
		"/port in port.yaml", "spec.ports[0].port", "spec.ports[1].port"} {
		s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", message)
	}
	if err := s.Get(&corev1.ConfigMap{}, "fine"); !apierrors.IsNotFound(err) {
		t.Errorf("an object was applied: %v", err)
	}
}
