package source_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// holds waits until the artifact of a GitRepository has exactly these files.
func (s *harness) holds(name string, want map[string]string) {
	s.Helper()
	testenv.Eventually(s, name+" has its files", func() error {
		g := &sourcev1.GitRepository{}
		if err := s.Get(g, name); err != nil {
			return err
		}
		if g.Status.Artifact == nil {
			return errors.New("it has no artifact")
		}
		got, err := download(g.Status.Artifact.URL)
		if err != nil {
			return err
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

// download returns the files of an artifact.
func download(url string) (map[string]string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		files[h.Name] = string(b)
	}
}

func condition(g *sourcev1.GitRepository, name string) metav1.Condition {
	if c := apimeta.FindStatusCondition(g.Status.Conditions, name); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func TestGitVerification(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	golden := func(name string) string {
		b, err := os.ReadFile(filepath.Join("..", "source", "git", "testdata", name)) // generated with git
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	s.Secret("signers", map[string]string{"a.pub": golden("key.pub"), "b.asc": golden("key.asc")})
	s.Git.Commit("app", map[string]string{"a.yaml": "1"})
	s.GitRepository("app", func(g *sourcev1.GitRepository) {
		g.Spec.Verification = &sourcev1.GitRepositoryVerification{Mode: "head",
			SecretRef: meta.LocalObjectReference{Name: "signers"}}
	})
	g := &sourcev1.GitRepository{}
	s.NotReady(g, "app", "InvalidCommitSignature", "not signed")
	if c := condition(g, "SourceVerified"); c.Status != metav1.ConditionFalse || g.Status.Artifact != nil {
		t.Errorf("%+v, %+v", c, g.Status.Artifact)
	}

	t.Log("a signed commit is stored")
	s.Git.Object("app", "tree", "")
	signed := s.Git.Object("app", "commit", golden("commit.ssh"))
	s.Git.SetRef("app", "refs/heads/main", signed)
	s.RequestFetch("app")
	g = s.GitRepositoryReady("app", signed)
	s.HasEvent("app", "NewArtifact")
	if c := condition(g, "SourceVerified"); c.Status != metav1.ConditionTrue || c.Reason != "Succeeded" ||
		!strings.Contains(c.Message, "SHA256:") {
		t.Errorf("%+v", c)
	}
	if m := g.Status.SourceVerificationMode; m == nil || *m != "HEAD" {
		t.Errorf("mode %v", m)
	}
	if f := g.Status.SourceVerificationFingerprint; !strings.HasPrefix(f, "SHA256:") {
		t.Errorf("fingerprint %q", f)
	}

	t.Log("an unsigned commit keeps the artifact")
	s.Git.Commit("app", map[string]string{"a.yaml": "2"})
	s.RequestFetch("app")
	s.NotReady(g, "app", "InvalidCommitSignature", "not signed")
	if !strings.HasSuffix(g.Status.Artifact.Revision, signed) || condition(g, "ArtifactOutdated").
		Reason != "NewRevision" || condition(g, "FetchFailed").Status != "True" {
		t.Errorf("%+v", g.Status)
	}
	if _, err := download(g.Status.Artifact.URL); err != nil {
		t.Error(err)
	}

	verifyTags(t, s, g, golden, signed)
}

// verifyTags checks verification of tags.
func verifyTags(t *testing.T, s *harness, g *sourcev1.GitRepository, golden func(name string) string, signed string) {
	t.Helper()
	t.Log("verification of tags needs a tag reference and keys")
	s.GitRepository("tag", func(g *sourcev1.GitRepository) {
		g.Spec.URL = s.Git.URL + "/app"
		g.Spec.Verification = &sourcev1.GitRepositoryVerification{Mode: "Tag",
			SecretRef: meta.LocalObjectReference{Name: "signers"}}
	})
	s.NotReady(g, "tag", "InvalidVerificationMode", "Set spec.ref.tag, spec.ref.semver or a name below refs/tags/, "+
		"or set the mode to HEAD")
	s.GitRepository("keyless", func(g *sourcev1.GitRepository) {
		g.Spec.URL = s.Git.URL + "/app"
		g.Spec.Verification = &sourcev1.GitRepositoryVerification{SecretRef: meta.LocalObjectReference{Name: "none"}}
	})
	s.NotReady(g, "keyless", "VerificationError", "not found")
	tag := s.Git.Object("app", "tag", golden("tag.ssh"))
	s.Git.SetRef("app", "refs/tags/v1-ssh", tag)
	s.GitRepository("release", func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.Reference = s.Git.URL+"/app", &sourcev1.GitRepositoryRef{Tag: "v1-ssh"}
		g.Spec.Verification = &sourcev1.GitRepositoryVerification{Mode: "TagAndHEAD",
			SecretRef: meta.LocalObjectReference{Name: "signers"}}
	})
	if c := condition(s.GitRepositoryReady("release", signed), "SourceVerified"); !strings.Contains(c.Message,
		"tag 'v1-ssh@sha1:"+
			signed) || !strings.Contains(c.Message, "commit 'sha1:"+signed) {
		t.Errorf("%+v", c)
	}
}

func TestGitInclude(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": "1", "base/x.yaml": "under"})
	include := func(names ...string) func(*sourcev1.GitRepository) {
		return func(g *sourcev1.GitRepository) {
			for _, n := range names {
				g.Spec.Include = append(g.Spec.Include,
					sourcev1.GitRepositoryInclude{GitRepositoryRef: meta.LocalObjectReference{Name: n}})
			}
		}
	}
	s.GitRepository("app", include("base"), func(g *sourcev1.GitRepository) {
		g.Spec.Include = append(g.Spec.Include, sourcev1.GitRepositoryInclude{
			GitRepositoryRef: meta.LocalObjectReference{Name: "base"}, FromPath: "./deploy", ToPath: "some/where",
		})
	})
	g := &sourcev1.GitRepository{}
	s.NotReady(g, "app", "NotFound", "Create it, or correct spec.include. This object continues when it exists")
	if condition(g, "IncludeUnavailable").Status != metav1.ConditionTrue {
		t.Errorf("%+v", g.Status.Conditions)
	}
	t.Log("it is reconciled as soon as the included repository exists")
	base := s.Git.Commit("base", map[string]string{"x.yaml": "over", "deploy/y.yaml": "y"})
	s.GitRepository("base")
	s.GitRepositoryReady("base", base)
	g = s.GitRepositoryReady("app", commit)
	s.holds("app", map[string]string{"a.yaml": "1", "base/x.yaml": "over", "base/deploy/y.yaml": "y",
		"some/where/y.yaml": "y"})
	if len(g.Status.IncludedArtifacts) != 2 || len(g.Status.ObservedInclude) != 2 ||
		!strings.HasSuffix(g.Status.IncludedArtifacts[0].Revision, base) {
		t.Errorf("%+v", g.Status)
	}
	t.Log("it follows changes of the included repository")
	s.Git.Commit("base", map[string]string{"deploy/y.yaml": "changed"})
	s.RequestFetch("base")
	s.holds("app", map[string]string{"a.yaml": "1", "base/x.yaml": "over", "base/deploy/y.yaml": "changed",
		"some/where/y.yaml": "changed"})

	t.Log("errors of includes are reported")
	s.GitRepository("self", include("self"), func(g *sourcev1.GitRepository) { g.Spec.URL = s.Git.URL + "/app" })
	s.NotReady(g, "self", "CopyFailure", "Remove one of the entries of spec.include")
	s.GitRepository("outside", include("base"), func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.Include[0].FromPath = s.Git.URL+"/app", "../.."
	})
	const wrongPath = "Correct fromPath or toPath in spec.include. Both are relative to the root of the artifact, " +
		"and fromPath must exist there"
	s.NotReady(g, "outside", "CopyFailure", wrongPath)
	s.GitRepository("missing", include("base"), func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.Include[0].FromPath = s.Git.URL+"/app", "none"
	})
	s.NotReady(g, "missing", "CopyFailure", wrongPath)
}

func TestGitRepositoriesShareFetch(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	lib := s.Git.Commit("lib", map[string]string{"l.yaml": "lib"})
	commit := s.Git.Commit("app", map[string]string{
		"a.yaml": "1", "deploy/b.yaml": "2", "deploy/lib": testenv.Submodule(lib),
		".gitmodules": "[submodule \"lib\"]\n\tpath = deploy/lib\n\turl = ../lib\n",
	})
	url := s.Git.URL + "/app"
	s.GitRepository("one", func(g *sourcev1.GitRepository) { g.Spec.URL = url })
	s.GitRepositoryReady("one", commit)
	s.holds("one", map[string]string{"a.yaml": "1", "deploy/b.yaml": "2"})
	s.GitRepository("two", func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.SparseCheckout, g.Spec.RecurseSubmodules, g.Spec.GitImplementation = url, []string{"deploy"},
			true, "libgit2"
	})
	g := s.GitRepositoryReady("two", commit)
	s.holds("two", map[string]string{"deploy/b.yaml": "2", "deploy/lib/l.yaml": "lib"})
	checkSharedFetch(t, s, g)
	mirrors := func() int {
		entries, err := os.ReadDir(filepath.Join(s.Storage, "mirrors"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if n := mirrors(); n != 2 {
		t.Errorf("%d mirrors exist", n)
	}
	t.Log("mirrors of deleted objects are removed, even if they were deleted while the controller was stopped")
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(g, "two")
	if n := mirrors(); n != 1 {
		t.Errorf("%d mirrors exist", n)
	}
	s.Stop()
	one := &sourcev1.GitRepository{}
	s.Patch(one, "one", `{"metadata":{"finalizers":null}}`)
	if err := s.Client.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	s.Start()
	libs := s.Git.Stats()["fetches"]
	s.GitRepository("lib")
	s.GitRepositoryReady("lib", lib)
	testenv.Eventually(t, "the mirror is removed", func() error {
		if n := mirrors(); n != 1 {
			return fmt.Errorf("%d mirrors exist", n)
		}
		return nil
	})
	if s.Git.Stats()["fetches"] != libs+1 {
		t.Error("the mirror of a deleted object was used")
	}
}

// checkSharedFetch checks that two sources of a repository needed one fetch of it and one of its submodule.
func checkSharedFetch(t *testing.T, s *harness, g *sourcev1.GitRepository) {
	t.Helper()
	if fetches := s.Git.Stats()["fetches"]; fetches != 2 {
		t.Errorf("%d fetches for a repository and its submodule", fetches)
	}
	if !g.Status.ObservedRecurseSubmodules || fmt.Sprint(g.Status.ObservedSparseCheckout) != "[deploy]" {
		t.Errorf("%+v", g.Status)
	}
}

func TestGitHubAppLogin(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	private := testenv.NewGit(t, "--username", "x-access-token", "--password", "token-1")
	commit := private.Commit("app", map[string]string{"a.yaml": "1"})
	var asked atomic.Int64
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/app/installations/7/access_tokens" ||
			!strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ey") {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"token": "token-1", "expires_at": time.Now().Add(time.Hour)})
	}))
	t.Cleanup(github.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.Secret("app", map[string]string{
		"githubAppID": "1", "githubAppInstallationID": "7", "githubAppBaseURL": github.URL,
		"githubAppPrivateKey": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	asApp := func(provider string) func(*sourcev1.GitRepository) {
		return func(g *sourcev1.GitRepository) {
			g.Spec.URL, g.Spec.Provider, g.Spec.SecretRef = private.URL+"/app", provider,
				&meta.LocalObjectReference{Name: "app"}
		}
	}
	s.GitRepository("app", asApp("github"))
	s.GitRepository("same", asApp("github"))
	s.GitRepositoryReady("app", commit)
	s.GitRepositoryReady("same", commit)
	if n := asked.Load(); n != 1 {
		t.Errorf("%d tokens were requested", n)
	}
	if stats := private.Stats(); stats["fetches"] != 1 {
		t.Errorf("%v", stats)
	}
	g := &sourcev1.GitRepository{}
	s.GitRepository("generic", asApp("generic"))
	s.NotReady(g, "generic", "InvalidProviderConfiguration", "requires a Secret with the key 'githubAppID'")
	s.GitRepository("secretless", asApp("github"), func(g *sourcev1.GitRepository) { g.Spec.SecretRef = nil })
	s.NotReady(g, "secretless", "InvalidProviderConfiguration", "requires a Secret with the key 'githubAppID'")
}

func TestProxyAndLegacyFields(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": "1"})
	var through atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		login := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if _, password, _ := login.BasicAuth(); password != "s3cret" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		through.Add(1)
		r.RequestURI = ""
		r.URL.Host = strings.TrimPrefix(s.Git.URL, "http://")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close() // closed after copying
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(proxy.Close)
	s.Secret("proxy", map[string]string{"address": proxy.URL, "username": "me", "password": "s3cret"})
	s.Secret("refused", map[string]string{"address": proxy.URL, "username": "me", "password": "wr0ng"})
	by := func(name string) func(*sourcev1.GitRepository) {
		return func(g *sourcev1.GitRepository) {
			g.Spec.URL, g.Spec.ProxySecretRef = "http://git.example/app", &meta.LocalObjectReference{Name: name}
		}
	}
	s.GitRepository("app", by("proxy"))
	s.GitRepositoryReady("app", commit)
	if through.Load() == 0 {
		t.Error("the proxy was not used")
	}
	g := &sourcev1.GitRepository{}
	s.GitRepository("refused", by("refused"))
	s.NotReady(g, "refused", "AuthenticationFailed", "spec.proxySecretRef")
	if text := fmt.Sprint(g.Status); strings.Contains(text, "wr0ng") {
		t.Errorf("the status contains the password: %s", text)
	}
	s.GitRepository("legacy", func(g *sourcev1.GitRepository) {
		g.Spec.AccessFrom = &meta.AccessFrom{
			NamespaceSelectors: []meta.NamespaceSelector{{MatchLabels: map[string]string{"a": "b"}}}}
	})
	s.NotReady(g, "legacy", "AccessDenied", "Nothing was fetched. Remove the field; use --no-cross-namespace-refs to "+
		"keep other namespaces from the artifact")
	if condition(g, "Stalled").Status != metav1.ConditionTrue {
		t.Errorf("%+v", g.Status.Conditions)
	}
	var events corev1.EventList
	if err := s.Client.List(t.Context(), &events); err != nil || strings.Contains(fmt.Sprint(events), "wr0ng") {
		t.Errorf("an event contains the password, or error %v", err)
	}
}
