// Package compiletest provides tests with a source that compiles fast.
package compiletest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-gitops/sluice/hack/internal/compile"
)

// program is a small main package with the variables of the product. Compiling the product twice takes minutes.
var program = map[string]string{
	"go.mod": "module github.com/sluice-gitops/sluice\n\ngo 1.26\n",
	"cmd/sluice/main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\n" +
		"\t\"github.com/sluice-gitops/sluice/internal/cli\"\n)\n\n" +
		"func main() { fmt.Println(cli.Version, cli.Commit, cli.Date, os.Args[1:]) }\n",
	"LICENSE":             "Anyone may use this.\n",
	"internal/cli/cli.go": "package cli\n\nvar Version, Commit, Date string\n",
}

// Checkout writes a small program, commits it in a directory of its own, and returns it as the source of v1.2.3. The
// commit is the same each time.
func Checkout(t *testing.T) compile.Source {
	t.Helper()
	dir := t.TempDir()
	for file, content := range program {
		file = filepath.Join(dir, file)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-qm", "First"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
			"GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	source, err := compile.Describe(t.Context(), dir, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return source
}
