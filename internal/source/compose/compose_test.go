package compose

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func contents(t *testing.T, tree *artifact.Tree) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := tree.Walk(func(name string, e *artifact.Entry) error {
		if e.Mode&fs.ModeSymlink != 0 {
			target, err := tree.ReadLink(name)
			out[name] = "symlink:" + target
			return err
		}
		b, err := tree.ReadFile(name)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// archived returns a .tar.gz archive of files whose content is their name.
func archived(t testing.TB, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, n := range names {
		err := w.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: int64(len(n))})
		if err == nil {
			_, err = w.Write([]byte(n))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func sources(t testing.TB) map[string]*artifact.Tree {
	return map[string]*artifact.Tree{
		"src": artifact.FromMap(map[string]string{
			"config.yaml": "a: 1\n", "README.md": "top",
			"configs/file1.yaml": "f1", "configs/file2.yaml": "f2", "configs/notes.md": "md",
			"configs/sub/file3.yaml": "f3", "configs/sub/testdata/x": "x",
			"deep/a/one.yaml": "1", "deep/b/two.yaml": "2", "deep/b/skip.txt": "s",
			"link": "symlink:configs", "linked.yaml": "symlink:configs/file1.yaml",
		}),
		"git": artifact.FromMap(map[string]string{"values-prod.yaml": "image: {tag: v2}\nlist: [c]\nbig: " +
			"12345678901234567890\nnone: null\n", "bad.yaml": "a: [", "list.yaml": "- a\n",
			"twice.yaml": "a: 1\na: 2\n"}),
		"chart": artifact.FromMap(map[string]string{"app/Chart.yaml": "name: app",
			"app/values.yaml": "image:\n  tag: v1\n  repo: r\nlist: [a, b]\nnone: x\n"}),
		"tars": artifact.FromMap(map[string]string{
			"app-1.0.tgz": archived(t, "app/Chart.yaml", "app/values.yaml"), "more/b.tar.gz": archived(t, "b.yaml"),
			"more/readme": "no archive", "broken.tgz": "no archive",
			"evil/out.tgz": archived(t, "../x"), "twice/a.tgz": archived(t, "same/x"),
			"twice/b.tgz": archived(t, "same/y"),
		}),
	}
}

var composedTrees = map[string]struct {
	copies []Copy
	want   map[string]string
}{
	"file to path": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/apps/app.yaml"}},
		want: map[string]string{"apps/app.yaml": "a: 1\n"}},
	"file to directory": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/apps/"}},
		want: map[string]string{"apps/config.yaml": "a: 1\n"}},
	"file to root": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/"}},
		want: map[string]string{"config.yaml": "a: 1\n"}},
	"file through symlink": {copies: []Copy{{From: "@src/linked.yaml", To: "@artifact/"}},
		want: map[string]string{"linked.yaml": "f1"}},
	"files to directory": {copies: []Copy{{From: "@src/configs/*.yaml", To: "@artifact/apps/"}},
		want: map[string]string{"apps/file1.yaml": "f1", "apps/file2.yaml": "f2"}},
	"files without trailing slash": {copies: []Copy{{From: "@src/configs/*1.yaml", To: "@artifact/apps"}},
		want: map[string]string{"apps/file1.yaml": "f1"}},
	"directory keeps its name": {copies: []Copy{{From: "@src/configs/sub/", To: "@artifact/apps/"}},
		want: map[string]string{"apps/sub/file3.yaml": "f3", "apps/sub/testdata/x": "x"}},
	"directory renamed": {copies: []Copy{{From: "@src/configs/sub", To: "@artifact/apps"}},
		want: map[string]string{"apps/file3.yaml": "f3", "apps/testdata/x": "x"}},
	"directory into existing directory": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/apps/"},
		{From: "@src/deep/a", To: "@artifact/apps"}},
		want: map[string]string{"apps/config.yaml": "a: 1\n", "apps/a/one.yaml": "1"}},
	"file into existing directory": {copies: []Copy{{From: "@src/deep/**", To: "@artifact/apps/"},
		{From: "@src/config.yaml", To: "@artifact/apps/a"}},
		want: map[string]string{"apps/a/one.yaml": "1", "apps/a/config.yaml": "a: 1\n", "apps/b/two.yaml": "2",
			"apps/b/skip.txt": "s"}},
	"contents of directory": {copies: []Copy{{From: "@src/deep/**", To: "@artifact/apps/"}},
		want: map[string]string{"apps/a/one.yaml": "1", "apps/b/two.yaml": "2", "apps/b/skip.txt": "s"}},
	"files at any depth": {copies: []Copy{{From: "@src/deep/**/*.yaml", To: "@artifact/"}},
		want: map[string]string{"a/one.yaml": "1", "b/two.yaml": "2"}},
	"star in the middle": {copies: []Copy{{From: "@src/deep/*/two.yaml", To: "@artifact/"}},
		want: map[string]string{"b/two.yaml": "2"}},
	"star does not match a directory": {copies: []Copy{{From: "@src/configs/*", To: "@artifact/"}},
		want: map[string]string{"file1.yaml": "f1", "file2.yaml": "f2", "notes.md": "md"}},
	"alternatives": {copies: []Copy{{From: "@src/configs/{file1,notes}.*", To: "@artifact/"}},
		want: map[string]string{"file1.yaml": "f1", "notes.md": "md"}},
	"through symlinked directory": {copies: []Copy{{From: "@src/link/sub/*", To: "@artifact/"}},
		want: map[string]string{"file3.yaml": "f3"}},
	"symlinks stay symlinks": {copies: []Copy{{From: "@src/link*", To: "@artifact/"}},
		want: map[string]string{"link": "symlink:configs", "linked.yaml": "symlink:configs/file1.yaml"}},
	"root by slash": {copies: []Copy{{From: "@chart/", To: "@artifact/x/"}},
		want: map[string]string{"x/app/Chart.yaml": "name: app",
			"x/app/values.yaml": "image:\n  tag: v1\n  repo: r\nlist: [a, b]\nnone: x\n"}},
	"glob with exclusions": {copies: []Copy{{From: "@src/configs/**", To: "@artifact/",
		Exclude: []string{"*.md", "**/testdata/**", "configs/file1.yaml", "sub/file3.yaml"}}},
		want: map[string]string{"file2.yaml": "f2"}},
	"directory with exclusions": {copies: []Copy{{From: "@src/configs/", To: "@artifact/",
		Exclude: []string{"sub/**", "*.md"}}},
		want: map[string]string{"configs/file1.yaml": "f1", "configs/file2.yaml": "f2"}},
	"later file replaces earlier": {copies: []Copy{{From: "@src/configs/file1.yaml", To: "@artifact/x"},
		{From: "@src/configs/file2.yaml", To: "@artifact/x"}}, want: map[string]string{"x": "f2"}},
	"merged values": {copies: []Copy{{From: "@chart/app/values.yaml", To: "@artifact/app/"},
		{From: "@git/values-prod.yaml", To: "@artifact/app/values.yaml", Strategy: Merge}},
		want: map[string]string{"app/values.yaml": "big: 12345678901234567890\nimage:\n  repo: r\n  tag: v2\n" +
			"list:\n" +
			"- c\nnone: null\n"}},
	"merged by name": {copies: []Copy{{From: "@chart/app/**", To: "@artifact/"},
		{From: "@git/values-prod.yaml", To: "@artifact/values.yaml", Strategy: Merge}},
		want: map[string]string{"Chart.yaml": "name: app",
			"values.yaml": "big: 12345678901234567890\nimage:\n  repo: r\n  tag: v2\nlist:\n- c\nnone: null\n"}},
	"merged directory": {copies: []Copy{{From: "@chart/app/**", To: "@artifact/"},
		{From: "@chart/app/**", To: "@artifact/", Strategy: Merge}},
		want: map[string]string{"Chart.yaml": "name: app\n",
			"values.yaml": "image:\n  repo: r\n  tag: v1\nlist:\n- a\n- b\nnone: x\n"}},
	"merge without existing file": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/", Strategy: Merge}},
		want: map[string]string{"config.yaml": "a: 1\n"}},
	"merge copies other files": {copies: []Copy{{From: "@src/README.md", To: "@artifact/x"},
		{From: "@src/configs/notes.md", To: "@artifact/x", Strategy: Merge}}, want: map[string]string{"x": "md"}},
	"extracted archive": {copies: []Copy{{From: "@tars/app-1.0.tgz", To: "@artifact/", Strategy: Extract}},
		want: map[string]string{"app/Chart.yaml": "app/Chart.yaml", "app/values.yaml": "app/values.yaml"}},
	"extracted archives": {copies: []Copy{{From: "@tars/more/**", To: "@artifact/x/", Strategy: Extract}},
		want: map[string]string{"x/b.yaml": "b.yaml"}},
	"extracted archives with the same directory": {
		copies: []Copy{{From: "@tars/twice/*.tgz", To: "@artifact/", Strategy: Extract}},
		want:   map[string]string{"same/x": "same/x", "same/y": "same/y"}},
	"extracted, then merged": {copies: []Copy{{From: "@chart/app/values.yaml", To: "@artifact/same/"},
		{From: "@tars/twice/a.tgz", To: "@artifact/", Strategy: Extract},
		{From: "@git/values-prod.yaml", To: "@artifact/same/values.yaml"}},
		want: map[string]string{"same/x": "same/x",
			"same/values.yaml": "image: {tag: v2}\nlist: [c]\nbig: 12345678901234567890\nnone: null\n"}},
}

