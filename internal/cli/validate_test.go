package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestValidate checks a directory in all formats, with definitions of files and of a version.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "repo/app/web.yaml"),
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: 1\n")
	writeFile(t, filepath.Join(dir, "repo/app/box.yaml"),
		"apiVersion: example.com/v1\nkind: Box\nmetadata: {name: a}\nspec: {size: large}\n")
	writeFile(t, filepath.Join(dir, "crds/box.yaml"), "apiVersion: apiextensions.k8s.io/v1\n"+
		"kind: CustomResourceDefinition\nmetadata: {name: boxes.example.com}\nspec:\n  group: example.com\n"+
		"  names: {kind: Box, plural: boxes}\n  versions:\n  - name: v1\n    served: true\n    schema:\n"+
		"      openAPIV3Schema:\n        properties:\n"+
		"          spec: {type: object, properties: {size: {type: integer}}}\n")
	repo := filepath.Join(dir, "repo")
	atFile := filepath.Join(repo, "app/web.yaml") + ":5"
	problems := run(t, "validate", repo).wants(t, exitFailed,
		"not checked, as their kinds have no definition: example.com/v1 Box", "1 problem in ").out
	if !strings.HasPrefix(problems, atFile+": ConfigMap/a data.a: must be text, not a number") {
		t.Error(problems)
	}
	problems = run(t, "validate", repo, "--definitions", filepath.Join(dir, "crds"), "--kubernetes-version", "1.35").
		wants(t, exitFailed, "2 problems in ").out
	if !strings.Contains(problems, "Box/a spec.size: must be an integer, not text") {
		t.Error(problems)
	}
	run(t, "validate", repo, "--ignore-paths", "web.yaml,box.yaml").wants(t, exitOK, "0 objects valid")
	run(t, "validate", repo, "--kubernetes-version", "1.2").wants(t, exitUsage, "choose from 1.37.2, 1.35.4")
	run(t, "validate", filepath.Join(dir, "none")).wants(t, exitFailed, "cannot read")

	var report struct {
		Runs []struct {
			Results []struct {
				RuleID    string
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
			}
		}
	}
	out := run(t, "validate", repo, "-o", "sarif").wants(t, exitFailed).out
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, out)
	}
	found := report.Runs[0].Results
	if len(found) != 1 || found[0].RuleID != "wrong-type" ||
		found[0].Locations[0].PhysicalLocation.Region.StartLine != 5 {
		t.Errorf("found %+v", found)
	}
}
