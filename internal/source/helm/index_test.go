package helm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	repo "helm.sh/helm/v4/pkg/repo/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

const indexLimit = 1 << 20

func parse(t *testing.T, text string) *Index {
	t.Helper()
	i, err := ParseIndex(t.Context(), strings.NewReader(text), indexLimit)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return i
}

func versions(entries []Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Version)
	}
	return out
}

var indexLayouts = map[string]string{
	"helm": `apiVersion: v1
entries:
  app:
  - apiVersion: v2
    description: |
      version: 9.9.9
      # no comment

      urls:
    version: 1.0.0
    urls:
    - app-1.0.0.tgz
  - created: "2026-01-01T00:00:00Z"
    digest: sha256:AA
    maintainers:
    - name: x
      version: 8.8.8
    urls:
    - https://h/app-2.0.0.tgz
    - https://mirror/app-2.0.0.tgz
    version: 2.0.0
  db:
  - urls:
    - db.tgz
    version: 0.1.0
generated: "2026-01-01T00:00:00Z"
publicKeys:
- abc
`,
	"indented, quoted, with comments": `%YAML 1.1
---
# made by hand
"apiVersion": "v1"
serverInfo: {
}
"entries":   # all of them
    # the first

    'app':
      -
        "version": "1.0.0"
        'urls': [app-1.0.0.tgz]
      # between
      - {version: 2.0.0, urls: [https://h/app-2.0.0.tgz], digest: aa,
         name: app}
    "db":
      - name: db
        version:
          0.1.0
        urls:
          - "db.tgz"
...
apiVersion: nothing is read here
`,
	"flow": `apiVersion: v1
entries: {app: [{version: 1.0.0, urls: [app-1.0.0.tgz]},
    {version: 2.0.0, digest: aa, urls: ["https://h/app-2.0.0.tgz"]}],
  db: [{version: 0.1.0, urls: [db.tgz]}]}
`,
	"list of a chart in flow style": `apiVersion: v1
entries:
  app: [{version: 1.0.0, urls: [app-1.0.0.tgz]},
    {version: 2.0.0, digest: aa, urls: ["https://h/app-2.0.0.tgz"]}]
  db:
  - version: 0.1.0
    urls: [db.tgz]
`,
	"json": `
{"generated": null, "serverInfo": {"a": [{"entries": {}}]}, "entries": {
  "app": [{"version": "1.0.0", "urls": ["app-1.0.0.tgz"], "maintainers": [{"version": "7.0.0"}]},
          {"version": "2.0.0", "digest": "aa", "urls": ["https://h/app-2.0.0.tgz"]}],
  "db": [{"version": "0.1.0", "urls": ["db.tgz"]}]}, "apiVersion": "v1"}
`,
}

