package differential

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// ignored is a list of files, and rules that leave some of them out.
type ignored struct {
	files []string
	rules []string
}

// TestIgnoreRulesAreThoseOfGit compares what rules leave out with git check-ignore.
func TestIgnoreRulesAreThoseOfGit(t *testing.T) {
	comparison[ignored]{
		quick: 150, full: 3000,
		generate: func(r *rand.Rand) (in ignored) {
			for range 2 + r.IntN(12) {
				in.files = append(in.files, filePath(r))
			}
			slices.Sort(in.files)
			in.files = slices.Compact(in.files)
			for range 1 + r.IntN(4) {
				in.rules = append(in.rules, ignoreRule(r))
			}
			return in
		},
		compare: compareIgnored,
		smaller: func(in ignored) (all []ignored) {
			for i := range in.files {
				all = append(all, ignored{slices.Delete(slices.Clone(in.files), i, i+1), in.rules})
			}
			for i := range in.rules {
				all = append(all, ignored{in.files, slices.Delete(slices.Clone(in.rules), i, i+1)})
			}
			return all
		},
		show: func(in ignored) string { return fmt.Sprintf("rules %q\nfiles %q", in.rules, in.files) },
	}.run(t)
}

func filePath(r *rand.Rand) string {
	var parts []string
	for range 1 + r.IntN(4) {
		parts = append(parts, pick(r, "a", "b", "deploy", "README.md", "a.yaml", ".hidden", "x.txt", "a b", "prod"))
	}
	return strings.Join(parts, "/") + pick(r, "", ".f", ".g")
}

// ignoreRule makes a rule without "!": git never includes a file again whose directory is excluded, and Sluice and Flux
// do.
func ignoreRule(r *rand.Rand) string {
	var out strings.Builder
	out.WriteString(pick(r, "", "", "/", "**/"))
	for i := range 1 + r.IntN(3) {
		if i > 0 {
			out.WriteString("/")
		}
		out.WriteString(pick(r, "a", "b", "deploy", "*", "**", "*.md", "a*", "?", "[ab]", "[!a]*", "*.f", "prod", ".*",
			"x.txt", `\#a`, "a?b"))
	}
	out.WriteString(pick(r, "", "", "/", "/**", "/*"))
	return out.String()
}

func compareIgnored(t *testing.T, in ignored) string {
	t.Helper()
	if len(in.files) == 0 || len(in.rules) == 0 {
		return ""
	}
	dir := t.TempDir()
	gitCommand(t, dir, "", "init", "-q")
	text := strings.Join(in.rules, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	excluded := map[string]bool{}
	for name := range strings.SplitSeq(gitCommand(t, dir, strings.Join(in.files, "\x00"), "check-ignore",
		"--no-index", "--stdin",
		"-z"), "\x00") {
		excluded[name] = true
	}
	text += "/no-such-file\n" // one rule at least, so that the defaults do not apply
	rules, err := ignore.New(&text)
	if err != nil {
		return err.Error()
	}
	for _, name := range in.files {
		if got := excludes(rules, name); got != excluded[name] {
			return fmt.Sprintf("%q: excluded is %v, but %v with git", name, got, excluded[name])
		}
	}
	return ""
}

// excludes asks the rules as the readers of sources do.
func excludes(rules ignore.Rules, name string) bool {
	dir, base := path.Split(name)
	for part := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		if part == "" {
			continue
		}
		if rules.Prunes(part) {
			return true
		}
		rules = rules.Enter(part)
	}
	return rules.Excludes(base)
}

func gitCommand(t *testing.T, dir, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: none is excluded
		t.Fatalf("git %q: %v", args, err)
	}
	return string(out)
}

// TestArchivesAreReadableByTar unpacks archives of generated trees with the program tar, and archives of tar here.
func TestArchivesAreReadableByTar(t *testing.T) {
	comparison[map[string]string]{
		quick: 40, full: 1000,
		generate: func(r *rand.Rand) map[string]string {
			files := map[string]string{}
			for range 1 + r.IntN(8) {
				name := filePath(r)
				if chance(r, 5) {
					name = strings.Repeat("long-directory-name/", 1+r.IntN(12)) + name
				}
				files[name] = pick(r, "", "x", strings.Repeat("text\n", r.IntN(5000)), "\x00\xff")
			}
			maps.DeleteFunc(files, func(name, _ string) bool { // a file cannot be a directory as well
				for other := range files {
					if strings.HasPrefix(other, name+"/") {
						return true
					}
				}
				return false
			})
			return files
		},
		compare: compareArchives,
		smaller: func(files map[string]string) (all []map[string]string) {
			for _, name := range slices.Sorted(maps.Keys(files)) {
				without := maps.Clone(files)
				delete(without, name)
				all = append(all, without)
			}
			return all
		},
		show: func(files map[string]string) string { return fmt.Sprintf("%q", slices.Sorted(maps.Keys(files))) },
	}.run(t)
}

func compareArchives(t *testing.T, files map[string]string) string {
	t.Helper()
	var packed bytes.Buffer
	if err := artifact.WriteArchive(t.Context(), &packed, artifact.FromMap(files)); err != nil {
		return err.Error()
	}
	dir := t.TempDir()
	runProgram(t, dir, packed.Bytes(), "tar", "-xzf", "-")
	rules, err := ignore.New(new(string))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := oci.ReadLocal(dir, rules, false)
	if err != nil {
		return err.Error()
	}
	if difference := differs(unpacked, files); difference != "" {
		return "unpacked by tar: " + difference
	}
	format := "--format=" + []string{"gnu", "pax", "ustar"}[len(files)%3]
	if longest(files) > 90 && strings.HasSuffix(format, "ustar") {
		format = "--format=pax" // ustar has no long names
	}
	read, err := artifact.ReadArchive(t.Context(), bytes.NewReader(runProgram(t, dir, nil, "tar", format,
		"-czf", "-", ".")))
	if err != nil {
		return "packed by tar: " + err.Error()
	}
	if difference := differs(read, files); difference != "" {
		return "packed by tar: " + difference
	}
	return ""
}

func longest(files map[string]string) (most int) {
	for name := range files {
		most = max(most, len(name))
	}
	return most
}

func runProgram(t *testing.T, dir string, input []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return out
}

// differs compares the files of a tree with others.
func differs(tree *artifact.Tree, want map[string]string) string {
	got := map[string]string{}
	err := tree.Walk(func(name string, e *artifact.Entry) error {
		if e.Dir != nil {
			return nil
		}
		b, err := tree.ReadFile(name)
		got[name] = string(b)
		return err
	})
	switch {
	case err != nil:
		return err.Error()
	case !maps.Equal(got, want):
		return fmt.Sprintf("files %q", slices.Sorted(maps.Keys(got)))
	}
	return ""
}
