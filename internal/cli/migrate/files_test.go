package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/config"
)

const oldManifests = `# sources
apiVersion: source.toolkit.fluxcd.io/v1beta2 # old
kind: GitRepository
metadata: {name: app}
spec:
  include:
  - repository: {apiVersion: source.toolkit.fluxcd.io/v1beta2}
---
kind: "HelmRelease"
apiVersion: 'helm.toolkit.fluxcd.io/v2beta1'
metadata:
  name: {{ .Values.name }}
---
apiVersion: v1
kind: ConfigMap
data:
  text: |
    apiVersion: source.toolkit.fluxcd.io/v1beta2
    kind: GitRepository
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
`

func TestFilesRewritesOnlyVersions(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "apps", "all.yaml"), oldManifests)
	write(t, filepath.Join(dir, "windows.yml"), strings.ReplaceAll(oldManifests, "\n", "\r\n"))
	write(t, filepath.Join(dir, "notes.txt"), oldManifests)
	write(t, filepath.Join(dir, ".git", "x.yaml"), oldManifests)
	versions, err := VersionsOfFlux("v2.8.1")
	if err != nil {
		t.Fatal(err)
	}
	o := FileOptions{Path: dir, Extensions: []string{".yaml", ".yml"}, Versions: versions, DryRun: true}
	planned, err := Files(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "apps", "all.yaml")); got != oldManifests {
		t.Errorf("a dry run changed the file:\n%s", got)
	}
	o.DryRun = false
	found, err := Files(o)
	if err != nil || len(found) != 4 || len(planned) != 4 {
		t.Fatalf("got %v, %+v, planned %+v", err, found, planned)
	}
	want := strings.NewReplacer("apiVersion: source.toolkit.fluxcd.io/v1beta2 # old",
		"apiVersion: source.toolkit.fluxcd.io/v1 # old",
		"'helm.toolkit.fluxcd.io/v2beta1'", "'helm.toolkit.fluxcd.io/v2'").Replace(oldManifests)
	if got := read(t, filepath.Join(dir, "apps", "all.yaml")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := read(t, filepath.Join(dir, "windows.yml")); got != strings.ReplaceAll(want, "\n", "\r\n") {
		t.Errorf("got\n%q", got)
	}
	for _, same := range []string{"notes.txt", ".git/x.yaml"} {
		if got := read(t, filepath.Join(dir, same)); got != oldManifests {
			t.Errorf("%s was changed", same)
		}
	}
	if again, err := Files(o); err != nil || len(again) > 0 {
		t.Errorf("a second run changed %+v, %v", again, err)
	}
}

// TestVersionsOfFlux compares the newest version of each kind with the definitions of Flux's releases.
func TestVersionsOfFlux(t *testing.T) {
	for _, c := range []struct {
		kind     schema.GroupKind
		versions []string // of Flux 2.0, 2.1 and so on
	}{
		{sourceKind("GitRepository"), every("v1")},
		{sourceKind("HelmChart"), since(3, "v1beta2", "v1")},
		{sourceKind("HelmRepository"), since(3, "v1beta2", "v1")},
		{sourceKind("Bucket"), since(4, "v1beta2", "v1")},
		{sourceKind("OCIRepository"), since(6, "v1beta2", "v1")},
		{sourceKind("ExternalArtifact"), since(7, "", "v1")},
		{schema.GroupKind{Group: "source.extensions.fluxcd.io", Kind: "ArtifactGenerator"}, since(7, "", "v1beta1")},
		{schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}, every("v1")},
		{schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"},
			[]string{"v2beta1", "v2beta1", "v2beta2", "v2", "v2", "v2", "v2", "v2", "v2", "v2"}},
		{notificationKind("Receiver"), every("v1")},
		{notificationKind("Alert"), since(2, "v1beta2", "v1beta3")},
		{notificationKind("Provider"), since(2, "v1beta2", "v1beta3")},
		{imageKind("ImagePolicy"), since(7, "v1beta2", "v1")},
		{imageKind("ImageRepository"), since(7, "v1beta2", "v1")},
		{imageKind("ImageUpdateAutomation"), []string{"v1beta1", "v1beta1", "v1beta1", "v1beta2", "v1beta2", "v1beta2",
			"v1beta2", "v1", "v1", "v1"}},
	} {
		for minor, want := range c.versions {
			for _, flux := range []string{fmt.Sprintf("2.%d", minor), fmt.Sprintf("v2.%d.4", minor)} {
				if versions, err := VersionsOfFlux(flux); err != nil || versions[c.kind] != want {
					t.Errorf("%s of Flux %s: got %q, %v, want %q", c.kind.Kind, flux, versions[c.kind], err, want)
				}
			}
		}
	}
	for _, flux := range []string{"", "latest", "1.9", "3.0"} {
		if _, err := VersionsOfFlux(flux); err == nil {
			t.Errorf("%q is accepted", flux)
		}
	}
}

func sourceKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: "source.toolkit.fluxcd.io", Kind: kind}
}

func notificationKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: "notification.toolkit.fluxcd.io", Kind: kind}
}

func imageKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: "image.toolkit.fluxcd.io", Kind: kind}
}

func every(version string) []string { return since(0, "", version) }

// since returns the versions of a kind in Flux 2.0 to 2.9 that had another one before a minor version.
func since(minor int, before, version string) []string {
	return append(slices.Repeat([]string{before}, minor), slices.Repeat([]string{version}, 10-minor)...)
}

func TestIsOlder(t *testing.T) {
	ordered := []string{"v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta10", "v1", "v2alpha1", "v2beta1",
		"v2", "v10"}
	for i, a := range ordered {
		for j, b := range ordered {
			if isOlder(a, b) != (i < j) {
				t.Errorf("isOlder(%s, %s) is %t", a, b, i >= j)
			}
		}
	}
	if isOlder("1", "v2") || isOlder("v1", "latest") {
		t.Error("versions that cannot be read are compared")
	}
}

func FuzzRewriteManifest(f *testing.F) {
	f.Add([]byte(oldManifests))
	f.Add([]byte("---\napiVersion: a/v1beta1\r\nkind: B\n--- # x\nkind: C"))
	versions, err := VersionsOfFlux("2.9")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		after, found := rewriteManifest(content, versions)
		if len(found) == 0 && string(after) != string(content) {
			t.Fatalf("changed without a rewrite: %q", after)
		}
		if strings.Count(string(after), "\n") != strings.Count(string(content), "\n") {
			t.Fatalf("the number of lines changed: %q", after)
		}
		if _, again := rewriteManifest(after, versions); len(again) > 0 {
			t.Fatalf("a second rewrite changed %+v", again)
		}
	})
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestNewestVersionsOfDefinitions checks that manifests are never rewritten to a version below the newest one, although
// Alerts and Providers are stored in an older one.
func TestNewestVersionsOfDefinitions(t *testing.T) {
	definitions, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	newest := VersionsOf(definitions)
	for kind, want := range map[schema.GroupKind]string{
		{Group: "notification.toolkit.fluxcd.io", Kind: "Alert"}:      "v1",
		{Group: "notification.toolkit.fluxcd.io", Kind: "Provider"}:   "v1",
		{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"}:    "v1",
		{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}:        "v2",
		{Group: "image.toolkit.fluxcd.io", Kind: "ImageUpdateJob"}:    "v1alpha1",
		{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}: "v1",
	} {
		if newest[kind] != want {
			t.Errorf("%s: got %q, want %q", kind, newest[kind], want)
		}
	}
}
