package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// write writes files into a new module, and returns its directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.org/m\n"
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const testFile = "package p\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n)\n\nvar _, _ = fmt.Print, os.Exit\n\n"

// The lines of go test itself are what we compare with: each line that it prints is printed, but for times.
func TestSummaryPrintsWhatGoTestPrints(t *testing.T) {
	dir := write(t, map[string]string{
		"none/none.go":    "package none\n",
		"good/p_test.go":  testFile + "func TestGood(t *testing.T) { t.Log(\"hidden\"); fmt.Println(\"hidden\") }\n",
		"skip/p_test.go":  testFile + "func TestSkip(t *testing.T) { t.Skip(\"hidden\") }\n",
		"build/p_test.go": testFile + "var x int = \"\"\n",
		"exit/p_test.go":  testFile + "func TestExit(t *testing.T) { fmt.Println(\"last words\"); os.Exit(3) }\n",
		"panic/p_test.go": testFile + "func TestPanic(t *testing.T) { t.Log(\"before\"); panic(\"oh no\") }\n",
		"bad/p_test.go": testFile + "func TestGood(t *testing.T) { t.Log(\"hidden\") }\n" +
			"func TestBad(t *testing.T) {\n\tt.Parallel()\n\tt.Log(\"context\")\n\t" +
			"t.Run(\"sub\", func(t *testing.T) { t.Error(\"wrong\") })\n}\n",
		"main/p_test.go": testFile + "func TestMain(m *testing.M) {\n\tm.Run()\n\tfmt.Println(\"in the end\")\n" +
			"\tos.Exit(1)\n}\nfunc TestGood(t *testing.T) {}\n",
	})
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "./...")
	cmd.Dir = dir
	plain, _ := cmd.Output() // the tests fail

	var out bytes.Buffer
	s := newSummary(&out)
	err := run{dir: ".", args: []string{"-count=1", "./..."}}.start(t.Context(), dir, s)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("failed tests are reported as %v", err)
	}
	printed := out.String()
	for line := range strings.Lines(string(plain)) {
		line, _, _ = strings.Cut(line, "(0.") // seconds
		line, _, _ = strings.Cut(line, "\t0.")
		if hex := strings.Contains(line, "0x") || strings.HasPrefix(line, "goroutine ") || line == "\n"; hex {
			continue
		}
		if !strings.Contains(printed, line) {
			t.Errorf("lacks the line %q", line)
		}
	}
	for _, noise := range []string{"hidden", "=== RUN", "=== PAUSE", "=== CONT", "--- PASS", "{\"Time\""} {
		if strings.Contains(printed, noise) {
			t.Errorf("printed %s", noise)
		}
	}
	if t.Failed() {
		t.Logf("go test printed:\n%s\nthe summary:\n%s", plain, printed)
	}

	out.Reset()
	s.print()
	closing := out.String()
	for _, want := range []string{"Packages by time:\n", "Slowest tests:\n", "\nFailed:\n", "  example.org/m/build\n",
		"  example.org/m/exit TestExit\n", "  example.org/m/panic TestPanic\n", "  example.org/m/bad TestBad/sub\n"} {
		if !strings.Contains(closing, want) {
			t.Errorf("the summary lacks %q", want)
		}
	}
	if strings.Contains(closing, "TestGood\n") || !strings.HasSuffix(closing, "\nFAIL\n") {
		t.Errorf("the summary is\n%s", closing)
	}
}

func TestSummaryNamesTheSlowest(t *testing.T) {
	var out bytes.Buffer
	s := newSummary(&out)
	var lines strings.Builder
	for i := range 30 {
		fmt.Fprintf(&lines, `{"Action":"pass","Package":"m/a","Test":"Test%d","Elapsed":%d.5}`+"\n", i, i)
		fmt.Fprintf(&lines, `{"Action":"pass","Package":"m/a","Test":"Test%d/sub","Elapsed":1000}`+"\n", i)
	}
	lines.WriteString(`{"Action":"pass","Package":"m/a","Elapsed":90}` + "\n" +
		`{"Action":"pass","Package":"m/quick","Elapsed":0.9}` + "\n" +
		`{"Action":"pass","Package":"m/b","Elapsed":100}` + "\n" +
		`{"Action":"output","Package":"m/kept","Output":"ok  \tm/kept\t(cached)\n"}` + "\n" +
		`{"Action":"pass","Package":"m/kept","Test":"TestKept","Elapsed":2000}` + "\n" +
		`{"Action":"pass","Package":"m/kept","Elapsed":0}` + "\n")
	if err := s.read(strings.NewReader(lines.String())); err != nil {
		t.Fatal(err)
	}
	s.print()
	got := out.String()
	want := "ok  \tm/kept\t(cached)\n\nPackages by time:\n   100.0s  m/b\n    90.0s  m/a\n" +
		"           1 packages of less than a second, and 1 cached ones\n\nSlowest tests:\n    29.5s  Test29  m/a\n"
	if !strings.HasPrefix(got, want) || strings.Count(got, "  m/a\n") != slowest+1 ||
		strings.Contains(got, "sub") || strings.Contains(got, "FAIL") {
		t.Errorf("printed\n%s", got)
	}
}