// TestParseIndexLayouts parses the same index in the layouts of several generators.
func TestParseIndexLayouts(t *testing.T) {
	want := map[string][]Entry{
		"app": {{Version: "2.0.0", Digest: "aa", URL: "https://h/app-2.0.0.tgz"},
			{Version: "1.0.0", URL: "app-1.0.0.tgz"}},
		"db": {{Version: "0.1.0", URL: "db.tgz"}},
	}
	for name, text := range indexLayouts {
		t.Run(name, func(t *testing.T) {
			for _, text := range []string{text, "\xEF\xBB\xBF" + text, strings.ReplaceAll(text, "\n", "\r\n"),
				strings.TrimRight(text, "\n")} {
				if diff := cmp.Diff(want, parse(t, text).charts, cmpopts.IgnoreUnexported(Entry{})); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestParseIndexSkipsInvalidEntries(t *testing.T) {
	i := parse(t, `apiVersion: v1
entries:
  empty: []
  nothing:
  app:
  - version: 1.0.0
    urls: [first.tgz]
  - version: 1.0.0
    urls: [second.tgz]
  - version: not a version
    urls: [x.tgz]
  - version: 3.0.0
  - null
  -
  - urls: [x.tgz]
  - version: 2
    urls: [two.tgz]
`)
	want := []Entry{{Version: "2", URL: "two.tgz"}, {Version: "1.0.0", URL: "first.tgz"},
		{Version: "1.0.0", URL: "second.tgz"}}
	if diff := cmp.Diff(want, i.charts["app"], cmpopts.IgnoreUnexported(Entry{})); diff != "" {
		t.Error(diff)
	}
	if i.Skipped != 5 {
		t.Errorf("skipped %d entries, want 5", i.Skipped)
	}
	if _, err := i.Find("empty", ""); err == nil {
		t.Error("a chart without versions was found")
	}
}

func TestParseIndexRefuses(t *testing.T) {
	long := strings.Repeat("x", maxPiece)
	for name, test := range map[string]struct{ text, want string }{
		"empty file":              {text: "", want: "empty"},
		"white space":             {text: " \n\n ", want: "empty"},
		"web page":                {text: "<!DOCTYPE html>\n<html></html>\n", want: "line 1: expected a key"},
		"no apiVersion":           {text: "entries: {}\n", want: "no apiVersion"},
		"no entries":              {text: "apiVersion: v1\n", want: "no entries"},
		"duplicate entries":       {text: "apiVersion: v1\nentries: {}\nentries: {}\n", want: "duplicate"},
		"duplicate chart":         {text: "apiVersion: v1\nentries:\n  a: []\n  a: []\n", want: "duplicate"},
		"duplicate chart in JSON": {text: `{"apiVersion":"v1","entries":{"a":[],"a":[]}}`, want: "duplicate"},
		"duplicate key": {text: "apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0\n    version: 2.0.0\n",
			want: "already defined"},
		"mapping instead of a list": {text: "apiVersion: v1\nentries:\n  a:\n    version: 1.0.0\n",
			want: "line 4: expected an entry"},
		"string instead of a list": {text: "apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0\n    urls: x\n",
			want: "cannot unmarshal"},
		"list instead of an object": {text: `{"apiVersion":"v1","entries":[]}`, want: "expected {"},
		"tabs":                      {text: "apiVersion: v1\nentries:\n\ta: []\n", want: "expected a key"},
		"inconsistent indentation": {text: "apiVersion: v1\nentries:\n   a: []\n  b: []\n",
			want: "line 4: the indentation differs"},
		"alias across entries": {text: "apiVersion: v1\nentries:\n  a:\n  - &a {urls: [x]}\n  - *a\n",
			want: "unknown anchor"},
		"truncated JSON":     {text: `{"apiVersion":"v1","entries":{"a":[`, want: "EOF"},
		"content after JSON": {text: `{"apiVersion":"v1","entries":{}} {}`, want: "content after the end"},
		"long line": {text: "apiVersion: v1\nentries:\n  a:\n  - version: " + long,
			want: "exceeds 1048576 bytes"},
		"large value in flow style": {text: "apiVersion: v1\nentries: {a: [\n" +
			strings.Repeat("  {version: 1.0.0},\n", 60_000) + "]}", want: "in YAML block style"},
		"large entry": {text: "apiVersion: v1\nentries:\n  a:\n  - urls:\n" +
			strings.Repeat("    - http://a.b/c\n", 60_000), want: "exceeds"},
		"large string in JSON": {text: `{"apiVersion":"v1","x":"` + long + long + `","entries":{}}`,
			want: "exceeds 1048576 bytes"},
		"version that is not UTF-8": {text: "apiVersion: v1\nentries:\n  a:\n  - version: \"\xff\"\n", want: "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseIndex(t.Context(), strings.NewReader(test.text), 4<<20)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
		})
	}
	_, err := ParseIndex(t.Context(), strings.NewReader("apiVersion: v1\nentries: {}\n#"+long), 1000)
	if err == nil || !strings.Contains(err.Error(), "exceeds 1000 bytes") {
		t.Errorf("index above the limit: %v", err)
	}
	broken := errors.New("connection lost")
	failing := io.MultiReader(strings.NewReader("apiVersion: v1\n"), errReader{broken})
	if _, err := ParseIndex(t.Context(), failing, indexLimit); !errors.Is(err, broken) {
		t.Errorf("failing reader: %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestErrorsOfAnIndexQuoteNoValue reads documents of a server that serves something else.
func TestErrorsOfAnIndexQuoteNoValue(t *testing.T) {
	for _, document := range []string{"apiVersion: v1\nentries: internal", "apiVersion: v1\nentries: {a: internal}",
		"apiVersion: v1\nentries: {a: [{urls: internal}]}", "apiVersion: v1\nentries: {a: [{version: {internal: 1}}]}",
		"internal", "{\"apiVersion\": internal"} {
		_, err := ParseIndex(t.Context(), strings.NewReader(document), 1<<20)
		if err == nil || strings.Contains(err.Error(), "internal") {
			t.Errorf("%q: %v", document, err)
		}
	}
}

func TestFind(t *testing.T) {
	i := parse(t, `apiVersion: v1
entries:
  app:
  - {version: 1.2.3, urls: [a]}
  - {version: v1.10.0, urls: [a]}
  - {version: 2.0.0-rc.1, urls: [a]}
  - {version: 1.9.0+build.7, urls: [a]}
  - {version: 0.9.0, urls: [a]}
`)
	for constraint, want := range map[string]string{
		"": "v1.10.0", "*": "v1.10.0", "1.x": "v1.10.0", "~1.2": "1.2.3", "<1.10": "1.9.0+build.7",
		">=2.0.0-0":  "2.0.0-rc.1",
		"2.0.0-rc.1": "2.0.0-rc.1", "1.9.0": "1.9.0+build.7", "1.9.0+build.7": "1.9.0+build.7", "^0.9 || ^3": "0.9.0",
		"1.10.0": "v1.10.0",
		">=2":    "", "4.0.0": "", "latest": "",
	} {
		e, err := i.Find("app", constraint)
		if e.Version != want || (err != nil) != (want == "") {
			t.Errorf("%q: found %q, %v; want %q", constraint, e.Version, err, want)
		}
	}
	if _, err := i.Find("other", "*"); err == nil {
		t.Error("found a missing chart")
	}
}

// TestFindPrefersTheNewestBuild compares versions that differ in their build metadata only, which does not order them.
func TestFindPrefersTheNewestBuild(t *testing.T) {
	const entries = `
  - {version: 1.0.0+aa, urls: [a], created: %s}
  - {version: 1.0.0+cc, urls: [a], created: "2026-03-01T00:00:00.5+01:00"}
  - {version: 1.0.0+bb, urls: [a], created: %s}
  - {version: 0.9.0, urls: [a], created: "2026-04-01T00:00:00Z"}
`
	for name, text := range map[string]string{
		"in block style": "apiVersion: v1\nentries:\n  app:" +
			fmt.Sprintf(entries, "2026-01-01T00:00:00Z", "[no, time]"),
		"in flow style": "apiVersion: v1\nentries: {app: [{version: 1.0.0+aa, urls: [a]}, {version: 1.0.0+cc, " +
			"urls: [a], created: 2026-03-01T00:00:00Z}]}",
		"in JSON": `{"apiVersion":"v1","entries":{"app":[{"version":"1.0.0+aa","urls":["a"],"created":{}},
			{"version":"1.0.0+cc","urls":["a"],"created":"2026-03-01T00:00:00Z"}]}}`,
	} {
		if e, err := parse(t, text).Find("app", "1.x"); err != nil || e.Version != "1.0.0+cc" {
			t.Errorf("%s: found %q, %v", name, e.Version, err)
		}
	}
}

// FuzzParseIndex checks that the parser does not panic, and that its results are sorted and can be found.
// The library makes a line of an error of each pair of equal keys: of these, 10 GB for each index.
func TestEqualKeysInAnIndexTakeLittleMemory(t *testing.T) {
	block := "apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0\n" + strings.Repeat("    urls: [x]\n", 10_000)
	flow := "apiVersion: v1\nentries: {a: [{" + strings.Repeat("b: x, ", 10_000) + "version: 1.0.0, urls: [x]}]}\n"
	for _, text := range []string{block, flow} {
		n := allocation.Bytes(func() {
			_, err := ParseIndex(t.Context(), strings.NewReader(text), 1<<20)
			if err == nil || !strings.Contains(err.Error(), "already defined at line") || len(err.Error()) > 500 {
				t.Errorf("got %.1000v", err)
			}
		})
		if n > 32<<20 {
			t.Errorf("%d MiB were allocated", n>>20)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0\n    urls:\n    - x\n"))
	f.Add([]byte(`{"apiVersion":"v1","entries":{"a":[{"version":"1.0.0","urls":["x"]}]}}`))
	f.Add([]byte("apiVersion: v1\nentries: {a: [{version: 1, urls: [b]}]}\n---\n"))
	f.Add([]byte("\"apiVersion\": 'v1'\n'entries':\n \"a\\u00e4\":\n  -\n   - x\n  - *a\n  - ? b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := ParseIndex(t.Context(), bytes.NewReader(data), 1<<16)
		if err != nil {
			return
		}
		for name, entries := range i.charts {
			for n, e := range entries {
				if e.URL == "" {
					t.Fatalf("%q has a version without URL", name)
				}
				if found, err := i.Find(name, e.Version); err != nil || found.Version != e.Version {
					t.Fatalf("%q: version %q finds %q, %v", name, e.Version, found.Version, err)
				}
				if n > 0 && !slices.IsSortedFunc(newestFirst(entries[n-1:n+1]),
					func(a, b Entry) int { return cmpEntries(entries, a, b) }) {
					t.Fatalf("%q is not sorted: %q", name, versions(entries))
				}
			}
		}
	})
}

func cmpEntries(entries []Entry, a, b Entry) int {
	return slices.Index(entries, a) - slices.Index(entries, b)
}

// FuzzIndexLikeHelm compares the parser with that of Helm, on indexes with strings that look like an index.
func FuzzIndexLikeHelm(f *testing.F) {
	f.Add("app", "1.0.0", "a description", "https://h/app.tgz", true)
	f.Add("app", "1.0.0-rc.1+b", "version: 2.0.0\n  - version: 3.0.0\nurls:\n- x", "app.tgz", false)
	f.Add("a: b", "v2", "\n\n  # \"quoted\" 'text' \t |\n>", "{app}.tgz", false)
	f.Add("- x", "1", "... --- é\u2028\u0085", "'", false)
	f.Add("null", "0x10", strings.Repeat("long words ", 100), "~", false)
	f.Fuzz(func(t *testing.T, name, version, description, url string, asJSON bool) {
		if strings.ContainsAny(name, "\r\n\u0085\u2028\u2029") || len(name) > 100 {
			return // a complex key, which no chart needs
		}
		md := &chart.Metadata{APIVersion: "v2", Name: "n", Version: version, Description: description,
			Annotations: map[string]string{description: description, "version": "1"}}
		index := repo.NewIndexFile()
		index.Entries[name] = repo.ChartVersions{
			{Metadata: md, URLs: []string{url, "second"}, Digest: "aa"},
			{Metadata: &chart.Metadata{APIVersion: "v2", Name: "n", Version: "0.0.1", Description: description},
				URLs: []string{"x"}},
		}
		index.Annotations = map[string]string{description: description}
		marshal := yaml.Marshal
		if asJSON {
			marshal = json.Marshal
		}
		text, err := marshal(index)
		if err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), "index.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		theirs, err := repo.LoadIndexFile(file)
		if err != nil {
			return
		}
		ours, err := ParseIndex(t.Context(), bytes.NewReader(text), indexLimit)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for name, want := range theirs.Entries {
			want = slices.DeleteFunc(slices.Clone(want), func(v *repo.ChartVersion) bool { return v.URLs[0] == "" })
			got := ours.charts[name]
			var a, b []string
			for _, v := range want {
				a = append(a, fmt.Sprint(v.Version, " ", v.Digest, " ", v.URLs[0]))
			}
			for _, e := range got {
				b = append(b, fmt.Sprint(e.Version, " ", e.Digest, " ", e.URL))
			}
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Fatalf("%q: %q, Helm reads %q\n%s", name, b, a, text)
			}
		}
	})
}
