package ignore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newRules returns rules that are within the limits.
func newRules(spec *string) Rules {
	r, err := New(spec)
	if err != nil {
		panic(err)
	}
	return r
}

// with returns the rules with those of a file that is within the limits.
func with(r Rules, content string) Rules {
	r, err := r.With(content)
	if err != nil {
		panic(err)
	}
	return r
}

// excludes reports whether a file is excluded, by the same calls as the readers of sources make. Files maps directories
// to the content of their .sourceignore.
func excludes(spec *string, files map[string]string, name string) bool {
	r := newRules(spec)
	if content, ok := files["."]; ok {
		r = with(r, content)
	}
	parts := strings.Split(name, "/")
	for i, dir := range parts[:len(parts)-1] {
		if r.Prunes(dir) {
			return true
		}
		r = r.Enter(dir)
		if content, ok := files[strings.Join(parts[:i+1], "/")]; ok {
			r = with(r, content)
		}
	}
	return r.Excludes(parts[len(parts)-1])
}

func TestPatternsMatchLikeGit(t *testing.T) {
	paths := []string{
		"a", "b", "a/b", "b/a", "a/b/c", "x/a/b", "x/y/a/b", "a/x/b", "a/x/y/b", "a/x/a/b", "deploy/a.yaml",
		"deploy/prod/a.yaml",
		"deploy/prod/README.md", "README.md", "docs/README.md", "foo.txt", "foo.tar.gz", "dir/foo.txt", "foo",
		"foo/bar", "bar/foo",
		"#a", "!a", "a b", "a ", "*", "?", "[a]", "ab", "abc", "a.b.c", ".hidden", "dir/.hidden", "0", "9", "a-b",
		`back\slash`, "xfoox", "]", "-", "[!a]", "docs/a.md",
	}
	for _, patterns := range []string{
		"a", "/a", "a/", "/a/", "a/b", "/a/b", "*/b", "**/b", "a/**", "a/**/b", "**/a/b", "**/a/**", "**", "*", "/*",
		"*/", "**/",
		"*.txt", "foo.*", "f?o", "[ab]", "[!ab]", "[^ab]", "[a-c]", "[0-9]", "a.b.*", ".*", "*/.hidden", `\#a`, `\!a`,
		"#a", "!a",
		"*\n!*/\n!*.md", "/*\n!/deploy\n/deploy/**/*.md", "*.md\n!README.md", "a \n", `a\ `, `\*`, `\?`, `\[a\]`,
		"a**c", "**foo**",
		"foo/**/bar", "foo/*", "*foo*", "a//b", "", "\r\n", "foo\r\n", "  ", "[", "a[", "x/**/a/**/b", "/**/b",
		"**/**/b", "a/b/", "deploy/prod/",
		"!deploy\ndeploy/prod", `a\`, "-", "a-b", "[a-]b", `back\\slash`,
		"[]a]", "[-a]b", `\[!a]`, `[\]]`, "[!-]", "[a-c-]", "!*.md\n/docs/", "*.md\n!/docs",
	} {
		t.Run(strings.ReplaceAll(patterns, "\n", "|"), func(t *testing.T) {
			left := gitExcludes(t, patterns, paths)
			patterns += "\n/no-such-file" // one rule at least, so that the defaults do not apply
			for _, p := range paths {
				if got := excludes(&patterns, nil, p); got != left[p] {
					t.Errorf("%q: excluded is %v, but %v with git", p, got, left[p])
				}
			}
		})
	}
}

// gitExcludes returns the paths that git excludes by the patterns.
func gitExcludes(t *testing.T, patterns string, paths []string) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	env := append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	initialize := exec.Command("git", "init", "-q", dir)
	initialize.Env = env
	if out, err := initialize.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(patterns), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.Command("git", "check-ignore", "--no-index", "--stdin", "-z")
	check.Dir, check.Env, check.Stdin = dir, env, strings.NewReader(strings.Join(paths, "\x00"))
	out, err := check.Output()
	if err != nil && check.ProcessState.ExitCode() != 1 { // 1: none is excluded
		t.Fatal(err)
	}
	left := map[string]bool{}
	for p := range strings.SplitSeq(string(out), "\x00") {
		left[p] = true
	}
	return left
}

func pointerTo(s string) *string { return &s }

var ruleCases = map[string]struct {
	spec  *string
	files map[string]string
	name  string
	out   bool
}{
	"images by default":   {spec: nil, files: nil, name: "docs/logo.png", out: true},
	"archives by default": {spec: nil, files: nil, name: "a/b/c.tar.gz", out: true},
	"files of CI by default": {spec: nil, files: nil, name: ".github/workflows/a.yaml",
		out: true},
	"files of tools by default": {spec: nil, files: nil, name: "deep/down/.sops.yaml",
		out: true},
	"manifests by default": {spec: nil, files: nil, name: "deploy/a.yaml", out: false},
	"spec.ignore replaces the defaults": {spec: pointerTo("*.md"), files: nil, name: "docs/logo.png",
		out: false},
	"spec.ignore without rules keeps the defaults": {spec: pointerTo("# none\n"), name: "logo.png", out: true},
	"files of git stay excluded":                   {spec: pointerTo("*.md"), name: ".gitmodules", out: true},
	"files of git may be included":                 {spec: pointerTo("!.gitmodules"), name: ".gitmodules", out: false},
	".sourceignore replaces the defaults": {files: map[string]string{".": "*.md"}, name: "logo.png",
		out: false},
	".sourceignore without rules keeps the defaults": {files: map[string]string{".": "\n# none\n"},
		name: ".sops.yaml", out: true},
	".sourceignore of a directory replaces the defaults there": {files: map[string]string{"a": "*.md"},
		name: "a/b/logo.png", out: false},
	".sourceignore of a directory does not count with spec.ignore": {spec: pointerTo("*.txt"),
		files: map[string]string{"a": "*.md"}, name: "a/b.md", out: false},
	".sourceignore of the top directory counts with spec.ignore": {spec: pointerTo("*.txt"),
		files: map[string]string{".": "*.md"}, name: "a/b.md", out: true},
	"spec.ignore excludes": {spec: pointerTo("*.md"), files: nil, name: "docs/README.md",
		out: true},
	".git is always excluded": {spec: pointerTo("!.git"), files: nil, name: ".git/config",
		out: true},
	".git in a directory is always excluded": {spec: pointerTo("!.git"), files: nil, name: "a/.git",
		out: true},
	".sourceignore excludes": {spec: nil, files: map[string]string{".": "*.md"},
		name: "a/b.md", out: true},
	".sourceignore overrides the defaults": {spec: nil, files: map[string]string{".": "!*.png"},
		name: "logo.png", out: false},
	".sourceignore applies to its directory": {spec: nil, files: map[string]string{"a": "/b.md"},
		name: "a/b.md", out: true},
	".sourceignore does not apply to other directories": {spec: nil, files: map[string]string{"a": "b.md"},
		name: "c/b.md", out: false},
	".sourceignore is anchored in its directory": {spec: nil, files: map[string]string{"a": "/b.md"},
		name: "a/c/b.md", out: false},
	"deeper .sourceignore takes precedence": {spec: nil, files: map[string]string{".": "*.md", "a": "!*.md"},
		name: "a/b.md", out: false},
	"spec.ignore takes precedence over .sourceignore": {spec: pointerTo("!*.md"), files: map[string]string{".": "*.md"},
		name: "a.md", out: false},
	"directory included from excluded parent": {spec: pointerTo("/*\n!/deploy/prod"), files: nil,
		name: "deploy/prod/a.yaml", out: false},
	"other directories stay excluded": {spec: pointerTo("/*\n!/deploy/prod"), files: nil,
		name: "deploy/test/a.yaml", out: true},
	"exclusion in an included directory": {spec: pointerTo("/*\n!/deploy\n/deploy/**/*.md"), files: nil,
		name: "deploy/a/b.md", out: true},
	"file included from excluded directory": {spec: pointerTo("deploy/\n!deploy/a.yaml"), files: nil,
		name: "deploy/a.yaml", out: false},
	"name included from any directory": {spec: pointerTo("*\n!*.yaml"), files: nil, name: "deploy/a.yaml", out: false},
	".sourceignore includes from excluded directory": {spec: pointerTo(""),
		files: map[string]string{".": "a/\n!a/b.yaml"},
		name:  "a/b.yaml", out: false},
	"directory with an excluded name":            {spec: nil, files: nil, name: "photos.png/a.yaml", out: true},
	"rule for directories does not match a file": {spec: pointerTo("build/"), files: nil, name: "build", out: false},
}

func TestRules(t *testing.T) {
	for name, c := range ruleCases {
		t.Run(name, func(t *testing.T) {
			if got := excludes(c.spec, c.files, c.name); got != c.out {
				t.Errorf("%s: excluded is %v, want %v", c.name, got, c.out)
			}
		})
	}
}

func TestRulesID(t *testing.T) {
	base := newRules(nil)
	if base.ID() != newRules(nil).ID() || with(base, "a").ID() != with(newRules(nil), "a").ID() {
		t.Error("the IDs of equal rules differ")
	}
	empty, other := "", "a"
	ids := map[string]string{}
	for name, r := range map[string]Rules{
		"defaults": base, "none": newRules(&empty), "spec": newRules(&other), "file": with(base, "a"),
		"another file":        with(base, "b"),
		"file in a directory": with(base.Enter("x"), "a"), "file in another directory": with(base.Enter("y"), "a"),
		"two files": with(with(base, "a"), "a"),
	} {
		if was, ok := ids[r.ID()]; ok {
			t.Errorf("%s has the ID of %s", name, was)
		}
		ids[r.ID()] = name
	}
}

func FuzzPatterns(f *testing.F) {
	f.Add("/*\n!/deploy\n/deploy/**/*.md", "deploy/a/b.md")
	f.Add("**/a/**/b[!x-z]\\ ", "a/b/c")
	f.Fuzz(func(t *testing.T, patterns, name string) {
		if strings.Count(patterns, "\n") >= MaxRules/2 {
			return // too many
		}
		if len(newRules(&patterns).groups[fromSpec]) == 0 {
			return // the defaults apply, which a .sourceignore replaces
		}
		left := excludes(&patterns, nil, name)
		if excludes(&patterns, map[string]string{".": "!" + patterns}, name) != left && left {
			t.Errorf("a .sourceignore included %q, which %q excludes", name, patterns)
		}
		if !excludes(&patterns, nil, ".git/"+name) {
			t.Error(".git got in")
		}
	})
}
