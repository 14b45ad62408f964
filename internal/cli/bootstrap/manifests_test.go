package bootstrap

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestWithResources(t *testing.T) {
	complete := "# mine\nresources: [./gotk-sync.yaml, gotk-components.yaml]\npatches:\n- path: a.yaml # why\n"
	for name, c := range map[string]struct{ content, want, fails string }{
		"new": {want: "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n" +
			"  - gotk-components.yaml\n  - gotk-sync.yaml\n"},
		"complete": {content: complete, want: complete},
		"empty": {content: "# mine\n", want: "# mine\napiVersion: kustomize.config.k8s.io/v1beta1\n" +
			"kind: Kustomization\nresources:\n  - gotk-components.yaml\n  - gotk-sync.yaml\n"},
		"one is missing": {content: "resources:\n  - a.yaml # keep\n  - gotk-components.yaml\nnamePrefix: a-\n",
			want: "resources:\n  - a.yaml # keep\n  - gotk-components.yaml\n  - gotk-sync.yaml\nnamePrefix: a-\n"},
		"no list":    {content: "resources:\n", want: "resources:\n  - gotk-components.yaml\n  - gotk-sync.yaml\n"},
		"not YAML":   {content: "a: [", fails: "not a valid kustomization file"},
		"not a list": {content: "resources: a", fails: "not a valid kustomization file"},
		"a list":     {content: "- a", fails: "not a valid kustomization file"},
	} {
		var content []byte
		if c.content != "" {
			content = []byte(c.content)
		}
		got, err := withResources(content, ComponentsFile, SyncFile)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: got error %v, want %q", name, err, c.fails)
			}
			continue
		}
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %v\n%s\nwant\n%s", name, err, got, c.want)
		}
	}
}

func FuzzWithResources(f *testing.F) {
	for _, seed := range []string{"", "resources:\n- a\n", "a: &a [*a]", "resources: {a: b}", "---\n---\n", "# only",
		"---\n# a\n---\na: b\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := withResources(content, ComponentsFile, SyncFile)
		if err != nil {
			return
		}
		listed, err := resourcesOf(got)
		if err != nil {
			t.Fatalf("the result cannot be read: %v\n%s", err, got)
		}
		if !yamlHas(listed, ComponentsFile) || !yamlHas(listed, SyncFile) {
			t.Errorf("the result lacks a file:\n%s", got)
		}
	})
}

func yamlHas(listed []string, name string) bool {
	for _, l := range listed {
		if strings.TrimPrefix(l, "./") == name {
			return true
		}
	}
	return false
}

func TestCleanPath(t *testing.T) {
	for path, want := range map[string]string{"": "", ".": "", "./": "", "/": "", "./clusters/one/": "clusters/one",
		"/clusters//one": "clusters/one", "clusters/..one": "clusters/..one"} {
		if got, err := CleanPath(path); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"..", "../other", "a/../../b", "a/..", `a\..\b`, "a\nb", "a\x00b"} {
		if got, err := CleanPath(path); err == nil {
			t.Errorf("%q is accepted as %q", path, got)
		}
	}
}

func TestSyncManifests(t *testing.T) {
	r := &run{Options: Options{Namespace: "flux-system", Path: "clusters/one", Branch: "main", Interval: 60e9,
		SecretName: "login", RecurseSubmodules: true}, syncURL: "ssh://git@example.com/fleet"}
	b, err := r.syncManifests()
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(b)))
	var source, kustomization struct {
		Kind string
		Spec map[string]any
	}
	if err := decoder.Decode(&source); err != nil {
		t.Fatal(err)
	}
	if err := decoder.Decode(&kustomization); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{"url": r.syncURL, "interval": "1m0s", "recurseSubmodules": true} {
		if got := source.Spec[field]; got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if kustomization.Spec["path"] != "./clusters/one" || kustomization.Spec["prune"] != true {
		t.Errorf("the Kustomization is %v", kustomization.Spec)
	}
}

func TestHostURLs(t *testing.T) {
	h := &Host{Path: "org/fleet"}
	h.Base.Scheme, h.Base.Host = "https", "git.example.com:8443"
	for told, want := range map[string]string{
		"https://git.example.com:8443/org/Fleet.git":           "https://git.example.com:8443/org/Fleet.git",
		"https://me:secret@git.example.com:8443/org/fleet.git": "https://git.example.com:8443/org/fleet.git",
		"https://evil.example.com/org/fleet.git":               "https://git.example.com:8443/org/fleet.git",
		"http://git.example.com:8443/org/fleet.git":            "https://git.example.com:8443/org/fleet.git",
		"": "https://git.example.com:8443/org/fleet.git",
	} {
		if got := h.cloneURL(told); got != want {
			t.Errorf("clone of %q: got %s, want %s", told, got, want)
		}
	}
	for _, c := range []struct{ told, hostname, want string }{
		{told: "git@ssh.example.com:org/fleet.git", want: "ssh://git@ssh.example.com/org/fleet.git"},
		{told: "ssh://git@git.example.com:7999/org/fleet.git", want: "ssh://git@git.example.com:7999/org/fleet.git"},
		{told: "", want: "ssh://git@git.example.com/org/fleet.git"},
		{told: "git@ssh.example.com:org/fleet.git", hostname: "other:2222", want: "ssh://git@other:2222/org/fleet.git"},
	} {
		h.SSHHostname = c.hostname
		if got, err := h.sshURL(c.told); err != nil || got != c.want {
			t.Errorf("SSH of %q: got %s, %v, want %s", c.told, got, err, c.want)
		}
	}
}
