package main

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// requirements returns the versions of the modules that a go.mod file requires, after its replacements.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	type module struct{ Path, Version string }
	var mod struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, m := range mod.Require {
		versions[m.Path] = m.Version
	}
	for _, r := range mod.Replace {
		if _, ok := versions[r.Old.Path]; ok {
			versions[r.Old.Path] = r.New.Version
		}
	}
	return versions
}

// TestBothBinariesShareTheirModules keeps the first build short: the playground and the product share about a
// thousand packages, which are compiled once only if their modules have the same versions.
func TestBothBinariesShareTheirModules(t *testing.T) {
	product := requirements(t, "../../go.mod")
	shared := 0
	for path, version := range requirements(t, "../../playground/go.mod") {
		ours, ok := product[path]
		if !ok {
			continue
		}
		if shared++; ours != version {
			t.Errorf("%s is %s in go.mod and %s in playground/go.mod: go get one of them in both", path, ours, version)
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules are shared", shared)
	}
}
