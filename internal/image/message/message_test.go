package message

import (
	"errors"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/image/edit"
)

var data = DataOf(types.NamespacedName{Namespace: "apps", Name: "update"}, "", []edit.Change{
	{File: "b.yaml", Object: edit.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "prod", Name: "web"},
		Setter: "apps:web", Old: "web:1", New: "web:2"},
	{File: "a.yaml", Object: edit.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "prod", Name: "web"},
		Setter: "apps:web:tag", Old: "1", New: "2"},
	{File: "a.yaml", Setter: "apps:api:tag", Old: "5", New: "5.0.3"},
}, map[string]string{"cluster": "prod"})

func TestTemplateData(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"automation": {in: "for {{ .AutomationObject }}: {{ .AutomationObject.Name }} in {{ " +
			".AutomationObject.Namespace }}", want: "for apps/update: update in apps"},
		"files": {in: "{{ range $filename, $_ := .Changed.FileChanges -}}\n- {{ $filename }}\n{{ end -}}",
			want: "- a.yaml\n- b.yaml"},
		"objects": {in: "{{ range $resource, $changes := .Changed.Objects -}}\n" +
			"- {{ $resource.Kind | lower }} {{ $resource.Name }}:{{ range $_, $change := $changes }} {{ " +
			"$change.OldValue }} -> {{ $change.NewValue }}{{ end }}\n{{ end -}}",
			want: "-  : 5 -> 5.0.3\n- deployment web:"},
		"changes": {in: "{{range .Changed.Changes}}{{print .OldValue}} -> {{println .NewValue}}{{end}}",
			want: "web:1 -> web:2\n1 -> 2\n5 -> 5.0.3"},
		"setters": {in: "{{range .Changed.Changes}}{{ .Setter }} {{end}}",
			want: "apps:web apps:web:tag apps:api:tag"},
		"values": {in: "{{ .Values.cluster }}{{ .Values.none }}", want: "prod"},
		"functions": {in: `{{ if contains "5.0.3" (index .Changed.Changes 2).NewValue }}{{ "Yes" | upper }}{{ end }} ` +
			`{{ printf "I%s" ( sha256sum "x" | trunc 40 ) }}`, want: "YES I2d711642b726b04401627ca9fbac32f5c8530fb1"},
		"maps as strings": {in: `{{ sha256sum (.Changed.FileChanges | toString) | trunc 4 }}`},
		"lists":           {in: `{{ list "a" 1 | join "," }}`, want: "a,1"},
	} {
		tmpl, err := Parse(c.in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := tmpl.Execute(data)
		if err != nil || !strings.HasPrefix(got, c.want) || got == "" {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
		if again, err := tmpl.Execute(data); again != got || err != nil {
			t.Errorf("%s: second execution: %q, %v", name, again, err)
		}
	}
}

func TestParseRejectsRemovedField(t *testing.T) {
	for _, in := range []string{"{{ range .Updated.Images }}{{ . }}{{ end }}", "{{ .Updated }}",
		"{{ range $.Updated.Files }}x{{ end }}"} {
		if _, err := Parse(in); !errors.Is(err, ErrRemoved) {
			t.Errorf("%s: %v", in, err)
		}
	}
	if _, err := Parse("{{ .Other }}"); errors.Is(err, ErrRemoved) {
		t.Error("ErrRemoved for another unknown field")
	}
}

func TestTemplatesAreBoundedAndIsolated(t *testing.T) {
	if err := os.Setenv("SLUICE_TEST_SECRET", "hunter2"); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"nested long loops":     "{{ range 1000000000 }}{{ range 1000000000 }}{{ end }}{{ end }}",
		"empty long loop":       "{{ range 1000000000 }}{{ end }}",
		"recursion":             `{{ define "a" }}{{ template "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`,
		"doubling a string":     `{{ $x := "x" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}`,
		"doubling with cat":     `{{ $x := "x" }}{{ range 100 }}{{ $x = cat $x $x }}{{ end }}`,
		"nested lists":          `{{ $x := list 1 }}{{ range 100 }}{{ $x = list $x $x }}{{ end }}{{ $x }}`,
		"repeat":                `{{ repeat 1000000000 "x" }}`,
		"wide number":           `{{ printf "%999999d" 1 }}`,
		"indent":                `{{ indent 1000000000 "x" }}`,
		"long output":           `{{ range 100000 }}xxxxxxxxxx{{ end }}`,
		"environment variable":  `{{ env "SLUICE_TEST_SECRET" }}`,
		"environment expansion": `{{ expandenv "$SLUICE_TEST_SECRET" }}`,
		"DNS lookup":            `{{ getHostByName "localhost" }}`,
		"key generation":        `{{ genPrivateKey "rsa" }}`,
		"template too large":    strings.Repeat("x", maxTemplate+1),
		"fail":                  `{{ fail "on purpose" }}`,
		"index out of range":    `{{ index .Changed.Changes 10 }}`,
		"syntax error":          `{{ if }}`,
	} {
		tmpl, err := Parse(in)
		if err == nil {
			_, err = tmpl.Execute(data)
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("{{ range .Changed.Changes }}{{ .NewValue | upper | trunc 3 }}{{ end }}{{ .Values.cluster }}")
	f.Add("{{ with $x := .AutomationObject }}{{ $x | toJson | regexFind \"a+\" | nindent 3 }}{{ end }}")
	f.Fuzz(func(t *testing.T, in string) {
		tmpl, err := Parse(in)
		if err != nil {
			return
		}
		if got, err := tmpl.Execute(data); err == nil && len(got) > maxOutput {
			t.Errorf("%q has %d bytes", in, len(got))
		}
	})
}

// TestFunctionsWriteBoundedText checks templates that would write gigabytes before the result is checked.
func TestFunctionsWriteBoundedText(t *testing.T) {
	const long = `{{ $x := repeat 6 (repeat 10000 "a") }}`
	for name, text := range map[string]string{
		"repeat":                 long + `{{ repeat 10000 $x }}`,
		"indent":                 `{{ $x := repeat 10000 "\n" }}{{ indent 10000 $x }}`,
		"nindent":                `{{ $x := repeat 10000 "\n" }}{{ nindent 10000 $x }}`,
		"replace":                long + `{{ replace "" $x $x }}`,
		"regexReplaceAll":        long + `{{ regexReplaceAll "a" $x $x }}`,
		"regexReplaceAllLiteral": long + `{{ regexReplaceAllLiteral "a" $x $x }}`,
		"wrapWith":               long + `{{ wrapWith 1 $x $x }}`,
		"join":                   long + `{{ join $x (splitList "b" (repeat 5000 "ab")) }}`,
		"printf":                 `{{ printf "%1000000d" 1 }}`,
		"cat":                    long + `{{ cat ` + strings.Repeat("$x ", 1000) + `}}`,
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = parsed.Execute(DataOf(types.NamespacedName{}, "", nil, nil))
		if want := "the arguments of '" + name + "' are too large for a template"; err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	parsed, err := Parse(`{{ printf "%-5s|%03d in 2026" "a" 7 }} {{ join ", " (list "a" "b") }} {{ indent 2 "x" }} ` +
		`{{ "aba" | replace "a" "cc" }} {{ repeat 3 "z" }}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parsed.Execute(Data{}); err != nil || got != "a    |007 in 2026 a, b   x ccbcc zzz" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFileChangesBelowThePath checks the keys of FileChanges: they are relative to spec.update.path.
func TestFileChangesBelowThePath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, file, want string }{
		{"", "apps/web.yaml", "apps/web.yaml"}, {"./", "apps/web.yaml", "apps/web.yaml"},
		{".", "web.yaml", "web.yaml"}, {"/", "web.yaml", "web.yaml"},
		{"./apps", "apps/web.yaml", "web.yaml"}, {"apps/", "apps/prod/web.yaml", "prod/web.yaml"},
		{"/apps//prod/", "apps/prod/web.yaml", "web.yaml"}, {"apps/x/..", "apps/web.yaml", "web.yaml"},
		{"app", "apps/web.yaml", "apps/web.yaml"}, {"../apps", "apps/web.yaml", "web.yaml"},
	} {
		d := DataOf(types.NamespacedName{}, c.path, []edit.Change{{File: c.file, Old: "a", New: "b"}}, nil)
		if _, ok := d.Changed.FileChanges[c.want]; !ok || len(d.Changed.FileChanges) != 1 {
			t.Errorf("path %q, file %q: got %v, want %q", c.path, c.file, d.Changed.FileChanges, c.want)
		}
	}
}

// TestChangesAreListedOnce checks that one image that is set in three places is one change.
func TestChangesAreListedOnce(t *testing.T) {
	t.Parallel()
	same := edit.Change{File: "a.yaml", Old: "a:1", New: "a:2", Setter: "apps:a"}
	other := edit.Change{File: "a.yaml", Old: "a:0", New: "a:2", Setter: "apps:a"}
	d := DataOf(types.NamespacedName{}, "", []edit.Change{same, other, same, same}, nil)
	if got := d.Changed.Changes(); len(got) != 2 || got[0].OldValue != "a:1" || got[1].OldValue != "a:0" {
		t.Errorf("got %v", got)
	}
	if got := d.Changed.Objects()[ObjectIdentifier{}]; len(got) != 4 {
		t.Errorf("got %v", got)
	}
}
