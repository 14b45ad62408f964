package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestResultsAreCachedUntilABinaryChanges has go test decide whether it runs a test that opens a binary again.
func TestResultsAreCachedUntilABinaryChanges(t *testing.T) {
	root := t.TempDir()
	binary := filepath.Join(root, "bin", "sluice")
	if err := os.Mkdir(filepath.Dir(binary), 0o750); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod": "module example.com/m\n",
		"x_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n" +
			"func TestX(t *testing.T) {\n\tif _, err := os.ReadFile(\"bin/sluice\"); err != nil {\n" +
			"\t\tt.Fatal(err)\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		content string
		cached  bool
	}{{"one", false}, {"one", true}, {"two", false}, {"one", true}} {
		if err := os.WriteFile(binary, []byte(test.content), 0o600); err != nil { // its time is now
			t.Fatal(err)
		}
		if err := stamp(root); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "go", "test", "./...")
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := strings.Contains(string(out), "(cached)"); got != test.cached {
			t.Errorf("after %q, cached is %t, want %t:\n%s", test.content, got, test.cached, out)
		}
	}
}
