package registry

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Addr = "127.0.0.1:0"
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Start(t.Context(), o)
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

// ask sends a request and returns the status, the header and the body of the answer.
func ask(t *testing.T, method, url, contentType string, body []byte) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// push pushes a manifest without layers, which may refer to another, and returns its digest.
func push(t *testing.T, s *Server, tag, kind string, subject *ocispec.Descriptor) (string, http.Header) {
	t.Helper()
	config := []byte("{}")
	status, header, _ := ask(t, http.MethodPost, s.URL+"/v2/app/blobs/uploads/", "", nil)
	if status != http.StatusAccepted {
		t.Fatalf("no upload: %d", status)
	}
	to := header.Get("Location")
	if status, _, b := ask(t, http.MethodPut, to+"&digest="+digestOf(config), "application/octet-stream",
		config); status != http.StatusCreated {
		t.Fatalf("no blob: %d %s", status, b)
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: kind,
		Layers: []ocispec.Descriptor{},
		Config: ocispec.DescriptorEmptyJSON, Subject: subject, Annotations: map[string]string{"tag": tag},
	})
	if err != nil {
		t.Fatal(err)
	}
	if tag == "" {
		tag = digestOf(manifest)
	}
	status, header, b := ask(t, http.MethodPut, s.URL+"/v2/app/manifests/"+tag, ocispec.MediaTypeImageManifest,
		manifest)
	if status != http.StatusCreated {
		t.Fatalf("no manifest: %d %s", status, b)
	}
	return digestOf(manifest), header
}

func referring(t *testing.T, s *Server, to string) (int, ocispec.Index) {
	t.Helper()
	status, _, b := ask(t, http.MethodGet, s.URL+"/v2/app/referrers/"+to, "", nil)
	var index ocispec.Index
	if status == http.StatusOK {
		if err := json.Unmarshal(b, &index); err != nil {
			t.Fatal(err)
		}
	}
	return status, index
}

func TestReferrersAreListed(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Options{Dir: dir})
	subject, _ := push(t, s, "v1", "", nil)
	if status, index := referring(t, s, subject); status != http.StatusOK || len(index.Manifests) != 0 {
		t.Errorf("status %d, %+v: unexpected referrers", status, index)
	}
	to := &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(subject), Size: 1}
	signature, header := push(t, s, "", "application/test.signature", to)
	if header.Get("OCI-Subject") != subject {
		t.Errorf("the response does not confirm the subject to the client: %v", header)
	}
	sbom, _ := push(t, s, "", "application/test.sbom", to)
	push(t, s, "", "application/test.sbom", to) // once more

	for again := range 2 {
		_, index := referring(t, s, subject)
		got := map[string]string{}
		for _, m := range index.Manifests {
			got[m.Digest.String()] = m.ArtifactType
		}
		if len(index.Manifests) != 2 || got[signature] != "application/test.signature" ||
			got[sbom] != "application/test.sbom" {
			t.Errorf("start %d: %+v", again+1, index.Manifests)
		}
		s = start(t, Options{Dir: dir}) // another over the same content
	}
}

func TestOlderRegistriesListNoReferrers(t *testing.T) {
	s := start(t, Options{NoReferrers: true})
	subject, _ := push(t, s, "v1", "", nil)
	if status, _ := referring(t, s, subject); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
}

func TestRequestsAreCounted(t *testing.T) {
	s := start(t, Options{})
	push(t, s, "v1", "", nil)
	ask(t, http.MethodHead, s.URL+"/v2/app/manifests/v1", "", nil)
	_, _, manifest := ask(t, http.MethodGet, s.URL+"/v2/app/manifests/v1", "", nil)
	_, _, b := ask(t, http.MethodGet, s.URL+"/-/stats", "", nil)
	var counts map[string]int64
	if err := json.Unmarshal(b, &counts); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int64{
		"HEAD manifests": 1, "GET manifests": 1, "PUT manifests": 1, "POST blobs": 1, "PUT blobs": 1, "requests": 5,
		"bytesSent": int64(len(manifest)),
	} {
		if counts[what] != want {
			t.Errorf("%s: %d, want %d", what, counts[what], want)
		}
	}
}

func TestLogin(t *testing.T) {
	s := start(t, Options{Username: "me", Password: "secret"})
	for login, want := range map[string]int{"me:secret@": http.StatusOK, "me:wrong@": http.StatusUnauthorized,
		"": http.StatusUnauthorized} {
		if status, _, _ := ask(t, http.MethodGet, strings.Replace(s.URL, "://", "://"+login, 1)+"/v2/", "",
			nil); status != want {
			t.Errorf("%q: status %d, want %d", login, status, want)
		}
	}
}

func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Options{TLSDir: dir, ClientCertificates: true})
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	if resp, err := client.Get(s.URL + "/v2/"); err == nil {
		_ = resp.Body.Close() // it should not be there
		t.Fatal("a client without a certificate was let in")
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{pair}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config}}).Get(s.URL + "/v2/")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", resp.StatusCode, err)
	}
}
