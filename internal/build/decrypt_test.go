package build

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
)

// vault encrypts files for one key.
func vault(t *testing.T) (*sopskey.Key, *decrypt.Keys) {
	t.Helper()
	s := sopskey.New(t)
	keys, err := decrypt.FromSecret(map[string][]byte{"a.agekey": []byte(s.PrivateKey)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, keys
}

const secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: NAME\nstringData:\n  password: hunter2\n"

func secretNamed(name string) string { return strings.ReplaceAll(secret, "NAME", name) }

func TestEverythingThatABuildReadsIsDecrypted(t *testing.T) {
	s, keys := vault(t)
	tree := artifact.FromMap(map[string]string{
		"kustomization.yaml": `resources: [base, value.yaml, left.yaml]
namePrefix: x-
secretGenerator:
- {name: files, files: [token=token.enc, config.json=config.json.encrypted], options: {disableNameSuffixHash: true}}
- {name: envs, envs: [config.env.enc], options: {disableNameSuffixHash: true}}
- name: raw
  files: [token=raw.enc]
  options: {disableNameSuffixHash: true, annotations: {kustomize.toolkit.fluxcd.io/decrypt: disabled}}
configMapGenerator: [{name: cm, files: [app.ini], options: {disableNameSuffixHash: true}}]
patches: [{path: patch.yaml}]
`,
		"base/s.yaml":             s.Encrypt("yaml", secretNamed("a")+"---\n"+secretNamed("b")),
		"base/kustomization.yaml": "resources: [s.yaml]\n",
		"patch.yaml": s.Encrypt("yaml",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: b\nstringData:\n  added: hunter2\n"),
		"token.enc": s.Encrypt("binary", "hunter2"), "raw.enc": s.Encrypt("binary", "hunter2"),
		"config.json.encrypted": s.Encrypt("json", `{"password": "hunter2"}`),
		"config.env.enc":        s.Encrypt("dotenv", "PASSWORD=hunter2\n"),
		"app.ini":               s.Encrypt("ini", "[db]\npassword = hunter2\n"),
		"value.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: value}\ndata: {token: " +
			base64.StdEncoding.EncodeToString([]byte(s.Encrypt("binary", "hunter2"))) + "}\n",
		"left.yaml": s.Encrypt("yaml", strings.Replace(secretNamed("left"), "name: left",
			"name: left\n  annotations: {kustomize.toolkit.fluxcd.io/decrypt: disabled}", 1)),
	})
	result, err := Build(t.Context(), Request{Tree: tree, Decryption: keys})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range result.Objects {
		text := fmt.Sprint(o.Object["stringData"])
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range data {
			if b, err := base64.StdEncoding.DecodeString(v); err == nil && isSecret(o) {
				v = string(b)
			}
			text += v
		}
		got[o.GetName()] = text
		if left := o.GetName() == "x-left"; (o.Object["sops"] != nil) != left {
			t.Errorf("%s: sops %v", o.GetName(), o.Object["sops"])
		}
	}
	checkDecrypted(t, got)
}

// checkDecrypted checks the data of the built objects, by name.
func checkDecrypted(t *testing.T, got map[string]string) {
	t.Helper()
	for name, want := range map[string]string{
		"x-a": "password:hunter2", "x-b": "added:hunter2 password:hunter2", "x-files": `"password": "hunter2"`,
		"x-envs": "hunter2", "x-cm": "password = hunter2", "x-value": "hunter2",
	} {
		if !strings.Contains(got[name], want) || strings.Contains(got[name], "ENC[") {
			t.Errorf("%s holds %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"x-raw", "x-left"} {
		if strings.Contains(got[name], "hunter2") || !strings.Contains(got[name], "ENC[") {
			t.Errorf("%s was decrypted: %s", name, got[name])
		}
	}
}

func TestNoErrorHoldsWhatWasDecrypted(t *testing.T) {
	s, keys := vault(t)
	substitution := &Substitution{Variables: map[string]string{"x": "y"}, Strict: true}
	for reason, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"an invalid patch": {files: map[string]string{
			"kustomization.yaml": "resources: [s.yaml]\npatches: [{path: p.yaml, target: {kind: Secret}}]\n",
			"s.yaml":             s.Encrypt("yaml", secretNamed("a")),
			"p.yaml":             s.Encrypt("binary", "hunter2: [hunter2"),
		}, says: "kustomize cannot build"},
		"a generator's input": {files: map[string]string{
			"kustomization.yaml": "secretGenerator: [{name: x, envs: [a.env]}]\n",
			"a.env":              s.Encrypt("binary", "\xff hunter2"),
		}, says: "content decrypted from a.env. The error is not shown, because it may contain a secret. Decrypt " +
			"the files and run the build locally to see the error"},
		"a value with braces": {files: map[string]string{"s.yaml": s.Encrypt("yaml",
			strings.Replace(secretNamed("a"), "hunter2", "'${1hunter2}'", 1))}, says: "decrypted from s.yaml"},
		"no object": {files: map[string]string{"s.yaml": s.Encrypt("yaml", "a: hunter2\n")},
			says: "s.yaml, line 1: this is not a Kubernetes object"},
		"an error in a plain file": {files: map[string]string{"s.yaml": s.Encrypt("yaml", secretNamed("a")),
			"b.yaml": "x: [\n"},
			says: "b.yaml is not valid YAML"},
	} {
		_, err := Build(t.Context(), Request{Tree: artifact.FromMap(c.files), Decryption: keys,
			Substitution: substitution})
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

func TestEveryFileThatCannotBeDecryptedIsNamed(t *testing.T) {
	ours, keys := vault(t)
	theirs := sopskey.New(t)
	value := base64.StdEncoding.EncodeToString([]byte(theirs.Encrypt("binary", "hunter2")))
	files := map[string]string{"a.yaml": theirs.Encrypt("yaml", secretNamed("a")),
		"b.yaml": ours.Encrypt("yaml", secretNamed("b")), "c.yaml": theirs.Encrypt("yaml", secretNamed("c"))}
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(files), Decryption: keys})
	if err == nil || !strings.Contains(err.Error(), "a.yaml cannot be decrypted") ||
		!strings.Contains(err.Error(), "c.yaml") || !strings.Contains(err.Error(), theirs.Recipient) || result.Again {
		t.Errorf("got %v", err)
	}
	_, err = Build(t.Context(), Request{Tree: artifact.FromMap(
		map[string]string{"v.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: v}\ndata: {t: " + value + "}\n"}),
		Decryption: keys})
	if err == nil || !strings.Contains(err.Error(), "data.t of Secret/v in v.yaml") {
		t.Errorf("got %v", err)
	}
	_, err = Build(t.Context(), Request{Tree: artifact.FromMap(files)})
	if err == nil || !strings.Contains(err.Error(), "Secret/a in a.yaml is encrypted with SOPS. Set "+
		"spec.decryption to provide the keys") {
		t.Errorf("got %v", err)
	}
}
