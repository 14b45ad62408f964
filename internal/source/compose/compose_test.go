package compose

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
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

// archived makes a .tar.gz of files with a name each that they hold.
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

func TestBuildCopiesAsDeclared(t *testing.T) {
	for what, c := range map[string]struct {
		copies []Copy
		want   map[string]string
	}{
		"a file to a path": {[]Copy{{From: "@src/config.yaml", To: "@artifact/apps/app.yaml"}},
			map[string]string{"apps/app.yaml": "a: 1\n"}},
		"a file to a directory": {[]Copy{{From: "@src/config.yaml", To: "@artifact/apps/"}},
			map[string]string{"apps/config.yaml": "a: 1\n"}},
		"a file to the root": {[]Copy{{From: "@src/config.yaml", To: "@artifact/"}},
			map[string]string{"config.yaml": "a: 1\n"}},
		"a file through a link": {[]Copy{{From: "@src/linked.yaml", To: "@artifact/"}},
			map[string]string{"linked.yaml": "f1"}},
		"files to a directory": {[]Copy{{From: "@src/configs/*.yaml", To: "@artifact/apps/"}},
			map[string]string{"apps/file1.yaml": "f1", "apps/file2.yaml": "f2"}},
		"files, no slash": {[]Copy{{From: "@src/configs/*1.yaml", To: "@artifact/apps"}},
			map[string]string{"apps/file1.yaml": "f1"}},
		"a directory by its name": {[]Copy{{From: "@src/configs/sub/", To: "@artifact/apps/"}},
			map[string]string{"apps/sub/file3.yaml": "f3", "apps/sub/testdata/x": "x"}},
		"a directory renamed": {[]Copy{{From: "@src/configs/sub", To: "@artifact/apps"}},
			map[string]string{"apps/file3.yaml": "f3", "apps/testdata/x": "x"}},
		"a directory into one that is there": {[]Copy{{From: "@src/config.yaml", To: "@artifact/apps/"},
			{From: "@src/deep/a", To: "@artifact/apps"}},
			map[string]string{"apps/config.yaml": "a: 1\n", "apps/a/one.yaml": "1"}},
		"a file into a directory that is there": {[]Copy{{From: "@src/deep/**", To: "@artifact/apps/"},
			{From: "@src/config.yaml", To: "@artifact/apps/a"}},
			map[string]string{"apps/a/one.yaml": "1", "apps/a/config.yaml": "a: 1\n", "apps/b/two.yaml": "2",
				"apps/b/skip.txt": "s"}},
		"contents of a directory": {[]Copy{{From: "@src/deep/**", To: "@artifact/apps/"}},
			map[string]string{"apps/a/one.yaml": "1", "apps/b/two.yaml": "2", "apps/b/skip.txt": "s"}},
		"files at any depth": {[]Copy{{From: "@src/deep/**/*.yaml", To: "@artifact/"}},
			map[string]string{"a/one.yaml": "1", "b/two.yaml": "2"}},
		"a star in the middle": {[]Copy{{From: "@src/deep/*/two.yaml", To: "@artifact/"}},
			map[string]string{"b/two.yaml": "2"}},
		"a star is no directory": {[]Copy{{From: "@src/configs/*", To: "@artifact/"}},
			map[string]string{"file1.yaml": "f1", "file2.yaml": "f2", "notes.md": "md"}},
		"alternatives": {[]Copy{{From: "@src/configs/{file1,notes}.*", To: "@artifact/"}},
			map[string]string{"file1.yaml": "f1", "notes.md": "md"}},
		"through a linked dir": {[]Copy{{From: "@src/link/sub/*", To: "@artifact/"}},
			map[string]string{"file3.yaml": "f3"}},
		"links stay links": {[]Copy{{From: "@src/link*", To: "@artifact/"}},
			map[string]string{"link": "symlink:configs", "linked.yaml": "symlink:configs/file1.yaml"}},
		"the root by a slash": {[]Copy{{From: "@chart/", To: "@artifact/x/"}},
			map[string]string{"x/app/Chart.yaml": "name: app",
				"x/app/values.yaml": "image:\n  tag: v1\n  repo: r\nlist: [a, b]\nnone: x\n"}},
		"all but some": {[]Copy{{From: "@src/configs/**", To: "@artifact/",
			Exclude: []string{"*.md", "**/testdata/**", "configs/file1.yaml", "sub/file3.yaml"}}},
			map[string]string{"file2.yaml": "f2"}},
		"a directory but some": {[]Copy{{From: "@src/configs/", To: "@artifact/", Exclude: []string{"sub/**", "*.md"}}},
			map[string]string{"configs/file1.yaml": "f1", "configs/file2.yaml": "f2"}},
		"the later wins": {[]Copy{{From: "@src/configs/file1.yaml", To: "@artifact/x"},
			{From: "@src/configs/file2.yaml", To: "@artifact/x"}}, map[string]string{"x": "f2"}},
		"values merged": {[]Copy{{From: "@chart/app/values.yaml", To: "@artifact/app/"},
			{From: "@git/values-prod.yaml", To: "@artifact/app/values.yaml", Strategy: Merge}},
			map[string]string{"app/values.yaml": "big: 12345678901234567890\nimage:\n  repo: r\n  tag: v2\nlist:\n" +
				"- c\nnone: null\n"}},
		"merged by name": {[]Copy{{From: "@chart/app/**", To: "@artifact/"},
			{From: "@git/values-prod.yaml", To: "@artifact/values.yaml", Strategy: Merge}},
			map[string]string{"Chart.yaml": "name: app",
				"values.yaml": "big: 12345678901234567890\nimage:\n  repo: r\n  tag: v2\nlist:\n- c\nnone: null\n"}},
		"a directory merged": {[]Copy{{From: "@chart/app/**", To: "@artifact/"},
			{From: "@chart/app/**", To: "@artifact/", Strategy: Merge}},
			map[string]string{"Chart.yaml": "name: app\n",
				"values.yaml": "image:\n  repo: r\n  tag: v1\nlist:\n- a\n- b\nnone: x\n"}},
		"merged into nothing": {[]Copy{{From: "@src/config.yaml", To: "@artifact/", Strategy: Merge}},
			map[string]string{"config.yaml": "a: 1\n"}},
		"what is no YAML is copied": {[]Copy{{From: "@src/README.md", To: "@artifact/x"},
			{From: "@src/configs/notes.md", To: "@artifact/x", Strategy: Merge}}, map[string]string{"x": "md"}},
		"an archive extracted": {[]Copy{{From: "@tars/app-1.0.tgz", To: "@artifact/", Strategy: Extract}},
			map[string]string{"app/Chart.yaml": "app/Chart.yaml", "app/values.yaml": "app/values.yaml"}},
		"archives extracted": {[]Copy{{From: "@tars/more/**", To: "@artifact/x/", Strategy: Extract}},
			map[string]string{"x/b.yaml": "b.yaml"}},
		"archives extracted over each other": {[]Copy{{From: "@tars/twice/*.tgz", To: "@artifact/", Strategy: Extract}},
			map[string]string{"same/x": "same/x", "same/y": "same/y"}},
		"extracted, then merged": {[]Copy{{From: "@chart/app/values.yaml", To: "@artifact/same/"},
			{From: "@tars/twice/a.tgz", To: "@artifact/", Strategy: Extract},
			{From: "@git/values-prod.yaml", To: "@artifact/same/values.yaml"}},
			map[string]string{"same/x": "same/x",
				"same/values.yaml": "image: {tag: v2}\nlist: [c]\nbig: 12345678901234567890\nnone: null\n"}},
	} {
		t.Run(what, func(t *testing.T) {
			if err := Check([]string{"src", "git", "chart", "tars"}, "",
				[]Output{{Name: "x", Copies: c.copies}}); err != nil {
				t.Fatal(err)
			}
			tree, err := Build(c.copies, sources(t))
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
	for what, c := range map[string]struct {
		copies []Copy
		says   string
	}{
		"a file that is not there": {[]Copy{{From: "@src/none.yaml", To: "@artifact/"}},
			"'none.yaml' is not in the source"},
		"a directory that is not there": {[]Copy{{From: "@src/none/**", To: "@artifact/"}},
			"'none' is not in the source"},
		"a glob that matches nothing": {[]Copy{{From: "@src/*.toml", To: "@artifact/"}}, "no file matches"},
		"a glob of which all is excluded": {[]Copy{{From: "@src/*.md", To: "@artifact/", Exclude: []string{"*.md"}}},
			"no file matches"},
		"a glob below a file": {[]Copy{{From: "@src/config.yaml/*", To: "@artifact/"}}, "not a directory"},
		"an archive that is none": {[]Copy{{From: "@tars/broken.tgz", To: "@artifact/", Strategy: Extract}},
			"broken.tgz"},
		"an archive that leads out": {[]Copy{{From: "@tars/evil/out.tgz", To: "@artifact/", Strategy: Extract}},
			"leads out"},
		"a file that is no archive": {[]Copy{{From: "@src/config.yaml", To: "@artifact/", Strategy: Extract}},
			"not a .tar.gz or .tgz"},
		"files without an archive": {[]Copy{{From: "@src/configs/**", To: "@artifact/", Strategy: Extract}},
			"no .tar.gz or .tgz"},
		"a directory to extract": {[]Copy{{From: "@tars/more/", To: "@artifact/", Strategy: Extract}},
			"cannot be extracted"},
		"YAML that is none": {[]Copy{{From: "@src/config.yaml", To: "@artifact/a.yaml"},
			{From: "@git/bad.yaml", To: "@artifact/a.yaml", Strategy: Merge}}, "'bad.yaml' is not YAML"},
		"YAML that is a list": {[]Copy{{From: "@src/config.yaml", To: "@artifact/a.yaml"},
			{From: "@git/list.yaml", To: "@artifact/a.yaml", Strategy: Merge}}, "does not hold a mapping"},
		"YAML that says a thing twice": {[]Copy{{From: "@src/config.yaml", To: "@artifact/a.yaml"},
			{From: "@git/twice.yaml", To: "@artifact/a.yaml", Strategy: Merge}}, "already set"},
		"names that differ in case": {[]Copy{{From: "@src/config.yaml", To: "@artifact/a"},
			{From: "@src/config.yaml", To: "@artifact/A"}}, "case only"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := Build(c.copies, sources(t))
			if fault.Reason(err, "") != meta.BuildFailedReason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it to say %q", err, c.says)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	ok := Copy{From: "@src/**", To: "@artifact/"}
	one := func(c Copy) []Output { return []Output{{Name: "x", Copies: []Copy{c}}} }
	for what, c := range map[string]struct {
		pattern string
		outputs []Output
		says    string
	}{
		"an alias that is not there": {"", one(Copy{From: "@none/**", To: "@artifact/"}), "alias 'none'"},
		"a revision of no source": {"", []Output{{Name: "x", Copies: []Copy{ok}, Revision: "@none"}},
			"revision of artifact 'x'"},
		"an origin of no source": {"", []Output{{Name: "x", Copies: []Copy{ok}, Origin: "@none"}},
			"originRevision of artifact 'x'"},
		"two of one name": {"",
			[]Output{{Name: "x", Copies: []Copy{ok}}, {Name: "x", Copies: []Copy{ok}}}, "two artifacts are called 'x'"},
		"a name that is none":         {"", []Output{{Name: "X_", Copies: []Copy{ok}}}, "'X_' is not valid"},
		"a path out of the source":    {"", one(Copy{From: "@src/../x", To: "@artifact/"}), "leads out"},
		"a place out of the artifact": {"", one(Copy{From: "@src/x", To: "@artifact/../x"}), "@artifact/<path>"},
		"a place in a source":         {"", one(Copy{From: "@src/x", To: "@src/x"}), "@artifact/<path>"},
		"a glob that is none":         {"", one(Copy{From: "@src/[", To: "@artifact/"}), "not a valid glob"},
		"an exclude that is none": {"", one(Copy{From: "@src/**", To: "@artifact/", Exclude: []string{"{a"}}),
			"not a valid glob"},
		"too many alternatives": {"",
			one(Copy{From: "@src/{" + strings.Repeat("a,", 21) + "}", To: "@artifact/"}), "not a valid glob"},
		"a strategy that is none": {"", one(Copy{From: "@src/**", To: "@artifact/", Strategy: "Append"}),
			"strategy 'Append'"},
		"a pattern of no source":           {"@none/{app}", one(ok), "alias 'none'"},
		"a pattern that captures twice":    {"@src/{app}/{app}", one(ok), "twice"},
		"a pattern that leads out":         {"@src/../{app}", one(ok), "names no directories"},
		"a pattern of everything":          {"@src/", one(ok), "names no directories"},
		"a pattern with stars":             {"@src/**/{app}", one(ok), "neither a name"},
		"a pattern with a group":           {"@src/{a,b}", one(ok), "neither a name"},
		"a pattern whose name is no label": {"@src/{" + strings.Repeat("a", 70) + "}", one(ok), "cannot be a label"},
	} {
		t.Run(what, func(t *testing.T) {
			err := Check([]string{"src"}, c.pattern, c.outputs)
			f := fault.As(err)
			if f == nil || f.Reason != extensionsv1beta1.ValidationFailedReason || !f.Terminal ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it to say %q", err, c.says)
			}
		})
	}
	if err := Check([]string{"a", "a"}, "", nil); fault.Reason(err, "") != extensionsv1beta1.ValidationFailedReason {
		t.Errorf("two sources of one alias: %v", err)
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
	tree, err := Build(got[0].Copies, trees)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"Auth/app.yaml": "auth dev"}; !maps.Equal(contents(t, tree), want) {
		t.Errorf("got %q", contents(t, tree))
	}
	parts, err := Expand("@repo/team-{team}.*",
		[]Output{{Name: "t-{team}", Copies: []Copy{{From: "@repo/team-{team}.x/**", To: "@artifact/"}}}}, trees)
	if err != nil || len(parts) != 2 || parts[0].Name != "t-a" || parts[1].Name != "t-b" {
		t.Errorf("parts of names: %+v, %v", parts, err)
	}
}

func TestExpandRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		files  map[string]string
		name   string
		reason string
		says   string
	}{
		"directories that differ in case": {map[string]string{"apps/Auth/a": "", "apps/auth/a": ""}, "{app}",
			extensionsv1beta1.ValidationFailedReason, "both give an artifact called 'auth'"},
		"a directory that cannot be a label": {map[string]string{"apps/.hidden/a": ""}, "x{app}",
			extensionsv1beta1.ValidationFailedReason, "'.hidden' cannot be a label"},
		"a directory that cannot be a name": {map[string]string{"apps/a_b/a": ""}, "{app}",
			extensionsv1beta1.ValidationFailedReason, "'a_b' is not valid"},
		"a name for all": {map[string]string{"apps/a/a": "", "apps/b/a": ""}, "same",
			extensionsv1beta1.ValidationFailedReason, "both give"},
		"no directory": {map[string]string{"apps/file": ""}, "{app}", meta.BuildFailedReason,
			"no directory matches"},
	} {
		t.Run(what, func(t *testing.T) {
			outputs := []Output{{Name: c.name, Copies: []Copy{{From: "@repo/apps/{app}/**", To: "@artifact/"}}}}
			_, err := Expand("@repo/apps/{app}", outputs, map[string]*artifact.Tree{"repo": artifact.FromMap(c.files)})
			if fault.Reason(err, "") != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestBuildReadsNothingThatItCopies(t *testing.T) {
	unread := artifact.NewTree(monorepo.Root(), unreadable{})
	tree, err := Build([]Copy{{From: "@repo/apps/**", To: "@artifact/x/", Exclude: []string{"*.md"}}},
		map[string]*artifact.Tree{"repo": unread})
	if err != nil {
		t.Fatal(err)
	}
	before, err1 := unread.ID("apps/pay")
	after, err2 := tree.ID("x/pay")
	if err := errors.Join(err1, err2); err != nil || before != after {
		t.Errorf("a directory that is copied whole changed: %v", err)
	}
}

type unreadable struct{}

func (unreadable) Size(string) (int64, error)  { return 0, errors.ErrUnsupported }
func (unreadable) Read(string) ([]byte, error) { return nil, errors.ErrUnsupported }

func FuzzCopy(f *testing.F) {
	f.Add("@src/configs/**", "@artifact/x/", "**/*.md", "Merge")
	f.Add("@tars/**/*.tgz", "@artifact/", "[!a]*", "Extract")
	f.Add("@src/{a,b}/../\\*", "@artifact/../x", "", "")
	trees := sources(f)
	f.Fuzz(func(t *testing.T, from, to, exclude, strategy string) {
		outputs := []Output{{Name: "x", Copies: []Copy{{from, to, []string{exclude}, strategy}}}}
		if Check([]string{"src", "git", "chart", "tars"}, "", outputs) != nil {
			return
		}
		tree, err := Build(outputs[0].Copies, trees)
		if err != nil {
			return
		}
		err = tree.Walk(func(name string, _ *artifact.Entry) error {
			if !fs.ValidPath(name) {
				t.Errorf("%q got in", name)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func FuzzPathPattern(f *testing.F) {
	f.Add("@repo/apps/{app}/envs/{env}")
	f.Add("@repo/team-{t}.*/b")
	f.Fuzz(func(t *testing.T, pattern string) {
		p, err := parsePattern(pattern)
		if err != nil {
			return
		}
		found, err := p.discover(monorepo)
		if err != nil {
			t.Error(err)
		}
		for _, c := range found {
			if len(c) != len(p.names) {
				t.Errorf("%q captured %v", pattern, c)
			}
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("a: {b: 1}"), []byte("a: {c: [1]}\nd: null"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		base, err1 := parseMapping("a", a)
		over, err2 := parseMapping("b", b)
		if err1 != nil || err2 != nil {
			return
		}
		merged := mergeMaps(base, over)
		for k := range over {
			if _, ok := merged[k]; !ok {
				t.Errorf("%q is lost", k)
			}
		}
	})
}
