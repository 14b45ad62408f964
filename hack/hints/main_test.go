package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHintsWithoutATestAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a/a.go": "package a\n" +
			"const last = \"Ask \" + \"an administrator for help\"\n" +
			"func f() error {\n" +
			"\tif hint := \"Correct the name of the object, such as \" + name; hint != \"\" {}\n" +
			"\tf.Hint = fmt.Sprintf(\"Raise the limit of %d objects\", n)\n" +
			"\treturn New(\"x\").WithHint(\"Set both keys\").WithHint(\"%s\", last).\n" +
			"\t\tWithHint(\"Remove %s from the list\", n)\n" +
			"}\n" +
			"func rightHint() string { return \"Grant the right\" }\n",
		"a/a_test.go": "package a\nvar want = \"failed. Set both \" + \"keys\" + last\n" +
			"var other = []string{\"Raise the limit of 5 objects\", \"x. Remove a from the list\"}\n",
		"b/b_test.go": "package b\nvar want = `Correct the name of the object, such as shop`\n" +
			"var short = `Grant the right`\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hints, err := survey([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, h := range hints {
		tested[h.part] = h.tested()
	}
	for part, want := range map[string]bool{
		"Ask an administrator for help":           false, // only the name of the constant is in the test
		"Correct the name of the object, such as": true,  // distinct: any test may mention it
		"Raise the limit of":                      true,
		"Set both keys":                           true,
		"from the list":                           true,
		"Grant the right":                         false, // short: only a test of its own package counts
	} {
		if got, found := tested[part]; !found || got != want {
			t.Errorf("%q: tested %v, found %v; want %v", part, got, found, want)
		}
	}
}
