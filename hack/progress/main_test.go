package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module creates a module of three packages in the working directory.
func module(t *testing.T, broken string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-mod=mod")
	for name, content := range map[string]string{
		"go.mod": "module example.org/m\n",
		"main.go": "package main\n\nimport (\n\t_ \"example.org/m/a\"\n\t_ \"example.org/m/b\"\n)\n\n" +
			"func main() {}\n",
		"a/a.go":      "package a\n",
		"b/b.go":      "package b\n" + broken,
		"b/b_test.go": "package b\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProgressOfABuild(t *testing.T) {
	module(t, "")
	var stdout, stderr bytes.Buffer
	command := []string{"go", "build", "-o", "program", "."}
	code, err := run(t.Context(), "building", command, &stdout, &stderr)
	if err != nil || code != 0 {
		t.Fatalf("code %d, %v\n%s", code, err, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if !strings.HasSuffix(lines[0], " packages to compile") || !strings.Contains(lines[len(lines)-1], "compiled in ") {
		t.Errorf("printed %q", lines)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "building: ") {
			t.Errorf("printed %q", line)
		}
	}
	if _, err := os.Stat("program"); err != nil {
		t.Error(err)
	}

	t.Log("nothing is printed if all is compiled")
	stderr.Reset()
	code, err = run(t.Context(), "building", command, &stdout, &stderr)
	if err != nil || code != 0 || stderr.Len()+stdout.Len() > 0 {
		t.Errorf("code %d, %v, printed %q", code, err, stderr.String()+stdout.String())
	}
}

func TestProgressKeepsErrorsAndExitCode(t *testing.T) {
	module(t, "var x int = \"\"\n")
	for _, command := range [][]string{
		{"go", "build", "-o", "program", "."},
		{"go", "list", "-export", "-test", "-f", "", "./..."},
	} {
		var stdout, stderr bytes.Buffer
		code, err := run(t.Context(), "building", command, &stdout, &stderr)
		if err != nil || code != 1 || !strings.Contains(stderr.String(), "b.go:2:13: cannot use") ||
			strings.Contains(stderr.String(), "compiled in") {
			t.Errorf("%v: code %d, %v, printed %q", command, code, err, &stderr)
		}
	}
}

func TestLinesOfAReport(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	r := &report{label: "tests", out: &out, now: func() time.Time { return now }}
	for _, line := range []string{"go: downloading m v1", "mkdir x", "#", "# a", "#", "compile a", "# import config",
		"#",
		"# b [b.test]", "#", "# c", "#", "#", "# a", "#"} {
		r.plan(line)
	}
	r.begin()
	r.compiled("a")
	now = now.Add(6 * interval)
	r.compiled("c")
	now = now.Add(interval)
	r.compiled("b")
	r.compiled("b [b.test]")
	r.compiled("# b")
	r.compiled("b.go:1: wrong")
	r.end()
	const want = `go: downloading m v1
tests: 3 packages to compile
tests: 2 of 3 packages compiled, about 20s left, now c
tests: 3 of 3 packages compiled, now b
# b
b.go:1: wrong
tests: compiled in 35s
`
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
