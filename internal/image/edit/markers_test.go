package edit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const digest = "sha256:6129bb944cada32b4662eafd13fd9904d34c77286bf2ec4523eaedb711757cb0"

var images = map[string]Ref{
	"apps:web":    {Name: "ghcr.io/org/web", Tag: "2.0.0"},
	"apps:pinned": {Name: "ghcr.io/org/pinned", Tag: "v2", Digest: digest},
	"apps:number": {Name: "ghcr.io/org/number", Tag: "1.10"},
	"apps:sha":    {Name: "ghcr.io/org/sha", Tag: "12e45"},
	"apps:evil":   {Name: "ghcr.io/org/evil", Tag: "1\nmalice: true"},
}

func m(setter string) string { return fmt.Sprintf(`# {"$imagepolicy": "%s"}`, setter) }

func TestMarkersSetMarkedValues(t *testing.T) {
	web, tag := m("apps:web"), m("apps:web:tag")
	for name, c := range map[string]struct{ in, want string }{
		"plain scalar": {in: "image: ghcr.io/org/web:1.0.0 " + web, want: "image: ghcr.io/org/web:2.0.0 " + web},
		"double quotes": {in: `image: "ghcr.io/org/web:1.0.0"   ` + web,
			want: `image: "ghcr.io/org/web:2.0.0"   ` + web},
		"single quotes": {in: `image: 'it''s' ` + web, want: `image: 'ghcr.io/org/web:2.0.0' ` + web},
		"escapes":       {in: `image: "\"\u00e9" ` + web, want: `image: "ghcr.io/org/web:2.0.0" ` + web},
		"digest": {in: "image: x " + m("apps:pinned"), want: "image: ghcr.io/org/pinned:v2@" + digest + " " +
			m("apps:pinned")},
		"parts of an image": {in: "n: x " + m("apps:pinned:name") + "\nt: x " + m("apps:pinned:tag") + "\nd: x " +
			m("apps:pinned:digest"), want: "n: ghcr.io/org/pinned " + m("apps:pinned:name") + "\nt: v2 " +
			m("apps:pinned:tag") + "\nd: " + digest + " " + m("apps:pinned:digest")},
		"list items": {in: "- a\n- b:1 " + web + "\n-   - c:1 " + web, want: "- a\n- ghcr.io/org/web:2.0.0 " + web +
			"\n-   - ghcr.io/org/web:2.0.0 " + web},
		"flow mapping on several lines": {in: "image: {\n  name: a, " + m("apps:web:name") + "\n  tag: b " +
			tag + "\n}",
			want: "image: {\n  name: ghcr.io/org/web, " + m("apps:web:name") + "\n  tag: 2.0.0 " + tag + "\n}"},
		"flow mapping on one line": {in: "images: [{name: web, newTag: b}] " + tag,
			want: "images: [{name: web, newTag: 2.0.0}] " + tag},
		"anchor and tag": {in: "a: &img !!str w:1 " + web + "\nb: *img", want: "a: &img !!str ghcr.io/org/web:2.0.0 " +
			web + "\nb: *img"},
		"CRLF line ends": {in: "a: 1\r\nimage: w:1 " + web + "\r\nb: 2\r\n",
			want: "a: 1\r\nimage: ghcr.io/org/web:2.0.0 " +
				web + "\r\nb: 2\r\n"},
		"byte order mark": {in: "\ufeffimage: w:1 " + web + "\n", want: "\ufeffimage: ghcr.io/org/web:2.0.0 " +
			web + "\n"},
		"tabs": {in: "image:\tw:1\t" + web + "\t\n", want: "image:\tghcr.io/org/web:2.0.0\t" + web + "\t\n"},
		"several documents": {in: "%YAML 1.1\n---\na: w:1 " + web + "\n...\n--- # second\nb: w:1 " + web + "\n---\n",
			want: "%YAML 1.1\n---\na: ghcr.io/org/web:2.0.0 " + web +
				"\n...\n--- # second\nb: ghcr.io/org/web:2.0.0 " + web +
				"\n---\n"},
		"multi-byte characters": {in: "é: {ü: ö, image: w:1} " + web,
			want: "é: {ü: ö, image: ghcr.io/org/web:2.0.0} " + web},
		"Unicode line ends": {in: "a: b\u2028c: d\rimage: w:1 " + web,
			want: "a: b\u2028c: d\rimage: ghcr.io/org/web:2.0.0 " + web},
		"empty value": {in: "tag: " + tag + "\nlist:\n  - " + tag, want: "tag: 2.0.0 " + tag +
			"\nlist:\n  - 2.0.0 " + tag},
		"tag that looks like a number": {in: "tag: 1.9 " + m("apps:number:tag") + "\nquoted: '1.9' " +
			m("apps:number:tag") +
			"\nsha: abc " + m("apps:sha:tag"), want: `tag: "1.10" ` + m("apps:number:tag") + "\nquoted: '1.10' " +
			m("apps:number:tag") + "\n" + `sha: "12e45" ` + m("apps:sha:tag")},
		"text around the marker": {in: `image: w:1 # do not edit {"$imagepolicy": "apps:web"} # set by Sluice`,
			want: `image: ghcr.io/org/web:2.0.0 # do not edit {"$imagepolicy": "apps:web"} # set by Sluice`},
		"block scalar with a marker": {in: "note: |\n  image: w:1 " + web + "\n  # " + web + "\nimage: w:1 " + web,
			want: "note: |\n  image: w:1 " + web + "\n  # " + web + "\nimage: ghcr.io/org/web:2.0.0 " + web},
		"commented line": {in: "#image: w:1 " + web + "\nimage: w:1 " + web, want: "#image: w:1 " + web +
			"\nimage: ghcr.io/org/web:2.0.0 " + web},
		"marker in a quoted scalar": {in: `note: 'x ` + web + `'`, want: `note: 'x ` + web + `'`},
		"value is up to date":       {in: "tag: 2.0.0 " + tag, want: "tag: 2.0.0 " + tag},
		"no final line end":         {in: "image: w:1 " + web, want: "image: ghcr.io/org/web:2.0.0 " + web},
	} {
		t.Run(name, func(t *testing.T) {
			got := Markers("a.yaml", []byte(c.in), images)
			if diff := cmp.Diff(c.want, string(got.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if len(got.Problems) > 0 {
				t.Errorf("problems: %v", got.Problems)
			}
			if again := Markers("a.yaml", got.Content, images); len(again.Changes) > 0 {
				t.Errorf("changes of a second run: %v", again.Changes)
			}
		})
	}
}

func TestInvalidMarkerIsReportedAndOthersApply(t *testing.T) {
	for name, c := range map[string]struct{ line, problem, policy string }{
		"no JSON":                {line: `image: w:1 # {$imagepolicy: apps:web}`, problem: "malformed marker"},
		"broken JSON":            {line: `image: w:1 # {"$imagepolicy": "apps:web}`, problem: "malformed marker"},
		"not a JSON object":      {line: `image: w:1 # "$imagepolicy"`, problem: "malformed marker"},
		"policy is not a string": {line: `image: w:1 # {"$imagepolicy": 1}`, problem: "malformed marker"},
		"no namespace":           {line: "image: w:1 " + m("web"), problem: "does not have the form"},
		"no name":                {line: "image: w:1 " + m("apps:"), problem: "does not have the form"},
		"too many parts":         {line: "image: w:1 " + m("apps:web:tag:x"), problem: "does not have the form"},
		"unknown part":           {line: "image: w:1 " + m("apps:web:sha"), problem: "not a part of an image"},
		"unknown policy":         {line: "image: w:1 " + m("apps:none"), problem: "apps:none", policy: "apps:none"},
		"image without digest":   {line: "image: w:1 " + m("apps:web:digest"), problem: "digestReflectionPolicy"},
		"invalid image":          {line: "image: w:1 " + m("apps:evil"), problem: "not a valid reference"},
		"marker after a key":     {line: "image: " + m("apps:web") + "\n  w:1"},
		"alias":                  {line: "image: *v " + m("apps:web"), problem: "&v"},
		"a template":             {line: `image: "{{ .Values.image }}" ` + m("apps:web"), problem: "template"},
		"multi-line scalar":      {line: "image: \"w:1\n  x\" " + m("apps:web")},
		"block scalar":           {line: "image: | " + m("apps:web") + "\n  w:1", problem: "multi-line"},
	} {
		t.Run(name, func(t *testing.T) {
			in := "anchor: &v x\n" + c.line + "\nother: w:1 " + m("apps:web") + "\n"
			got := Markers("dir/a.yaml", []byte(in), images)
			if want := strings.Replace(in, "other: w:1", "other: ghcr.io/org/web:2.0.0",
				1); string(got.Content) != want {
				t.Errorf("content:\n%s", got.Content)
			}
			if c.problem == "" {
				return
			}
			if len(got.Problems) != 1 || got.Problems[0].Policy != c.policy ||
				!strings.Contains(got.Problems[0].String(), c.problem) ||
				!strings.HasPrefix(got.Problems[0].String(), "dir/a.yaml:2: ") {
				t.Errorf("problems: %v", got.Problems)
			}
		})
	}
}

func TestInvalidYAMLIsNotChanged(t *testing.T) {
	for name, in := range map[string]string{
		"a template":               "image: {{ .Values.image }}:1 " + m("apps:web"),
		"template with conditions": "{{- if .x }}\nimage: a:1 " + m("apps:web") + "\n{{- end }}",
		"binary":                   "\x00\x01image: a:1 " + m("apps:web"),
		"UTF-16":                   "\xff\xfei\x00m\x00 " + m("apps:web"),
		"not UTF-8":                "image: \xe9 " + m("apps:web"),
		"syntax error":             "a: b: c " + m("apps:web"),
		"too large":                "image: a:1 " + m("apps:web") + strings.Repeat("\n# more", maxFile/7),
		"too many documents":       "image: a:1 " + m("apps:web") + strings.Repeat("\n---", maxDocuments),
	} {
		got := Markers("a.yaml", []byte(in), images)
		if string(got.Content) != in || len(got.Changes) > 0 || len(got.Problems) != 1 {
			t.Errorf("%s: changes %v, problems %v", name, got.Changes, got.Problems)
		}
	}
	if got := Markers("a.yaml", []byte("{{ no marker"), images); len(got.Problems) > 0 {
		t.Errorf("problems of a file without markers: %v", got.Problems)
	}
}

func TestChangeHasItsPlace(t *testing.T) {
	in := `apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: prod}
  spec:
    template:
      spec:
        containers:
        - name: main
          image: w:1 ` + m("apps:web") + `
---
image:
  tag: 1 ` + m("apps:web:tag") + "\n"
	got := Markers("a.yaml", []byte(in), images)
	want := []Change{
		{File: "a.yaml", Line: 12,
			Object:    Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "prod", Name: "web"},
			Container: "main",
			Policy:    "apps:web", Setter: "apps:web", Old: "w:1", New: "ghcr.io/org/web:2.0.0"},
		{File: "a.yaml", Line: 15, Policy: "apps:web", Setter: "apps:web:tag", Old: "1", New: "2.0.0"},
	}
	if diff := cmp.Diff(want, got.Changes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"apps:web"}, got.Policies); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// FuzzMarkers checks that only the reported values change, and that a second run changes nothing.
func FuzzMarkers(f *testing.F) {
	for _, seed := range []string{
		"image: a:1 " + m("apps:web"), "a: &x 'b' " + m("apps:web:tag") + "\r\nc: *x\n---\n- |\n  " + m("apps:web"),
		"\ufeff{a: [b, c] " + m("apps:number:tag") + "\n}", "a: " + m("apps:pinned") + "\n- ? k " + m("apps:web") +
			"\n  : v",
		"a: !!int 1 " + m("apps:number:tag"), "- &a " + m("apps:web") + "\n- *a " + m("apps:web"), "<<: {a: b " +
			m("apps:web") + "}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got := Markers("a.yaml", in, images)
		if len(got.Changes) == 0 {
			if string(got.Content) != string(in) {
				t.Fatal("the file changed without a reported change")
			}
			return
		}
		original, err := parse(in)
		if err != nil {
			t.Fatalf("invalid YAML was changed: %v", err)
		}
		edited, err := parse(got.Content)
		if err != nil {
			t.Fatalf("%q became invalid YAML: %q: %v", in, got.Content, err)
		}
		before, after := flat(original), flat(edited)
		if len(before) != len(after) {
			t.Fatalf("%q became %q", in, got.Content)
		}
		changed := 0
		for i := range before {
			if before[i] == after[i] {
				continue
			}
			c := got.Changes[min(changed, len(got.Changes)-1)]
			if !strings.HasSuffix(before[i], c.Old) || !strings.HasSuffix(after[i], c.New) {
				t.Fatalf("%q became %q: %s became %s", in, got.Content, before[i], after[i])
			}
			changed++
		}
		if changed != len(got.Changes) {
			t.Fatalf("%q became %q: %d values changed, %d are reported", in, got.Content, changed, len(got.Changes))
		}
		if again := Markers("a.yaml", got.Content, images); len(again.Changes) > 0 {
			t.Fatalf("%q: changes of a second run: %v", got.Content, again.Changes)
		}
	})
}

// flat returns all nodes of all documents in order, as kind, line, anchor and value.
func flat(t *text) (all []string) {
	for _, doc := range t.docs {
		for _, n := range every(doc, nil) {
			all = append(all, fmt.Sprintf("%d %d &%s %s", n.Kind, n.Line, n.Anchor, n.Value))
		}
	}
	return all
}

// TestMarkedAliasOfUpdatedValue: a marked alias is valid if its anchor gets the same value.
func TestMarkedAliasOfUpdatedValue(t *testing.T) {
	in := "image: &v w:1 " + m("apps:web") + "\nother: *v " + m("apps:web") + "\n"
	want := strings.Replace(in, "w:1", "ghcr.io/org/web:2.0.0", 1)
	for _, content := range []string{in, want} {
		if got := Markers("a.yaml", []byte(content), images); string(got.Content) != want || len(got.Problems) > 0 {
			t.Errorf("%q became %q; %v", content, got.Content, got.Problems)
		}
	}
}
