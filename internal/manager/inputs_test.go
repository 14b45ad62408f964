package manager

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func (s *system) put(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	o.SetLabels(map[string]string{"reconcile.fluxcd.io/watch": "Enabled"})
	s.create(o)
}

func (s *system) patch(o client.Object, name, patch string) {
	s.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	if err := s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

func TestVariablesComeFromTheSpecAndFromWhatItRefersTo(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" +
			"data: {k: '${one} ${two} ${three} ${four:=default} $five $${six}'}\n",
		"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, annotations: " +
			"{kustomize.toolkit.fluxcd.io/substitute: disabled}}\ndata: {k: '${one}'}\n",
		"c.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec: {ports: [{port: '${port}'}]}\n",
	})
	s.put(&corev1.ConfigMap{Data: map[string]string{"one": "cm", "two": "cm", "three": "cm", "port": "8080"}}, "vars")
	s.put(&corev1.Secret{StringData: map[string]string{"two": "secret\n", "three": "secret"}}, "vars")
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.PostBuild = &kustomizev1.PostBuild{
			Substitute: map[string]string{"three": "spec"},
			SubstituteFrom: []meta.SubstituteReference{{Kind: "ConfigMap", Name: "vars"},
				{Kind: "Secret", Name: "vars"}, {Kind: "Secret", Name: "none", Optional: true}},
		}
	})
	s.ready("app", commit)
	s.configMap("a", "cm secret spec default $five ${six}")
	s.configMap("b", "${one}")

	t.Log("a change of the Secret alone is followed at once")
	s.patch(&corev1.Secret{}, "vars", `{"stringData":{"two":"changed"}}`)
	s.configMap("a", "cm changed spec default $five ${six}")
	s.told("app", "Progressing", "ConfigMap/"+s.namespace+"/a configured", "data.k: *** (before) → *** (after)")

	t.Log("what is missing is named with its place, and no value of a Secret is told")
	s.patch(&corev1.ConfigMap{}, "vars", `{"data":{"one":null}}`)
	s.fails(&kustomizev1.Kustomization{}, "app", "BuildFailed", "variables are not set: one (data.k of ConfigMap/"+
		s.namespace+"/a in a.yaml)")
	s.patch(&corev1.ConfigMap{}, "vars", `{"data":{"one":"x"}}`)
	s.patch(&corev1.Secret{}, "vars", `{"stringData":{"port":"hunter2hunter2"}}`)
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "***")
	k := &kustomizev1.Kustomization{}
	if err := s.get(k, "app"); err != nil {
		t.Fatal(err)
	}
	if said := apimeta.FindStatusCondition(k.Status.Conditions, "Ready").Message; strings.Contains(said, "hunter2") {
		t.Errorf("a secret was told: %s", said)
	}
}

func TestVariablesThatCannotBeReadAreNamed(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '${x:=default}'}\n"})
	s.source("app")
	from := func(kind, name string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.PostBuild = &kustomizev1.PostBuild{
				SubstituteFrom: []meta.SubstituteReference{{Kind: kind, Name: name}}}
		}
	}
	s.put(&corev1.Secret{StringData: map[string]string{"tls.crt": "hunter2hunter2"}}, "tls")
	s.sync("none", "app", "", from("ConfigMap", "none"))
	s.sync("name", "app", "", from("Secret", "tls"))
	s.fails(&kustomizev1.Kustomization{}, "none", "BuildFailed", "ConfigMap '"+s.namespace+
		"/none' of spec.postBuild.substituteFrom not found")
	s.fails(&kustomizev1.Kustomization{}, "name", "BuildFailed", `key "tls.crt" of Secret`)

	t.Log("the ConfigMap that was missing wakes it; without variables the text stays, unless the strategy says " +
		"otherwise")
	s.put(&corev1.ConfigMap{}, "none")
	s.ready("none", commit)
	s.configMap("a", "${x:=default}")
	s.patch(&kustomizev1.Kustomization{}, "none", `{"spec":{"postBuild":{"substituteStrategy":"Always"}}}`)
	s.configMap("a", "default")
}

func TestFeatureGateDecidesOverTheFlag(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": true} {
		o := Options{StrictSubstitutions: true, FeatureGates: map[string]string{"StrictPostBuildSubstitutions": value}}
		if o.strictSubstitutions() != want {
			t.Errorf("%q: %v", value, !want)
		}
	}
	for gate, says := range map[string]string{"StrictPostBuildSubstitutions": "true or false", "Some": "not known"} {
		o := Options{Controllers: AllControllers, Concurrent: 1, FeatureGates: map[string]string{gate: "maybe"}}
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), gate) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", gate, err)
		}
	}
}

