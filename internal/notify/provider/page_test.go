package provider

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestPageAboutProviders does what docs/design/add-a-provider.md says to an overlay of the code, and runs the contract
// suite for the type that the page adds.
func TestPageAboutProviders(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	const page = "design/add-a-provider.md"
	dir := t.TempDir()
	overlay := map[string]string{}
	write := func(file, content string) {
		to := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, filepath.FromSlash(file))] = to
	}
	files := testenv.Blocks(t, page, "go")
	if len(files) != 1 {
		t.Fatalf("the page has %d files", len(files))
	}
	write("internal/notify/provider/ntfy.go", files[0])
	changes := testenv.Blocks(t, page, "diff")
	for _, change := range changes {
		_, file, _ := strings.Cut(change, "\n+++ b/")
		file, _, _ = strings.Cut(file, "\n")
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		write(file, string(content))
	}
	in(t, dir, strings.Join(changes, ""), "git", "apply", "-")
	encoded, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	out := in(t, root, "", "go", "test", "-overlay", list, "-vet", "off", "-timeout", "4m", "-v", "-run",
		"^(TestContract.*|TestMarkupIsEscaped)$/^ntfy", "./internal/notify/provider")
	if passed := strings.Count(out, "--- PASS: TestContract"); passed < 5 ||
		!strings.Contains(out, "/ntfy") || !strings.Contains(out, "--- PASS: TestMarkupIsEscaped") {
		t.Errorf("the suite does not cover the type:\n%s", out)
	}
}

// in runs a command in a directory, and returns what it prints.
func in(t *testing.T, dir, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
