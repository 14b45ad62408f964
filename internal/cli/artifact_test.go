package cli

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// write creates files in a new directory. A content of "symlink:TARGET" creates a symlink.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "symlink:"); ok {
			err = os.Symlink(target, full)
		} else {
			err = os.WriteFile(full, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read returns the files of a directory in the format of write.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(full)
			files[name] = "symlink:" + target
			return err
		}
		b, err := os.ReadFile(full)
		files[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var declarations = map[string]string{
	"app.yaml": "a: 1\n", "base/b.yaml": "b: 2\n", "base/.sourceignore": "*.tmp\n", "base/x.tmp": "-", "pic.jpg": "-",
	"link.yaml": "symlink:base/b.yaml", ".git/HEAD": "-",
}

func TestPushListTagAndPullArtifacts(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t, "--username", "me", "--password", "secret")
	dir := write(t, declarations)
	url := r.OCI + "/org/app"
	in := []string{"--creds", "me:secret", "--insecure-registry"}
	at := func(args ...string) []string { return append(args, in...) }

	pushed := run(t, at("push", "artifact", url+":1.0.0", "--path", dir, "--source", "https://git.example/app",
		"--revision", "main@sha1:abc",
		"-a", "team=web", "--reproducible", "-o", "json")...).wants(t, exitOK, "pushed "+r.Host+"/org/app@sha256:")
	var first struct{ URL, Repository, Tag, Digest string }
	if err := json.Unmarshal([]byte(pushed.out), &first); err != nil || first.Tag != "1.0.0" || first.URL != "oci://"+
		r.Host+"/org/app@"+first.Digest {
		t.Fatalf("%v in %s", err, pushed.out)
	}

	t.Log("files in another directory have the same digest")
	again := run(t, at("push", "artifact", url+":same", "--path", write(t, declarations), "--source",
		"https://git.example/app", "--revision", "main@sha1:abc",
		"-a", "team=web", "--reproducible", "-o", "yaml")...).wants(t, exitOK)
	if !strings.Contains(again.out, "digest: "+first.Digest) {
		t.Errorf("got %s, want %s", again.out, first.Digest)
	}

	out := t.TempDir()
	run(t, at("pull", "artifact", url+":1.0.0", "-o", out)...).
		wants(t, exitOK, "revision: main@sha1:abc", "source: https://git.example/app")
	want := map[string]string{"app.yaml": "a: 1\n", "base/b.yaml": "b: 2\n", "base/.sourceignore": "*.tmp\n",
		"link.yaml": "symlink:base/b.yaml"}
	if diff := cmp.Diff(want, read(t, out)); diff != "" {
		t.Error(diff)
	}

	t.Log("tags are listed with source and revision")
	run(t, at("tag", "artifact", url+"@"+first.Digest, "--tag", "1.10.0", "--tag", "stable")...).
		wants(t, exitOK, "as 1.10.0", "as stable")
	list := run(t, at("list", "artifacts", url)...).wants(t, exitOK)
	short := first.Digest[:len("sha256:")+8]
	wantList := "ARTIFACT DIGEST SOURCE REVISION\n"
	for _, tag := range []string{"1.10.0", "1.0.0", "same", "stable"} {
		wantList += fmt.Sprintf("%s:%s %s https://git.example/app main@sha1:abc\n", url, tag, short)
	}
	if diff := cmp.Diff(wantList, squeeze(list.out)); diff != "" {
		t.Error(diff)
	}
	for flag, tags := range map[string]int{"--filter-semver=<1.5": 1, "--filter-regex=^s": 2, "--filter-semver=>5": 0} {
		if got := run(t, at("list", "artifacts", url, flag)...).
			wants(t, exitOK); strings.Count(got.out, "\n") != tags+1 {
			t.Errorf("%s: %s", flag, got.out)
		}
	}

	checkArtifactDiff(t, at, url, dir)
}

func checkArtifactDiff(t *testing.T, at func(...string) []string, url, dir string) {
	t.Helper()
	t.Log("differences are reported by exit code and file name")
	run(t, at("diff", "artifact", url+":stable", "--path", dir)...).wants(t, exitOK, "have the same content")
	other := write(t, map[string]string{"app.yaml": "a: 2\n", "base/b.yaml": "b: 2\n", "new.yaml": "c"})
	differs := run(t, at("diff", "artifact", url+":stable", "--path", other)...).
		wants(t, exitFailed, "differ in 4 files")
	if diff := cmp.Diff("~ app.yaml\n- base/.sourceignore\n- link.yaml\n+ new.yaml\n", differs.out); diff != "" {
		t.Error(diff)
	}
}

// squeeze replaces each run of spaces by one space.
func squeeze(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, strings.Join(strings.Fields(line), " ")+"\n")
	}
	return strings.Join(out, "")
}

