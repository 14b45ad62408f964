package remotebase

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFetch(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a.yaml":
			_, _ = w.Write([]byte("a: b")) // the client may have closed the connection
		case "/large.yaml":
			_, _ = w.Write(make([]byte, maxSize+1)) // the client may have closed the connection
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	fetch := NewFetcher(server.Client().Transport)
	if b, err := fetch(t.Context(), server.URL+"/a.yaml"); err != nil || string(b) != "a: b" {
		t.Errorf("got %q, %v", b, err)
	}
	for path, message := range map[string]string{"/large.yaml": "larger than 10 MiB",
		"/none.yaml?token=hunter2": "404"} {
		_, err := fetch(t.Context(), server.URL+path)
		if err == nil || !strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want %q without the token", path, err, message)
		}
	}
}
