package source_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// mayGet lets a service account get a GitRepository.
func (s *harness) mayGet(account, repository string) {
	s.Helper()
	s.GrantGet(account, "source.toolkit.fluxcd.io", "gitrepositories", repository)
}

// status returns the status of a HEAD request with a token.
func status(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestArtifactAccess(t *testing.T) {
	t.Parallel()
	const ours = "artifacts"
	for what, c := range map[string]struct {
		audience    string
		good, wrong []string // audiences of tokens
	}{
		"tokens of the API server":      {wrong: []string{ours}},
		"tokens for the server of ours": {audience: ours, good: []string{ours}},
	} {
		t.Run(what, func(t *testing.T) {
			s := newHarness(t, func(o *options.Options) {
				o.Artifacts.CheckAccess, o.Artifacts.Audience = true,
					c.audience
			})
			commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
			s.GitRepository("app")
			s.GitRepository("other", func(g *sourcev1.GitRepository) { g.Spec.URL = s.Git.URL + "/app" })
			app, other := s.StoredArtifact("app", commit), s.StoredArtifact("other", commit)
			s.mayGet("reader", "app")
			reader, stranger := s.ServiceAccountToken("reader", c.good...), s.ServiceAccountToken("stranger", c.good...)
			elsewhere := s.Token(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
				Name: "reader"}}, c.wrong...)
			for _, c := range []struct {
				who, token, url string
				status          int
			}{
				{who: "anonymous", url: app.URL, status: 401},
				{who: "nonsense", token: "x.y.z", url: app.URL, status: 401},
				{who: "a token for something else", token: elsewhere, url: app.URL, status: 401},
				{who: "a reader", token: reader, url: app.URL, status: 200},
				{who: "a reader of another", token: reader, url: other.URL, status: 403},
				{who: "a stranger", token: stranger, url: app.URL, status: 403},
				{who: "a reader again", token: reader, url: app.URL, status: 200},
			} {
				if got := status(t, c.url, c.token); got != c.status {
					t.Errorf("%s: status %d, want %d", c.who, got, c.status)
				}
			}
			s.Kustomization("app", "app", "")
			s.ConfigMapHas("a", "1") // the process reads from its own store
		})
	}
}

// The controllers run in two systems, with TLS and access checks.
func TestSplitControllers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, token := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "token")
	writeCertificate(t, cert, key)
	s := newHarness(t, func(o *options.Options) {
		o.Controllers = []string{options.SourceController}
		o.Artifacts = options.ArtifactOptions{TLSCertFile: cert, TLSKeyFile: key, CheckAccess: true}
	})
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	if a := s.StoredArtifact("app", commit); !strings.HasPrefix(a.URL, "https://127.0.0.1:") {
		t.Errorf("URL %s", a.URL)
	}
	s.mayGet("kustomize", "app")
	write(t, token, []byte(s.ServiceAccountToken("kustomize")))
	other := *s
	other.Storage, other.Configure = t.TempDir(), []func(*options.Options){func(o *options.Options) {
		o.Controllers = []string{options.KustomizeController}
		o.Artifacts = options.ArtifactOptions{CAFile: cert, TokenFile: token, TokenHosts: []string{"127.0.0.1"}}
	}}
	other.Start()
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)

	t.Log("a renewed certificate is used without a restart")
	before := served(t, s.StoredArtifact("app", commit).URL)
	writeCertificate(t, cert, key)
	testenv.Eventually(t, "the server uses the new certificate", func() error {
		if served(t, s.StoredArtifact("app", commit).URL).Equal(before) {
			return errors.New("it uses the old one")
		}
		return nil
	})
}

// served returns the certificate of a server.
func served(t *testing.T, url string) *x509.Certificate {
	t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	conn, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true}) // only inspected
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

func writeCertificate(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "artifacts"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSourceEventStream(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	first := s.Git.Commit("app", map[string]string{"a.yaml": "1"})
	s.GitRepository("first", func(g *sourcev1.GitRepository) { g.Spec.URL = s.Git.URL + "/app" })
	host, _, _ := strings.Cut(strings.TrimPrefix(s.StoredArtifact("first", first).URL, "http://"), "/")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+
		"/events?kind=GitRepository&name=app&namespace="+s.Namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	hears := func(event string) {
		t.Helper()
		for lines.Scan() {
			if got, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				if got != event {
					t.Fatalf("got event %s, want %s", got, event)
				}
				return
			}
		}
		t.Fatalf("the stream ended before event %s: %v", event, lines.Err())
	}
	s.GitRepository("app")
	hears("published")
	s.Git.Commit("app", map[string]string{"a.yaml": "2"})
	s.RequestFetch("app")
	hears("published")
	point := func(branch string) {
		t.Helper()
		g := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "app"}}
		patch := fmt.Sprintf(`{"spec":{"ref":{"branch":%q}}}`, branch)
		if err := s.Client.Patch(t.Context(), g, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	point("none")
	hears("failing")
	point("main")
	hears("recovered")
	if err := s.Client.Delete(t.Context(), &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "app"}}); err != nil {
		t.Fatal(err)
	}
	hears("removed")
}

func TestStoreCleanupAtStart(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	a := s.StoredArtifact("app", commit)
	s.Stop()
	store := filepath.Join(s.Storage, "artifacts")
	gone, damaged := filepath.Join(store, "bucket", s.Namespace, "gone"),
		filepath.Join(store, filepath.Dir(a.Path), "older.tar.gz")
	elsewhere := filepath.Join(store, "bucket", "elsewhere", "theirs")
	for _, dir := range []string{gone, elsewhere} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "x.tar.gz")
		write(t, file, []byte("x"))
		if err := os.Chtimes(file, time.Now(), time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, damaged, []byte("damaged"))
	s.Start()
	for _, path := range []string{gone, damaged} {
		testenv.Eventually(t, path+" is removed", func() error {
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return errors.Join(err, errors.New("it exists"))
			}
			return nil
		})
	}
	if _, err := os.Lstat(elsewhere); err != nil {
		t.Errorf("an artifact of another namespace was changed: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(store, a.Path)); err != nil {
		t.Error(err)
	}
}
