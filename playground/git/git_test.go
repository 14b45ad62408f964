package git

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// serve starts a server over an empty repository "app" and another in a directory, "team/api".
func serve(t *testing.T, o Options) *Server {
	t.Helper()
	o.Root = t.TempDir()
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	for _, name := range []string{"app.git", "team/api.git"} {
		git(t, "", nil, "init", "-q", "--bare", "-b", "main", filepath.Join(o.Root, name))
	}
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func try(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "user.name=Test", "-c", "user.email=test@example.com"},
		args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func git(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := try(dir, env, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// roundTrip pushes a commit to a repository, and another one, and finds both in a fresh clone. It returns the first.
func roundTrip(t *testing.T, url string, env []string) string {
	t.Helper()
	work, fresh := filepath.Join(t.TempDir(), "work"), filepath.Join(t.TempDir(), "fresh")
	git(t, "", env, "clone", "-q", url, work)
	for _, content := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(work, "file"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		git(t, work, env, "add", ".")
		git(t, work, env, "commit", "-q", "-m", content)
		git(t, work, env, "push", "-q", "origin", "HEAD:refs/heads/main")
	}
	git(t, "", env, "clone", "-q", "-b", "main", url, fresh)
	if b, err := os.ReadFile(filepath.Join(fresh, "file")); err != nil || string(b) != "two" {
		t.Fatalf("the clone has %q, %v", b, err)
	}
	return git(t, fresh, env, "rev-parse", "HEAD^")
}

func withCredentials(url, credentials string) string {
	return strings.Replace(url, "://", "://"+credentials+"@", 1)
}

func TestCloneAndPushOverHTTP(t *testing.T) {
	secured, tlsDir := Options{Username: "me", Password: "secret", Token: "t0ken"}, t.TempDir()
	encrypted := secured
	encrypted.TLSDir = tlsDir
	for what, c := range map[string]struct {
		options Options
		url     func(string) string
		env     []string
	}{
		"without credentials":  {Options{}, func(u string) string { return u + "/app" }, nil},
		"with .git at the end": {Options{}, func(u string) string { return u + "/app.git" }, nil},
		"in a directory":       {Options{}, func(u string) string { return u + "/team/api.git" }, nil},
		"under version 0 of the protocol": {Options{}, func(u string) string { return u + "/app" },
			config("protocol.version=0")},
		"with a user name and a password": {secured,
			func(u string) string { return withCredentials(u, "me:secret") + "/app" }, nil},
		"with a token": {secured, func(u string) string { return u + "/app" },
			config("http.extraHeader=Authorization: Bearer t0ken")},
		"encrypted, with a certificate made": {encrypted, func(u string) string {
			return withCredentials(u,
				"me:secret") + "/app"
		}, []string{"GIT_SSL_CAINFO=" + filepath.Join(tlsDir, "ca.crt")}},
	} {
		t.Run(what, func(t *testing.T) { roundTrip(t, c.url(serve(t, c.options).URL), c.env) })
	}
}

// config is a setting of git in its environment.
func config(setting string) []string {
	key, value, _ := strings.Cut(setting, "=")
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=" + key, "GIT_CONFIG_VALUE_0=" + value}
}

func TestWrongCredentialsAreRefused(t *testing.T) {
	url := serve(t, Options{Username: "me", Password: "secret", Token: "t0ken"}).URL + "/app"
	for what, c := range map[string]struct {
		url string
		env []string
	}{
		"none":             {url, nil},
		"a wrong password": {withCredentials(url, "me:wrong"), nil},
		"a wrong name":     {withCredentials(url, "you:secret"), nil},
		"a wrong token":    {url, config("http.extraHeader=Authorization: Bearer wrong")},
	} {
		t.Run(what, func(t *testing.T) {
			if out, err := try("", c.env, "ls-remote", c.url); err == nil {
				t.Errorf("was let in: %s", out)
			}
		})
	}
}

func TestAnyCommitCanBeFetched(t *testing.T) {
	s := serve(t, Options{})
	older := roundTrip(t, s.URL+"/app", nil)
	dir := t.TempDir()
	git(t, dir, nil, "init", "-q", ".")
	git(t, dir, nil, "fetch", "-q", "--depth=1", s.URL+"/app", older)
	if got := git(t, dir, nil, "rev-parse", "FETCH_HEAD"); got != older {
		t.Errorf("fetched %s, want %s", got, older)
	}
}

func TestCountsMeanTheSameUnderEachVersion(t *testing.T) {
	for _, version := range []string{"0", "2"} {
		t.Run("version "+version, func(t *testing.T) {
			s := serve(t, Options{})
			roundTrip(t, s.URL+"/app", nil)
			env := config("protocol.version=" + version)
			before := counts(t, s)
			git(t, "", env, "ls-remote", s.URL+"/app")
			listed := counts(t, s)
			git(t, "", env, "clone", "-q", s.URL+"/app", filepath.Join(t.TempDir(), "w"))
			cloned := counts(t, s)
			if listed["advertisements"]-before["advertisements"] != 1 || listed["fetches"] != before["fetches"] {
				t.Errorf("a listing was counted as %v after %v", listed, before)
			}
			if cloned["advertisements"]-listed["advertisements"] != 1 || cloned["fetches"]-listed["fetches"] != 1 ||
				cloned["pushes"] != 2 {
				t.Errorf("a clone was counted as %v after %v", cloned, listed)
			}
		})
	}
}

func counts(t *testing.T, s *Server) map[string]int64 {
	t.Helper()
	status, body := request(t, http.MethodGet, s.URL+"/-/stats", nil, nil)
	counts := map[string]int64{}
	if err := json.Unmarshal(body, &counts); err != nil || status != http.StatusOK {
		t.Fatalf("%d %v: %s", status, err, body)
	}
	return counts
}

func request(t *testing.T, method, url string, header http.Header, body io.Reader) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it is read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

func TestCompressedRequestsAreUnderstood(t *testing.T) {
	s := serve(t, Options{})
	roundTrip(t, s.URL+"/app", nil)
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write([]byte("0014command=ls-refs\n0000")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Encoding": {"gzip"}, "Git-Protocol": {"version=2"}}
	status, answer := request(t, http.MethodPost, s.URL+"/app/git-upload-pack", header, &body)
	if status != http.StatusOK || !bytes.Contains(answer, []byte("refs/heads/main")) {
		t.Errorf("%d: %s", status, answer)
	}
	if status, answer = request(t, http.MethodPost, s.URL+"/app/git-upload-pack", header,
		strings.NewReader("plain")); status != http.StatusBadRequest {
		t.Errorf("%d: %s", status, answer)
	}
}

func TestOnlyRepositoriesUnderTheRootAreServed(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.git")
	git(t, "", nil, "init", "-q", "--bare", outside)
	root := t.TempDir()
	git(t, "", nil, "init", "-q", "--bare", filepath.Join(root, "inside.git"))
	git(t, "", nil, "init", "-q", filepath.Join(root, "work"))
	for name, target := range map[string]string{"out.git": outside, "up": filepath.Dir(outside),
		"in.git": "inside.git"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Start(Options{Root: root, Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // the test ends
	rel, err := filepath.Rel(root, outside)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		path string
		want int
	}{
		"a repository":                     {"inside", http.StatusOK},
		"a link to a repository inside":    {"in", http.StatusOK},
		"a path that goes up":              {rel, http.StatusNotFound},
		"a path that goes up, escaped":     {strings.ReplaceAll(rel, "..", "%2e%2e"), http.StatusNotFound},
		"slashes that are escaped as well": {strings.ReplaceAll(rel, "/", "%2f"), http.StatusNotFound},
		"an absolute path":                 {outside, http.StatusNotFound},
		"a link out":                       {"out.git", http.StatusNotFound},
		"a link out on the way":            {"up/secret.git", http.StatusNotFound},
		"a zero byte":                      {"inside.git%00", http.StatusNotFound},
		"a directory that is none":         {"inside.git/objects", http.StatusNotFound},
		"a work tree":                      {"work", http.StatusNotFound},
		"a work tree's own repository":     {"work/.git", http.StatusNotFound},
		"the root":                         {".", http.StatusNotFound},
	} {
		t.Run(what, func(t *testing.T) {
			for _, service := range []string{uploadPack, receivePack} {
				status, body := request(t, http.MethodGet, s.URL+"/"+c.path+"/info/refs?service="+service, nil, nil)
				if status != c.want {
					t.Errorf("%s: %d, want %d: %s", service, status, c.want, body)
				}
				if c.want == http.StatusOK {
					continue
				}
				if status, body = request(t, http.MethodPost, s.URL+"/"+c.path+"/"+service, nil,
					strings.NewReader("0000")); status != c.want {
					t.Errorf("%s: %d, want %d: %s", service, status, c.want, body)
				}
			}
		})
	}
	if status, _ := request(t, http.MethodGet, s.URL+"/inside/info/refs", nil, nil); status != http.StatusForbidden {
		t.Errorf("the dumb protocol is served: %d", status)
	}
}

func FuzzRepositoryStaysUnderTheRoot(f *testing.F) {
	dir := f.TempDir()
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside.git")
	for _, bare := range []string{filepath.Join(root, "a.git"), outside} {
		for _, name := range []string{"HEAD", "objects", "refs"} {
			if err := os.MkdirAll(filepath.Join(bare, name), 0o700); err != nil {
				f.Fatal(err)
			}
		}
	}
	if err := os.Symlink(outside, filepath.Join(root, "link.git")); err != nil {
		f.Fatal(err)
	}
	resolved, err := resolve(root)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"a", "/a.git", "../outside.git", "link", "a/../../outside", "a\x00", "", "//",
		"a.git/../../outside.git"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, err := repository(resolved, name); err == nil && got != filepath.Join(resolved, "a.git") {
			t.Errorf("%q leads to %s", name, got)
		}
	})
}
