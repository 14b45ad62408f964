package artifact

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
)

func TestOpenVerifiesADownload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("content")) // fails only if the client has disconnected
	}))
	defer server.Close()
	t.Setenv("TMPDIR", t.TempDir())
	f := &Fetcher{Client: server.Client()}
	key := Key{Kind: "GitRepository", Namespace: "apps", Name: "repo"}
	a := meta.Artifact{URL: server.URL + "/a.tar.gz",
		Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("content")))}
	file, err := f.Open(t.Context(), key, a)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(file); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	a.Digest = "sha256:" + strings.Repeat("0", 64)
	if _, err := f.Open(t.Context(), key, a); err == nil || !strings.Contains(err.Error(), "expected "+a.Digest) {
		t.Errorf("another digest: %v", err)
	}
}
