package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signed asks with version 4 of AWS's signatures, which a client of S3 makes; here it is made by the words of
// its specification.
func signed(t *testing.T, s *Server, secret, method, path, query, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, s.URL+path+"?"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	day, hash := now.Format("20060102"), hex.EncodeToString(sum(body))
	req.Header.Set("X-Amz-Date", now.Format("20060102T150405Z"))
	req.Header.Set("X-Amz-Content-Sha256", hash)
	canonical := strings.Join([]string{
		method, path, query,
		"host:" + req.Host, "x-amz-content-sha256:" + hash, "x-amz-date:" + req.Header.Get("X-Amz-Date"), "",
		"host;x-amz-content-sha256;x-amz-date", hash,
	}, "\n")
	scope := day + "/us-east-1/s3/aws4_request"
	text := strings.Join([]string{"AWS4-HMAC-SHA256", req.Header.Get("X-Amz-Date"), scope,
		hex.EncodeToString(sum(canonical))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, "us-east-1", "s3", "aws4_request", text} {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	req.Header.Set("Authorization", fmt.Sprintf(
		"AWS4-HMAC-SHA256 Credential=me/%s,SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=%x",
		scope, key))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it is read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func sum(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}

func TestServer(t *testing.T) {
	dir := t.TempDir()
	s, err := Start(Options{Dir: dir, Addr: "127.0.0.1:0", Region: "us-east-1", AccessKey: "me",
		SecretKey: "my-secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		secret, method, path, query, body string
		status                            int
		holds                             string
	}{
		{"my-secret", "PUT", "/apps", "", "", 200, ""},
		{"my-secret", "PUT", "/apps/dev/a.yaml", "", "kind: A", 200, ""},
		{"my-secret", "GET", "/apps/dev/a.yaml", "", "", 200, "kind: A"},
		{"my-secret", "GET", "/apps", "list-type=2&prefix=dev", "", 200, "<Key>dev/a.yaml</Key>"},
		{"wrong", "GET", "/apps/dev/a.yaml", "", "", 403, "SignatureDoesNotMatch"},
		{"my-secret", "GET", "/none", "list-type=2", "", 404, "NoSuchBucket"},
	} {
		if status, body := signed(t, s, c.secret, c.method, c.path, c.query, c.body); status != c.status ||
			!strings.Contains(body, c.holds) {
			t.Errorf("%s %s?%s: got %d %s, want %d with %q", c.method, c.path, c.query, status, body, c.status, c.holds)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "apps", "dev", "a.yaml")); err != nil || string(b) != "kind: A" {
		t.Errorf("the directory has %q, %v", b, err)
	}
	resp, err := http.Get(s.URL + "/-/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it is read
	var stats map[string]int64
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		t.Fatal(err)
	}
	if stats["lists"] != 2 || stats["gets"] != 2 || stats["puts"] != 2 || stats["bytesSent"] < 7 {
		t.Errorf("counted %v", stats)
	}
}
