package kubeclient

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestReadyzNamesWhatIsNotReady(t *testing.T) {
	h, err := NewHealth("0")
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	wantNotReady := func(text string) {
		t.Helper()
		code, body := get("/readyz")
		if code != http.StatusServiceUnavailable || body != "not ready\n"+text+"\n" {
			t.Errorf("got %d %q, want that %s", code, body, text)
		}
		if code, body := get("/healthz"); code != http.StatusOK || body != "ok\n" {
			t.Errorf("/healthz: %d %s", code, body)
		}
	}
	wantNotReady("controllers: they are starting")

	filling := &informers{}
	filling.create(&cache.ListWatch{}, &corev1.Secret{}, 0, nil)
	filling.create(&cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	h.Set("controllers", "")
	h.check("caches", filling.waiting)
	wantNotReady("caches: waiting for the first list of ConfigMap, Secret")

	h.Set("definitions", "none")
	wantNotReady("caches: waiting for the first list of ConfigMap, Secret\ndefinitions: none")

	h.Set("caches", "")
	h.Set("definitions", "")
	if code, body := get("/readyz/"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("got %d %s", code, body)
	}
	if _, body := get("/readyz?verbose"); body != "caches: ok\ncontrollers: ok\ndefinitions: ok\n" {
		t.Errorf("got %q", body)
	}
	if code, _ := get("/metrics"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
}

func TestHealthAddressInUse(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	addr := strings.TrimPrefix(taken.URL, "http://")
	if _, err := NewHealth(addr); err == nil || !strings.Contains(err.Error(), "--health-addr "+addr) {
		t.Errorf("got %v", err)
	}
}
