package yamlsize_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

func TestEqualKeysAreCountedAsTheLibraryDoes(t *testing.T) {
	for text, want := range map[string]int64{
		"{}": 0, "{a: 1, b: 2}": 0, "{a: 1, a: 2}": 1, "{a: 1, a: 2, a: 3, b: 4}": 3, "[a, a]": 0,
		"{<<: {a: 1}, <<: {b: 1}}": 1, "{[a]: 1, [b]: 2}": 1, "{'a': 1, \"a\": 2, ? a : 3}": 3,
		"{" + strings.Repeat("a: 1, ", 20) + "b: 1, b: 2}": 191,
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		if got := yamlsize.EqualKeys(doc.Content[0]); got != want {
			t.Errorf("%s: %d pairs, want %d", text, got, want)
		}
		var v any
		err := yaml.Unmarshal([]byte(text), &v)
		if lines := int64(strings.Count(errText(err), "already defined")); lines != want {
			t.Errorf("%s: the library has %d", text, lines)
		}
		if ours := yamlsize.Unmarshal([]byte(text), &v); (ours == nil) != (err == nil) {
			t.Errorf("%s: %v, and %v by the library", text, ours, err)
		}
	}
}

func TestLargeMapsAreRefused(t *testing.T) {
	tests := map[int]bool{3_000: false, 40_000: true}
	if os.Getenv("SLUICE_TEST_FULL") != "" {
		tests[30_000] = false
	}
	for keys, refused := range tests {
		var text strings.Builder
		for i := range keys {
			fmt.Fprintf(&text, "k%d:\n", i)
		}
		var v any
		err := yamlsize.Unmarshal([]byte(text.String()), &v)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "too many keys") {
			t.Errorf("%d keys: %v", keys, err)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestEqualKeysTakeLittleMemory(t *testing.T) {
	text := []byte("x:\n" + strings.Repeat("  a: 1\n", 5000))
	n := allocation.Bytes(func() {
		var v any
		err := yamlsize.Unmarshal(text, &v)
		want := `line 3: mapping key "a" already defined at line 2; ` +
			`line 4: mapping key "a" already defined at line 2; line 5: mapping key "a" already defined at line 2; ` +
			`and 4996 more`
		if err == nil || err.Error() != want {
			t.Errorf("got %.500v", err)
		}
	})
	if n > 32<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
}

func TestUnmarshalReadsWhatTheLibraryReads(t *testing.T) {
	for _, text := range []string{"", "---\n", "# only a comment\n", "a: {b: [1, 2]}\n",
		"a: &a {b: 1}\nc: {<<: *a}\n"} {
		var got, want any
		if err := yamlsize.Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		one, err1 := yaml.Marshal(got)
		two, err2 := yaml.Marshal(want)
		if err1 != nil || err2 != nil || string(one) != string(two) {
			t.Errorf("%q: got %s, want %s", text, one, two)
		}
	}
}

func TestDirectivesAreBounded(t *testing.T) {
	if err := yamlsize.Check([]byte(strings.Repeat("%TAG !e! tag:x,2000:\n", 100) + "---\na: b\n")); err != nil {
		t.Error(err)
	}
	if err := yamlsize.Check([]byte(strings.Repeat("%TAG !e! tag:x,2000:\n", 101))); err == nil ||
		!strings.Contains(err.Error(), "write the tags in full, or leave them out") {
		t.Errorf("got %v", err)
	}
}
