package testenv

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Overlay is the code of this checkout with changes of a page, for go commands with -overlay. The checkout stays as it
// is.
type Overlay struct {
	testing.TB
	Root    string // of the checkout
	Dir     string // with the changed files
	replace map[string]string
}

// NewOverlay returns an overlay without changes.
func NewOverlay(tb testing.TB) *Overlay {
	tb.Helper()
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	return &Overlay{TB: tb, Root: root, Dir: tb.TempDir(), replace: map[string]string{}}
}

// Write writes a file, named relative to the checkout.
func (o *Overlay) Write(file, content string) {
	o.Helper()
	to := filepath.Join(o.Dir, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		o.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(content), 0o600); err != nil {
		o.Fatal(err)
	}
	o.Use(file)
}

// Use makes go commands read a file from the directory of the overlay.
func (o *Overlay) Use(file string) {
	o.replace[filepath.Join(o.Root, filepath.FromSlash(file))] = filepath.Join(o.Dir, filepath.FromSlash(file))
}

// Copy copies a file of the checkout to the overlay, to change it.
func (o *Overlay) Copy(file string) {
	o.Helper()
	content, err := os.ReadFile(filepath.Join(o.Root, filepath.FromSlash(file)))
	if err != nil {
		o.Fatal(err)
	}
	o.Write(file, string(content))
}

// Apply applies patches, as git does, to files of the checkout.
func (o *Overlay) Apply(patches ...string) {
	o.Helper()
	all := strings.Join(patches, "")
	for line := range strings.Lines(all) {
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			o.Copy(strings.TrimSpace(file))
		}
	}
	o.Run(o.Dir, all, "git", "apply", "-")
}

// Test runs go test with the overlay, and returns what it prints. It fails the test if a test fails.
func (o *Overlay) Test(args ...string) string {
	o.Helper()
	encoded, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		o.Fatal(err)
	}
	list := filepath.Join(o.TempDir(), "overlay.json")
	if err := os.WriteFile(list, encoded, 0o600); err != nil {
		o.Fatal(err)
	}
	return o.Run(o.Root, "", append([]string{"go", "test", "-overlay", list, "-vet", "off", "-timeout", "4m", "-v"},
		args...)...)
}

// Run runs a command in a directory, and returns what it prints.
func (o *Overlay) Run(dir, input string, args ...string) string {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
