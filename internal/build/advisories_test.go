package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// TestPathsOutOfTheArtifactAreRefused has the class of CVE-2022-24877: each field of a kustomization that reads a file
// names one of this machine.
func TestPathsOutOfTheArtifactAreRefused(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "s3cret.yaml")
	if err := os.WriteFile(secret, []byte(cm("s3cret")), 0o600); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20) + secret[1:]
	for _, file := range []string{secret, up, "./" + up, "a/../" + up, "link"} {
		for name, kustomization := range map[string]string{
			"resources":  "resources: ['FILE']\n",
			"bases":      "bases: ['FILE']\n",
			"components": "components: ['FILE']\n",
			"crds":       "resources: [a.yaml]\ncrds: ['FILE']\n",
			"generator":  "configMapGenerator: [{name: g, files: ['k=FILE']}]\n",
			"variables":  "configMapGenerator: [{name: g, envs: ['FILE']}]\n",
			"secrets":    "secretGenerator: [{name: g, files: ['FILE']}]\n",
			"patches":    "resources: [a.yaml]\npatches: [{path: 'FILE'}]\n",
			"merge":      "resources: [a.yaml]\npatchesStrategicMerge: ['FILE']\n",
			"JSON": "resources: [a.yaml]\npatchesJson6902: [{path: 'FILE', target: {kind: ConfigMap, name: a, " +
				"version: v1}}]\n",
			"schema":       "resources: [a.yaml]\nopenapi: {path: 'FILE'}\n",
			"transformers": "resources: [a.yaml]\ntransformers: ['FILE']\n",
			"generators":   "generators: ['FILE']\n",
			"validators":   "resources: [a.yaml]\nvalidators: ['FILE']\n",
			"replacements": "resources: [a.yaml]\nreplacements: [{path: 'FILE'}]\n",
			"settings":     "resources: [a.yaml]\nconfigurations: ['FILE']\n",
		} {
			files := map[string]string{"a.yaml": cm("a"), "link": "symlink:" + up,
				"kustomization.yaml": strings.ReplaceAll(kustomization, "FILE", file)}
			built, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
			if err == nil {
				t.Errorf("%s %s: built %d objects", name, file, len(built.Objects))
				continue
			}
			if strings.Contains(err.Error(), "name: s3cret") {
				t.Errorf("%s %s: the error has the content: %v", name, file, err)
			}
		}
	}
	if _, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": cm("a")}),
		Path: "../../etc"}); err == nil {
		t.Error("a path out of the artifact was built")
	}
}

// TestLinksAndCyclesEndBuilds has the class of CVE-2022-24878: links and references that lead to themselves, and links
// to files of this machine that never end. A build that does not end fails by the timeout of the tests.
func TestLinksAndCyclesEndBuilds(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"link to itself":        {"kustomization.yaml": "resources: [x.yaml]\n", "x.yaml": "symlink:x.yaml"},
		"two links":             {"kustomization.yaml": "resources: [x]\n", "x": "symlink:y", "y": "symlink:x"},
		"link to its directory": {"kustomization.yaml": "resources: [x]\n", "x": "symlink:."},
		"link to the parent": {"kustomization.yaml": "resources: [d]\n", "d/x": "symlink:..",
			"d/kustomization.yaml": "resources: [x]\n"},
		"endless file":            {"kustomization.yaml": "resources: [x.yaml]\n", "x.yaml": "symlink:/dev/zero"},
		"kustomization is a link": {"kustomization.yaml": "symlink:/dev/zero"},
		"resource is itself":      {"kustomization.yaml": "resources: ['.']\n"},
		"two bases": {"kustomization.yaml": "resources: [a]\n", "a/kustomization.yaml": "resources: [../b]\n",
			"b/kustomization.yaml": "resources: [../a]\n"},
		"component of itself": {"kustomization.yaml": "components: [c]\n", "c/kustomization.yaml": "kind: Component\n" +
			"apiVersion: kustomize.config.k8s.io/v1alpha1\ncomponents: [../c]\n"},
	} {
		if built, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)}); err == nil {
			t.Errorf("%s: built %d objects", name, len(built.Objects))
		}
	}
}
