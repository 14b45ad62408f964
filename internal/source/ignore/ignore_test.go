package ignore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// excludes walks to a file as whoever reads a source does. Files holds .sourceignore contents by directory.
func excludes(spec *string, files map[string]string, name string) bool {
	r := New(spec)
	if content, ok := files["."]; ok {
		r = r.With(content)
	}
	parts := strings.Split(name, "/")
	for i, dir := range parts[:len(parts)-1] {
		if r.Prunes(dir) {
			return true
		}
		r = r.Enter(dir)
		if content, ok := files[strings.Join(parts[:i+1], "/")]; ok {
			r = r.With(content)
		}
	}
	return r.Excludes(parts[len(parts)-1])
}

func TestPatternsMeanWhatTheyMeanToGit(t *testing.T) {
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
			for _, p := range paths {
				if got := excludes(&patterns, nil, p); got != left[p] {
					t.Errorf("%q: left out %v, git says %v", p, got, left[p])
				}
			}
		})
	}
}

// gitExcludes asks git which of the paths the patterns exclude.
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

func TestRules(t *testing.T) {
	spec := func(s string) *string { return &s }
	for what, c := range map[string]struct {
		spec  *string
		files map[string]string
		name  string
		out   bool
	}{
		"pictures are left out by default":            {nil, nil, "docs/logo.png", true},
		"so are archives":                             {nil, nil, "a/b/c.tar.gz", true},
		"so is what CI reads":                         {nil, nil, ".github/workflows/a.yaml", true},
		"so is what command lines read":               {nil, nil, "deep/down/.sops.yaml", true},
		"manifests stay":                              {nil, nil, "deploy/a.yaml", false},
		"spec.ignore replaces the defaults":           {spec("*.md"), nil, "docs/logo.png", false},
		"an empty spec.ignore replaces them too":      {spec(""), nil, ".gitignore", false},
		"spec.ignore leaves out":                      {spec("*.md"), nil, "docs/README.md", true},
		".git never gets in":                          {spec("!.git"), nil, ".git/config", true},
		".git never gets in further down":             {spec("!.git"), nil, "a/.git", true},
		".sourceignore leaves out":                    {nil, map[string]string{".": "*.md"}, "a/b.md", true},
		".sourceignore brings back from the defaults": {nil, map[string]string{".": "!*.png"}, "logo.png", false},
		".sourceignore counts below its directory":    {nil, map[string]string{"a": "/b.md"}, "a/b.md", true},
		".sourceignore does not count beside it":      {nil, map[string]string{"a": "b.md"}, "c/b.md", false},
		".sourceignore is anchored at its directory":  {nil, map[string]string{"a": "/b.md"}, "a/c/b.md", false},
		"a deeper .sourceignore wins": {nil, map[string]string{".": "*.md", "a": "!*.md"},
			"a/b.md", false},
		"spec.ignore wins over .sourceignore": {spec("!*.md"), map[string]string{".": "*.md"},
			"a.md", false},
		"a directory comes back from a left out parent": {spec("/*\n!/deploy/prod"), nil,
			"deploy/prod/a.yaml", false},
		"its neighbours stay left out": {spec("/*\n!/deploy/prod"), nil,
			"deploy/test/a.yaml", true},
		"what is left out of a directory brought back": {spec("/*\n!/deploy\n/deploy/**/*.md"), nil,
			"deploy/a/b.md", true},
		"a file comes back from a left out directory": {spec("deploy/\n!deploy/a.yaml"), nil,
			"deploy/a.yaml", false},
		"a name comes back from anywhere": {spec("*\n!*.yaml"), nil, "deploy/a.yaml", false},
		".sourceignore brings back from a pruned parent": {spec(""), map[string]string{".": "a/\n!a/b.yaml"},
			"a/b.yaml", false},
		"a directory of a left out name is left out":       {nil, nil, "photos.png/a.yaml", true},
		"a rule for directories spares a file of the name": {spec("build/"), nil, "build", false},
	} {
		t.Run(what, func(t *testing.T) {
			if got := excludes(c.spec, c.files, c.name); got != c.out {
				t.Errorf("%s: left out %v, want %v", c.name, got, c.out)
			}
		})
	}
}

func TestRulesAreTheSameByWhatTheySayAndWhere(t *testing.T) {
	base := New(nil)
	if base.ID() != New(nil).ID() || base.With("a").ID() != New(nil).With("a").ID() {
		t.Error("the same rules differ")
	}
	empty, other := "", "a"
	ids := map[string]string{}
	for what, r := range map[string]Rules{
		"defaults": base, "none": New(&empty), "spec": New(&other), "file": base.With("a"),
		"another file":        base.With("b"),
		"a file further down": base.Enter("x").With("a"), "in another place": base.Enter("y").With("a"),
		"two files": base.With("a").With("a"),
	} {
		if was, ok := ids[r.ID()]; ok {
			t.Errorf("%s is as %s", what, was)
		}
		ids[r.ID()] = what
	}
}

func FuzzPatterns(f *testing.F) {
	f.Add("/*\n!/deploy\n/deploy/**/*.md", "deploy/a/b.md")
	f.Add("**/a/**/b[!x-z]\\ ", "a/b/c")
	f.Fuzz(func(t *testing.T, patterns, name string) {
		left := excludes(&patterns, nil, name)
		if excludes(&patterns, map[string]string{".": "!" + patterns}, name) != left && left {
			t.Errorf("a .sourceignore brought %q back from %q", name, patterns)
		}
		if !excludes(&patterns, nil, ".git/"+name) {
			t.Error(".git got in")
		}
	})
}
