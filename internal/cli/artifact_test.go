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

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// write makes files in a new directory; a content that starts with "symlink:" is a symlink to what follows.
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

// read returns what write made.
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

func TestArtifactsGoToARegistryAndComeBack(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t, "--username", "me", "--password", "secret")
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

	t.Log("the same files give the same digest, wherever they are")
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

	t.Log("tags are listed with what they were made of")
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

	t.Log("differences are told by exit code and name")
	run(t, at("diff", "artifact", url+":stable", "--path", dir)...).wants(t, exitOK, "holds the same")
	other := write(t, map[string]string{"app.yaml": "a: 2\n", "base/b.yaml": "b: 2\n", "new.yaml": "c"})
	differs := run(t, at("diff", "artifact", url+":stable", "--path", other)...).
		wants(t, exitFailed, "differ in 4 files")
	if diff := cmp.Diff("~ app.yaml\n- base/.sourceignore\n- link.yaml\n+ new.yaml\n", differs.out); diff != "" {
		t.Error(diff)
	}
}

// squeeze makes runs of spaces one.
func squeeze(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, strings.Join(strings.Fields(line), " ")+"\n")
	}
	return strings.Join(out, "")
}

func TestBuildArtifact(t *testing.T) {
	dir := write(t, declarations)
	for what, c := range map[string]struct {
		args []string
		want []string
	}{
		"the default":      {nil, []string{"app.yaml", "base/.sourceignore", "base/b.yaml", "link.yaml"}},
		"other patterns":   {[]string{"--ignore-paths", "*.yaml"}, []string{"base/.sourceignore", "pic.jpg"}},
		"patterns besides": {[]string{"--add-ignore-paths", "link.yaml,base/"}, []string{"app.yaml"}},
		"symlinks as files": {[]string{"--resolve-symlinks", "--add-ignore-paths", "base/"},
			[]string{"app.yaml", "link.yaml"}},
		"a file":                {[]string{"--path", filepath.Join(dir, "app.yaml")}, []string{"app.yaml"}},
		"declarations on stdin": {[]string{"--path", "-"}, []string{"manifests.yaml"}},
	} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "app.tgz")
			runWith(t.Context(), "a: 1\n", append([]string{"build", "artifact", "--path", dir, "-o", file},
				c.args...)...).wants(t, exitOK, "wrote")
			b := content{path: file}
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

func TestArtifactMistakes(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t, "--username", "me", "--password", "secret")
	dir := write(t, map[string]string{"a.yaml": "a"})
	circle := write(t, map[string]string{"a/b": "symlink:../a"})
	noArchive := filepath.Join(write(t, map[string]string{"a.tgz": "text"}), "a.tgz")
	said := " --source s --revision r --creds me:secret --insecure-registry --path "
	for what, c := range map[string]struct {
		line string
		code int
		says string
	}{
		"no tag": {"push artifact " + r.OCI + "/app" + said + dir, exitUsage, "must end in :TAG"},
		"no URL": {"push artifact https://example.com/app:v1" + said + dir, exitUsage,
			"oci://host/path"},
		"no argument": {"push artifact" + said + dir, exitUsage, "name one artifact"},
		"an output that is none": {"push artifact " + r.OCI + "/app:v1 -o xml" + said + dir, exitUsage,
			"choose json or yaml"},
		"no such directory": {"push artifact " + r.OCI + "/app:v1" + said + dir + "/none", exitFailed,
			"no such file"},
		"nothing but what is left out": {"push artifact " + r.OCI + "/app:v1 --ignore-paths *" + said + dir, exitFailed,
			"holds no files"},
		"an archive that is none": {"push artifact " + r.OCI + "/app:v1" + said + noArchive, exitFailed,
			"no .tar.gz"},
		"symlinks in a circle": {"push artifact " + r.OCI + "/app:v1 --resolve-symlinks" + said + circle,
			exitFailed, "too many levels of symbolic links"},
		"a wrong password": {"push artifact " + r.OCI +
			"/app:v1 --source s --revision r --creds me:wrong --insecure-registry --path " + dir, exitFailed,
			"Check the login"},
		"HTTP unasked": {"push artifact " + r.OCI +
			"/app:v1 --source s --revision r --creds me:secret --path " + dir, exitFailed, "cannot push"},
		"what is not there": {"pull artifact " + r.OCI +
			"/app:none --creds me:secret --insecure-registry -o " + t.TempDir(), exitFailed, "cannot find"},
		"a tag that is none": {"tag artifact " + r.OCI +
			"/app:v1 --tag a/b --creds me:secret --insecure-registry", exitFailed, "is no tag"},
		"a list of a tag": {"list artifacts " + r.OCI + "/app:v1 --creds me:secret --insecure-registry",
			exitUsage, "without a tag"},
		"a provider that is none": {"list artifacts " + r.OCI + "/app --provider ibm --insecure-registry",
			exitFailed, "ibm"},
	} {
		t.Run(what, func(t *testing.T) {
			got := run(t, strings.Fields(c.line)...).wants(t, c.code, c.says)
			if strings.Contains(got.err, "secret") {
				t.Errorf("the login is told: %s", got.err)
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