func TestBuild(t *testing.T) {
	for name, c := range composedTrees {
		t.Run(name, func(t *testing.T) {
			if err := Check([]string{"src", "git", "chart", "tars"}, "",
				[]Output{{Name: "x", Copies: c.copies}}); err != nil {
				t.Fatal(err)
			}
			tree, err := Build(t.Context(), c.copies, sources(t))
			if err != nil {
				t.Fatal(err)
			}
			if got := contents(t, tree); !maps.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		copies  []Copy
		message string
	}{
		"missing file": {copies: []Copy{{From: "@src/none.yaml", To: "@artifact/"}},
			message: "'none.yaml' does not exist in the source"},
		"missing directory": {copies: []Copy{{From: "@src/none/**", To: "@artifact/"}},
			message: "'none' does not exist in the source"},
		"glob without matches": {copies: []Copy{{From: "@src/*.toml", To: "@artifact/"}}, message: "no file matches"},
		"glob with all matches excluded": {copies: []Copy{{From: "@src/*.md", To: "@artifact/",
			Exclude: []string{"*.md"}}},
			message: "no file matches"},
		"glob below file": {copies: []Copy{{From: "@src/config.yaml/*", To: "@artifact/"}}, message: "not a directory"},
		"invalid archive": {copies: []Copy{{From: "@tars/broken.tgz", To: "@artifact/", Strategy: Extract}},
			message: "broken.tgz"},
		"archive with path outside": {copies: []Copy{{From: "@tars/evil/out.tgz", To: "@artifact/", Strategy: Extract}},
			message: "leads out"},
		"file that is not an archive": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/", Strategy: Extract}},
			message: "not a .tar.gz or .tgz"},
		"files without an archive": {copies: []Copy{{From: "@src/configs/**", To: "@artifact/", Strategy: Extract}},
			message: "no file is a .tar.gz or .tgz"},
		"extracted directory": {copies: []Copy{{From: "@tars/more/", To: "@artifact/", Strategy: Extract}},
			message: "cannot be extracted"},
		"invalid YAML": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/a.yaml"},
			{From: "@git/bad.yaml", To: "@artifact/a.yaml", Strategy: Merge}},
			message: "'bad.yaml' is not YAML: yaml: line 1: did not find expected node content. Correct " +
				"spec.artifacts[].copy or the source. The last artifact stays available"},
		"YAML list": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/a.yaml"},
			{From: "@git/list.yaml", To: "@artifact/a.yaml", Strategy: Merge}}, message: "does not contain a mapping"},
		"YAML with duplicate key": {copies: []Copy{{From: "@src/config.yaml", To: "@artifact/a.yaml"},
			{From: "@git/twice.yaml", To: "@artifact/a.yaml", Strategy: Merge}}, message: "already set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Build(t.Context(), c.copies, sources(t))
			if fault.Reason(err, "") != meta.BuildFailedReason || !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v, want %q", err, c.message)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	ok := Copy{From: "@src/**", To: "@artifact/"}
	one := func(c Copy) []Output { return []Output{{Name: "x", Copies: []Copy{c}}} }
	for name, c := range map[string]struct {
		pattern string
		outputs []Output
		message string
	}{
		"unknown alias": {pattern: "", outputs: one(Copy{From: "@none/**", To: "@artifact/"}), message: "alias 'none'"},
		"revision of unknown source": {pattern: "",
			outputs: []Output{{Name: "x", Copies: []Copy{ok}, Revision: "@none"}},
			message: "revision of artifact 'x'"},
		"origin of unknown source": {pattern: "", outputs: []Output{{Name: "x", Copies: []Copy{ok}, Origin: "@none"}},
			message: "originRevision of artifact 'x'"},
		"duplicate name": {pattern: "",
			outputs: []Output{{Name: "x", Copies: []Copy{ok}}, {Name: "x", Copies: []Copy{ok}}},
			message: "two artifacts have the name 'x'"},
		"invalid name": {pattern: "", outputs: []Output{{Name: "X_", Copies: []Copy{ok}}},
			message: "'X_' is not valid"},
		"path outside of source": {pattern: "", outputs: one(Copy{From: "@src/../x", To: "@artifact/"}),
			message: "outside of the source"},
		"target outside of artifact": {pattern: "", outputs: one(Copy{From: "@src/x", To: "@artifact/../x"}),
			message: "@artifact/<path>. Correct the ArtifactGenerator. Its last artifacts stay available"},
		"target in source": {pattern: "", outputs: one(Copy{From: "@src/x", To: "@src/x"}),
			message: "@artifact/<path>"},
		"invalid glob": {pattern: "", outputs: one(Copy{From: "@src/[", To: "@artifact/"}),
			message: "not a valid glob"},
		"invalid exclude": {pattern: "", outputs: one(Copy{From: "@src/**", To: "@artifact/", Exclude: []string{"{a"}}),
			message: "not a valid glob"},
		"too many alternatives": {pattern: "",
			outputs: one(Copy{From: "@src/{" + strings.Repeat("a,", 64) + "}", To: "@artifact/"}),
			message: "not a valid glob"},
		"too many combinations": {pattern: "", // each name would be compared with a million forms
			outputs: one(Copy{From: "@src/**", To: "@artifact/", Exclude: []string{strings.Repeat("{a,a}", 20)}}),
			message: "whose braces stand for at most 64 forms"},
		"combinations in each other": {pattern: "",
			outputs: one(Copy{From: "@src/{{" + strings.Repeat("{a,a}", 6) + ",b},c}", To: "@artifact/"}),
			message: "not a valid glob"},
		"unknown strategy": {pattern: "", outputs: one(Copy{From: "@src/**", To: "@artifact/", Strategy: "Append"}),
			message: "strategy 'Append'"},
		"pattern with unknown alias":     {pattern: "@none/{app}", outputs: one(ok), message: "alias 'none'"},
		"pattern with duplicate capture": {pattern: "@src/{app}/{app}", outputs: one(ok), message: "twice"},
		"pattern outside of source": {pattern: "@src/../{app}", outputs: one(ok),
			message: "does not select directories"},
		"pattern without directories": {pattern: "@src/", outputs: one(ok), message: "does not select directories"},
		"pattern with two stars": {pattern: "@src/**/{app}", outputs: one(ok),
			message: "is not a name, {name} or *"},
		"pattern with alternatives": {pattern: "@src/{a,b}", outputs: one(ok),
			message: "is not a name, {name} or *"},
		"pattern with invalid capture": {pattern: "@src/{" + strings.Repeat("a", 70) + "}", outputs: one(ok),
			message: "cannot be a label"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check([]string{"src"}, c.pattern, c.outputs)
			f := fault.As(err)
			if f == nil || f.Reason != extensionsv1beta1.ValidationFailedReason || !f.Terminal ||
				!strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v, want %q", err, c.message)
			}
		})
	}
	if err := Check([]string{"a", "a"}, "", nil); fault.Reason(err, "") != extensionsv1beta1.ValidationFailedReason {
		t.Errorf("duplicate alias: %v", err)
	}
}

