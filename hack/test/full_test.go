package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFullTestsAreFound(t *testing.T) {
	const uses = "import \"example.org/m/testenv\"\n\n"
	dir := write(t, map[string]string{
		"a/a_test.go": "package a\n\n" + uses + "func TestDirect(t *testing.T) { testenv.Full(t) }\n" +
			"func TestOther(t *testing.T) {}\nfunc TestByHelper(t *testing.T) { begin(t) }\n",
		"a/b_test.go": "package a\n\n" + uses + "func begin(t *testing.T) { deeper(t) }\n" +
			"func deeper(t *testing.T) { if testenv.IsFull() { panic(0) } }\n" +
			"func TestMain(m *testing.M) { deeper(nil) }\nfunc FuzzToo(f *testing.F) { begin(nil) }\n",
		"b/b_test.go": "package b\n\nconst env = \"SLUICE_DIFFERENTIAL\"\n" +
			"func TestDifferences(t *testing.T) { _ = os.Getenv(env) }\n",
		"test/campaign/c_test.go": "package campaign\n\n" + uses + "func TestLong(t *testing.T) { testenv.Full(t) }\n",
		"z/z_test.go":             "package z\n\n" + uses + "func TestQuick(t *testing.T) { testenv.Full(t) }\n",
		"c/c_test.go":             "package c\n\nfunc TestFull(t *testing.T) {}\n",
		"other/go.mod":            "module other\n",
		"other/o_test.go":         "package o\n\n" + uses + "func TestElsewhere(t *testing.T) { testenv.Full(t) }\n",
	})
	found, err := findFull(dir)
	const want = "[{a [TestDirect TestByHelper FuzzToo]} {b [TestDifferences]} {z [TestQuick]} " +
		"{test/campaign [TestLong]}]"
	if got := fmt.Sprint(found); err != nil || got != want {
		t.Errorf("found %s, %v, want %s", got, err, want)
	}
}

// full runs the full tests of a module.
func full(t *testing.T, dir string, first int, end <-chan time.Time) (string, error) {
	t.Helper()
	var out bytes.Buffer
	s := newSummary(&out)
	err := runFull(context.WithoutCancel(t.Context()), dir, os.Environ(), first, end, s)
	s.print()
	return out.String(), err
}

const helper = "package testenv\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc Full(t *testing.T) {\n" +
	"\tif os.Getenv(\"SLUICE_TEST_FULL\") == \"\" || os.Getenv(\"SLUICE_DIFFERENTIAL\") != \"full\" {\n" +
	"\t\tt.Fatal(\"not in full\")\n\t}\n}\n"

const fullFile = "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n\t\"example.org/m/testenv\"\n)\n\n" +
	"var _ = os.Mkdir\n\n"

func TestFullRunStopsAtTheFirstFailure(t *testing.T) {
	dir := write(t, map[string]string{
		"testenv/testenv.go": helper,
		"a/a_test.go": fullFile + "func TestQuick(t *testing.T) { testenv.Full(t) }\n" +
			"func TestLeftOut(t *testing.T) { t.Error(\"was run\") }\n",
		"b/b_test.go":            fullFile + "func TestBad(t *testing.T) { testenv.Full(t); t.Error(\"wrong\") }\n",
		"hack/release/c_test.go": fullFile + "func TestLater(t *testing.T) { testenv.Full(t); t.Error(\"was run\") }\n",
	})
	out, err := full(t, dir, 0, nil)
	if err == nil || strings.Contains(out, "was run") || !strings.Contains(out, "ok  \texample.org/m/a\t") ||
		!strings.HasSuffix(out, "Failed:\n  example.org/m/b\n  example.org/m/b TestBad\nFAIL\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestFullRunBeginsWithAnyPackage(t *testing.T) {
	dir := write(t, map[string]string{
		"testenv/testenv.go":     helper,
		"a/a_test.go":            fullFile + "func TestA(t *testing.T) { testenv.Full(t) }\n",
		"hack/release/r_test.go": fullFile + "func TestR(t *testing.T) { testenv.Full(t) }\n",
		"test/e2e/e_test.go":     fullFile + "func TestE(t *testing.T) { testenv.Full(t) }\n",
	})
	for first, want := range map[int]string{0: "a hack/release test/e2e", 4: "hack/release test/e2e a",
		365: "test/e2e a hack/release"} {
		out, err := full(t, dir, first, nil)
		var got []string
		for line := range strings.Lines(out) {
			if name, isOK := strings.CutPrefix(line, "ok  \texample.org/m/"); isOK {
				got = append(got, strings.Fields(name)[0])
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("beginning with %d: ran %v, want %s: %v", first, got, want, err)
		}
	}
}

// The time ends while a test waits for something that never comes.
func TestFullRunEndsWithItsTime(t *testing.T) {
	dir := write(t, map[string]string{
		"testenv/testenv.go": helper,
		"a/a_test.go":        fullFile + "func TestQuick(t *testing.T) { testenv.Full(t) }\n",
		"b/b_test.go": fullFile + "func TestFirst(t *testing.T) { testenv.Full(t) }\n" +
			"func TestLong(t *testing.T) { testenv.Full(t); os.Mkdir(\"runs\", 0o700); select {} }\n",
		"test/e2e/c_test.go": fullFile + "func TestLater(t *testing.T) { testenv.Full(t) }\n",
	})
	end := make(chan time.Time)
	go func() {
		for { // until the test runs
			if _, err := os.Stat(filepath.Join(dir, "b", "runs")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		close(end)
	}()
	out, err := full(t, dir, 0, end)
	_, notRun, _ := strings.Cut(out, "The time ended. Not run")
	if err != nil || strings.Contains(notRun, "  TestQuick  a\n") || !strings.Contains(notRun, "  TestLong  b\n") ||
		!strings.Contains(notRun, "  TestLater  test/e2e\n") || strings.Contains(out, "FAIL") {
		t.Errorf("%v\n%s", err, out)
	}
}