func TestBuildArtifact(t *testing.T) {
	dir := write(t, declarations)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"default": {want: []string{"app.yaml", "base/.sourceignore", "base/b.yaml", "link.yaml"}},
		"other exclusions": {
			args: []string{"--ignore-paths", "*.yaml"},
			want: []string{"base/.sourceignore", "base/x.tmp", "pic.jpg"},
		},
		"additional exclusions": {args: []string{"--add-ignore-paths", "link.yaml,base/"}, want: []string{"app.yaml"}},
		"resolved symlinks": {
			args: []string{"--resolve-symlinks", "--add-ignore-paths", "base/"},
			want: []string{"app.yaml", "link.yaml"},
		},
		"single file": {args: []string{"--path", filepath.Join(dir, "app.yaml")},
			want: []string{"app.yaml"}},
		"manifests on standard input": {args: []string{"--path", "-"}, want: []string{"manifests.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "app.tgz")
			runWith(t.Context(), "a: 1\n", append([]string{"build", "artifact", "--path", dir, "-o", file},
				c.args...)...).wants(t, exitOK, "wrote")
			b := artifactFiles{path: file}
			tree, err := b.tree(nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
				if !d.IsDir() {
					got = append(got, p)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// invalidArtifactLines are commands about artifacts. Names in braces are replaced.
var invalidArtifactLines = map[string]struct {
	line string
	code int
	want string
}{
	"missing tag": {
		line: "push artifact {registry}/app{common}{dir}",
		code: exitUsage,
		want: "must end in :TAG",
	},
	"invalid URL": {
		line: "push artifact https://example.com/app:v1{common}{dir}",
		code: exitUsage,
		want: "oci://host/path",
	},
	"missing argument": {line: "push artifact{common}{dir}", code: exitUsage, want: "expected one artifact"},
	"unknown output": {
		line: "push artifact {registry}/app:v1 -o xml{common}{dir}",
		code: exitUsage,
		want: "choose from json, yaml",
	},
	"missing directory": {
		line: "push artifact {registry}/app:v1{common}{dir}/none",
		code: exitFailed,
		want: "no such file",
	},
	"all files excluded": {
		line: "push artifact {registry}/app:v1 --ignore-paths *{common}{dir}",
		code: exitFailed,
		want: "contains no files",
	},
	"invalid archive": {
		line: "push artifact {registry}/app:v1{common}{noArchive}",
		code: exitFailed,
		want: "not a .tar.gz archive",
	},
	"circular symlinks": {
		line: "push artifact {registry}/app:v1 --resolve-symlinks{common}{circle}",
		code: exitFailed,
		want: "too many levels of symbolic links",
	},
	"wrong password": {
		line: "push artifact {registry}/app:v1 --source s --revision r --creds me:wrong --insecure-registry " +
			"--path {dir}",
		code: exitFailed,
		want: "Check the login",
	},
	"missing artifact": {
		line: "pull artifact {registry}/app:none --creds me:secret --insecure-registry -o {temp}",
		code: exitFailed,
		want: "cannot find",
	},
	"invalid tag": {
		line: "tag artifact {registry}/app:v1 --tag a/b --creds me:secret --insecure-registry",
		code: exitFailed,
		want: "is not a valid tag",
	},
	"list with a tag": {
		line: "list artifacts {registry}/app:v1 --creds me:secret --insecure-registry",
		code: exitUsage,
		want: "without a tag or digest",
	},
	"unknown provider": {
		line: "list artifacts {registry}/app --provider ibm --insecure-registry",
		code: exitUsage,
		want: "--provider 'ibm' is not one of generic, aws, azure, gcp",
	},
}

func TestArtifactErrors(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t, "--username", "me", "--password", "secret")
	dir := write(t, map[string]string{"a.yaml": "a"})
	circle := write(t, map[string]string{"a/b": "symlink:../a"})
	noArchive := filepath.Join(write(t, map[string]string{"a.tgz": "text"}), "a.tgz")
	common := " --source s --revision r --creds me:secret --insecure-registry --path "
	replacements := strings.NewReplacer("{registry}", r.OCI, "{dir}", dir, "{circle}", circle, "{noArchive}", noArchive,
		"{temp}", t.TempDir())
	for name, c := range invalidArtifactLines {
		t.Run(name, func(t *testing.T) {
			line := replacements.Replace(strings.Replace(c.line, "{common}", common, 1))
			got := run(t, strings.Fields(line)...).wants(t, c.code, c.want)
			if strings.Contains(got.err, "secret") {
				t.Errorf("the error contains the credentials: %s", got.err)
			}
		})
	}
}

func FuzzBasicOrToken(f *testing.F) {
	f.Add("me:secret")
	f.Add("token")
	f.Fuzz(func(t *testing.T, creds string) {
		who, err := basicOrToken(creds).Authorization()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(creds, ":") != (who.RegistryToken == creds && who.Username == "") && creds != "" {
			t.Errorf("%q became %+v", creds, who)
		}
	})
}