var monorepo = artifact.FromMap(map[string]string{
	"apps/Auth/envs/dev/app.yaml": "auth dev", "apps/Auth/envs/prod/app.yaml": "auth prod",
	"apps/pay/envs/dev/app.yaml": "pay dev",
	"apps/README.md":             "", "apps/pay/envs/README": "", "team-a.x/b": "", "team-b.x/b": "", "other.x/b": "",
})

func TestExpandDiscoversDirectories(t *testing.T) {
	outputs := []Output{{Name: "{app}-{env}", Origin: "@repo", Copies: []Copy{
		{From: "@repo/apps/{app}/envs/{env}/**", To: "@artifact/{app}/", Exclude: []string{"{env}.md"}},
	}}}
	if err := Check([]string{"repo"}, "@repo/apps/{app}/envs/{env}", outputs); err != nil {
		t.Fatal(err)
	}
	trees := map[string]*artifact.Tree{"repo": monorepo}
	got, err := Expand("@repo/apps/{app}/envs/{env}", outputs, trees)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range got {
		names = append(names, o.Name)
	}
	if want := []string{"auth-dev", "auth-prod", "pay-dev"}; !slices.Equal(names, want) {
		t.Fatalf("got %q, want %q", names, want)
	}
	if first := got[0]; !maps.Equal(first.Labels, map[string]string{"app": "auth", "env": "dev"}) ||
		first.Origin != "@repo" || first.Copies[0].Exclude[0] != "dev.md" {
		t.Errorf("got %+v", first)
	}
	tree, err := Build(t.Context(), got[0].Copies, trees)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"Auth/app.yaml": "auth dev"}; !maps.Equal(contents(t, tree), want) {
		t.Errorf("got %q", contents(t, tree))
	}
	parts, err := Expand("@repo/team-{team}.*",
		[]Output{{Name: "t-{team}", Copies: []Copy{{From: "@repo/team-{team}.x/**", To: "@artifact/"}}}}, trees)
	if err != nil || len(parts) != 2 || parts[0].Name != "t-a" || parts[1].Name != "t-b" {
		t.Errorf("captures within names: %+v, %v", parts, err)
	}
}

func TestExpandRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		name    string
		reason  string
		message string
	}{
		"directories that differ in case": {files: map[string]string{"apps/Auth/a": "", "apps/auth/a": ""},
			name:   "{app}",
			reason: extensionsv1beta1.ValidationFailedReason, message: "both produce an artifact named 'auth'"},
		"directory that is not a valid label": {files: map[string]string{"apps/.hidden/a": ""}, name: "x{app}",
			reason: extensionsv1beta1.ValidationFailedReason, message: "'.hidden' cannot be a label"},
		"directory that is not a valid name": {files: map[string]string{"apps/a_b/a": ""}, name: "{app}",
			reason: extensionsv1beta1.ValidationFailedReason, message: "'a_b' is not valid"},
		"name without captures": {files: map[string]string{"apps/a/a": "", "apps/b/a": ""}, name: "same",
			reason: extensionsv1beta1.ValidationFailedReason, message: "both produce an artifact named 'same'. " +
				"Correct the ArtifactGenerator. Its last artifacts stay available"},
		"no directory": {files: map[string]string{"apps/file": ""}, name: "{app}", reason: meta.BuildFailedReason,
			message: "no directory matches spec.pathPattern '@repo/apps/{app}'. Correct it, or delete the " +
				"ArtifactGenerator if it is no longer needed. Its last artifacts stay available"},
	} {
		t.Run(name, func(t *testing.T) {
			outputs := []Output{{Name: c.name, Copies: []Copy{{From: "@repo/apps/{app}/**", To: "@artifact/"}}}}
			_, err := Expand("@repo/apps/{app}", outputs, map[string]*artifact.Tree{"repo": artifact.FromMap(c.files)})
			if fault.Reason(err, "") != c.reason || !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestBuildDoesNotReadCopiedFiles(t *testing.T) {
	unread := artifact.NewTree(monorepo.Root(), unreadable{})
	tree, err := Build(t.Context(), []Copy{{From: "@repo/apps/**", To: "@artifact/x/", Exclude: []string{"*.md"}}},
		map[string]*artifact.Tree{"repo": unread})
	if err != nil {
		t.Fatal(err)
	}
	before, err1 := unread.ID("apps/pay")
	after, err2 := tree.ID("x/pay")
	if err := errors.Join(err1, err2); err != nil || before != after {
		t.Errorf("the ID of a copied directory changed: %v", err)
	}
}

type unreadable struct{}

func (unreadable) Size(string) (int64, error)  { return 0, errors.ErrUnsupported }
func (unreadable) Read(string) ([]byte, error) { return nil, errors.ErrUnsupported }

func TestGlobsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trees := map[string]*artifact.Tree{"src": artifact.FromMap(map[string]string{"a.yaml": "a"})}
	_, err := Build(ctx, []Copy{{From: "@src/**", To: "@artifact/"}}, trees)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