func TestSecretsAreDecryptedWithTheKeysAtHand(t *testing.T) {
	s := newSystem(t)
	team, all := testenv.NewSOPS(t), testenv.NewSOPS(t)
	secret := func(by *testenv.SOPS, name, value string) string {
		return by.Encrypt("yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: "+name+
			"\nstringData:\n  password: "+value+"\n")
	}
	commit := s.git.Commit("app", map[string]string{"team/s.yaml": secret(team, "team", "hunter2"),
		"all/s.yaml": secret(all, "all", "hunter2")})
	s.source("app")
	// of --sops-age-secret
	s.put(&corev1.Secret{StringData: map[string]string{"all.agekey": all.PrivateKey}}, "sops-age")
	s.put(&corev1.Secret{StringData: map[string]string{"other.agekey": testenv.NewSOPS(t).PrivateKey}}, "keys")
	decryption := func(secretRef string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.Decryption = &kustomizev1.Decryption{Provider: "sops"}
			if secretRef != "" {
				k.Spec.Decryption.SecretRef = &meta.LocalObjectReference{Name: secretRef}
			}
		}
	}
	s.sync("all", "app", "all", decryption(""))
	s.sync("team", "app", "team", decryption("keys"))
	s.sync("none", "app", "team")
	holds := func(name, want string) {
		t.Helper()
		testenv.Eventually(t, "Secret "+name+" holds "+want, func() error {
			o := &corev1.Secret{}
			if err := s.get(o, name); err != nil {
				return err
			}
			if got := string(o.Data["password"]); got != want {
				return errors.New("it holds another value")
			}
			return nil
		})
	}
	s.ready("all", commit)
	holds("all", "hunter2")
	s.fails(&kustomizev1.Kustomization{}, "none", "BuildFailed", "Secret/"+s.namespace+
		"/team in team/s.yaml is encrypted with SOPS. Set spec.decryption")

	t.Log("the key that is missing is named; a change of the Secret brings it")
	s.fails(&kustomizev1.Kustomization{}, "team", "BuildFailed", "age "+team.Recipient)
	s.patch(&corev1.Secret{}, "keys", `{"stringData":{"team.agekey":"`+team.PrivateKey+`"}}`)
	s.ready("team", commit)
	holds("team", "hunter2")

	t.Log("what is decrypted is in no event and no status")
	s.git.Commit("app", map[string]string{"team/s.yaml": secret(team, "team", "hunter3\n  bad/key: hunter3")})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "team", "ReconciliationFailed", "bad/key")
	k := &kustomizev1.Kustomization{}
	if err := s.get(k, "team"); err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(k.Status)
	if err != nil || strings.Contains(string(status), "hunter") {
		t.Errorf("%s, %v", status, err)
	}
	events := &corev1.EventList{}
	if err := s.client.List(t.Context(), events, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, "hunter") {
			t.Errorf("an event tells: %s", e.Message)
		}
	}
}

func TestABuildWithoutObjectsPrunesOnlyWhenTheSourceSaysSo(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"app/a.yaml": cm("kept", "1"), "other.md": "x"})
	s.source("app")
	s.sync("app", "app", "app")
	s.ready("app", commit)
	s.git.Commit("app", map[string]string{"app/a.yaml": "", "app/readme.md": "moved"})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "app", "BuildFailed", "pruning would delete all 1")
	s.configMap("kept", "1")
	commit = s.git.Commit("app", map[string]string{"app/kustomization.yaml": "resources: []\n"})
	s.pull("app")
	s.ready("app", commit)
	s.gone(&corev1.ConfigMap{}, "kept")
}

func TestEveryRefusedObjectIsNamedWithItsFile(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{
		"ok.yaml": cm("fine", "1"),
		"dir/svc.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\n" +
			"spec: {ports: [{port: 99999}], typo: x}\n",
		"dep.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: dep}\n" +
			"spec: {replicas: many, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
			"{containers: [{name: a}]}}}\n",
		"port.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: port}\n" +
			"spec: {ports: [{port: 99999}, {port: -1}]}\n",
	})
	s.source("app")
	s.sync("app", "app", "")
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "3 objects refused, nothing was changed")
	for _, says := range []string{"/svc in dir/svc.yaml", ".spec.typo", "/dep in dep.yaml", "replicas",
		"/port in port.yaml", "spec.ports[0].port", "spec.ports[1].port"} {
		s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", says)
	}
	if err := s.get(&corev1.ConfigMap{}, "fine"); !apierrors.IsNotFound(err) {
		t.Errorf("something was applied: %v", err)
	}
}

func TestRemoteBasesAreFetchedWithinBounds(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a.yaml":
			_, _ = w.Write([]byte("a: b")) // the client may be gone
		case "/large.yaml":
			_, _ = w.Write(make([]byte, maxBase+1)) // the client may be gone
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	transport := server.Client().Transport
	if (&Options{NoRemoteBases: true}).fetchBase(transport) != nil {
		t.Error("they can be fetched where they are refused")
	}
	fetch := (&Options{}).fetchBase(transport)
	if b, err := fetch(t.Context(), server.URL+"/a.yaml"); err != nil || string(b) != "a: b" {
		t.Errorf("%q, %v", b, err)
	}
	for path, says := range map[string]string{"/large.yaml": "larger than 10 MiB", "/none.yaml?token=hunter2": "404"} {
		if _, err := fetch(t.Context(), server.URL+path); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
