package config_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/config"
)

// definition is the part of a CustomResourceDefinition that these tests read.
type definition struct {
	Spec struct {
		Names struct {
			Plural, Kind string
			Categories   []string
		}
		Versions []struct {
			Name            string
			Served, Storage bool
		}
	}
}

func definitions(t *testing.T) map[string]definition {
	t.Helper()
	files, err := fs.Glob(config.Files, "crd/*_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	all := map[string]definition{}
	for _, file := range files {
		text, err := config.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		all[d.Spec.Names.Kind] = d
	}
	return all
}

// TestCategoriesAreThoseOfFlux checks that `kubectl get fluxcd` and its like list the kinds that they list with Flux.
func TestCategoriesAreThoseOfFlux(t *testing.T) {
	want := map[string]string{}
	for category, kinds := range map[string]string{
		"fluxcd-sources": "Bucket ExternalArtifact GitRepository HelmChart HelmRepository OCIRepository " +
			"ArtifactGenerator ResourceSetInputProvider ClusterInputProvider",
		"fluxcd-appliers":      "Kustomization HelmRelease ResourceSet",
		"fluxcd-notifications": "Alert Provider Receiver",
		"fluxcd-images":        "ImagePolicy ImageRepository ImageUpdateAutomation",
	} {
		for kind := range strings.FieldsSeq(kinds) {
			want[kind] = category
		}
	}
	all := definitions(t)
	for kind, category := range want {
		if got := all[kind].Spec.Names.Categories; !slices.Equal(got, []string{"all", "fluxcd", category}) {
			t.Errorf("%s has the categories %q", kind, got)
		}
	}
	for kind, d := range all {
		if want[kind] == "" && len(d.Spec.Names.Categories) > 0 {
			t.Errorf("%s, which Flux does not have, has the categories %q", kind, d.Spec.Names.Categories)
		}
	}
}

// TestStoredVersionsAreServedByFlux checks that definitions of Flux can replace ours: the API server refuses one that
// lacks a stored version. Flux 2.9 has v1beta3 of Alerts and Providers only.
func TestStoredVersionsAreServedByFlux(t *testing.T) {
	flux := map[string]string{"Alert": "v1beta3", "Provider": "v1beta3", "HelmRelease": "v2",
		"ArtifactGenerator": "v1beta1"}
	own := []string{"Gate", "GateApproval", "ImageUpdateJob", "ClusterInputProvider"}
	for kind, d := range definitions(t) {
		if slices.Contains(own, kind) {
			continue
		}
		want := "v1"
		if flux[kind] != "" {
			want = flux[kind]
		}
		for _, v := range d.Spec.Versions {
			if v.Storage != (v.Name == want) {
				t.Errorf("%s: version %s has storage %t", kind, v.Name, v.Storage)
			}
		}
	}
}
