package artifact

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// uploadServer accepts uploads, with tokens that are the names of results of the review.
func uploadServer(t *testing.T, publish func(u Upload) (int, error)) *httptest.Server {
	t.Helper()
	return serve(t, &Server{Store: openStore(t, t.TempDir(), newClock()), Uploads: &Uploads{
		MayPublish: func(_ context.Context, token string, key Key) error {
			if key != (Key{Kind: "externalartifact", Namespace: "apps", Name: "web"}) {
				t.Errorf("asked about %v", key)
			}
			return map[string]error{"good": nil, "unknown": ErrUnauthenticated, "weak": ErrForbidden}[token]
		},
		Publish:   func(_ context.Context, u Upload) (int, error) { return publish(u) },
		IsStandby: func() bool { return false },
	}})
}

func uploadArchive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, WriteArchive(t.Context(), &b, FromMap(files)))
	return b.Bytes()
}

// TestUploadsAreRefused sends uploads that must not be published.
func TestUploadsAreRefused(t *testing.T) {
	server := uploadServer(t, func(u Upload) (int, error) {
		t.Errorf("published %+v", u)
		return http.StatusOK, nil
	})
	good := uploadArchive(t, map[string]string{"a.yaml": "a: 1"})
	for name, c := range map[string]struct {
		method, path, token string
		body                []byte
		status              int
	}{
		"no token":            {"PUT", "/externalartifact/apps/web?revision=1", "", good, 401},
		"unknown token":       {"PUT", "/externalartifact/apps/web?revision=1", "unknown", good, 401},
		"no right":            {"PUT", "/externalartifact/apps/web?revision=1", "weak", good, 403},
		"no right to fail":    {"POST", "/externalartifact/apps/web?revision=1", "weak", []byte("x"), 403},
		"another kind":        {"PUT", "/gitrepository/apps/web?revision=1", "good", good, 404},
		"a path that climbs":  {"PUT", "/externalartifact/apps/..?revision=1", "good", good, 404},
		"a file":              {"PUT", "/externalartifact/apps/web/x.tar.gz?revision=1", "good", good, 404},
		"no revision":         {"PUT", "/externalartifact/apps/web", "good", good, 400},
		"revision with lines": {"PUT", "/externalartifact/apps/web?revision=a%0Ab", "good", good, 400},
		"long revision": {"PUT", "/externalartifact/apps/web?revision=" + strings.Repeat("a", 600), "good", good,
			400},
		"not an archive":   {"PUT", "/externalartifact/apps/web?revision=1", "good", []byte("text"), 400},
		"an empty archive": {"PUT", "/externalartifact/apps/web?revision=1", "good", uploadArchive(t, nil), 400},
		"a cut archive":    {"PUT", "/externalartifact/apps/web?revision=1", "good", good[:len(good)-20], 400},
		"an empty failure": {"POST", "/externalartifact/apps/web?revision=1", "good", []byte(" \n"), 400},
		"a long failure":   {"POST", "/externalartifact/apps/web?revision=1", "good", make([]byte, 20<<10), 400},
		"another method":   {"DELETE", "/externalartifact/apps/web?revision=1", "good", nil, 405},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, bytes.NewReader(c.body))
			must(t, err)
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			must(t, err)
			must(t, resp.Body.Close())
			if resp.StatusCode != c.status {
				t.Errorf("status %d, expected %d", resp.StatusCode, c.status)
			}
		})
	}
}

// TestPublisher publishes an artifact and a failure, the first of them in spite of a standby and a conflict.
func TestPublisher(t *testing.T) {
	var got []Upload
	busy := []int{http.StatusServiceUnavailable, http.StatusConflict}
	server := uploadServer(t, func(u Upload) (int, error) {
		if len(busy) > 0 {
			status := busy[0]
			busy = busy[1:]
			return status, errors.New("try again")
		}
		if u.Revision == "refused" {
			return http.StatusNotFound, errors.New("ExternalArtifact 'apps/web' does not exist")
		}
		got = append(got, u)
		return http.StatusOK, nil
	})
	address, err := url.Parse(server.URL)
	must(t, err)
	client, err := NewClient(ClientOptions{Hosts: []string{address.Host},
		Token: func() (string, error) { return "good", nil }})
	must(t, err)
	p := &Publisher{Server: address, Client: AtServer(client, address)}
	key := Key{Kind: "ExternalArtifact", Namespace: "apps", Name: "web"}
	tree := FromMap(map[string]string{"deploy/a.yaml": "a: 1"})
	must(t, p.Publish(t.Context(), Upload{Key: key, Revision: "main@sha1:1", Tree: tree}))
	must(t, p.Publish(t.Context(), Upload{Key: key, Revision: "main@sha1:2", Failure: "exit status 1:\nline"}))
	err = p.Publish(t.Context(), Upload{Key: key, Revision: "refused", Failure: "x"})
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("error %v", err)
	}
	if len(got) != 2 || got[0].Revision != "main@sha1:1" || got[1].Failure != "exit status 1:\nline" {
		t.Fatalf("published %+v", got)
	}
	if b, err := fs.ReadFile(got[0].Tree, "deploy/a.yaml"); err != nil || string(b) != "a: 1" {
		t.Errorf("got %q, %v", b, err)
	}
}
