package artifact

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
)

func TestClientSendsItsTokenToThoseWhoMaySeeItOnly(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"a": "x"}), "v1", nil)
	ours := serve(t, &Server{Store: s, Access: &gate{}})
	seen := ""
	theirs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		seen += r.Header.Get("Authorization")
	}))
	t.Cleanup(theirs.Close)
	elsewhere := httptest.NewServer(http.RedirectHandler(theirs.URL, http.StatusFound))
	t.Cleanup(elsewhere.Close)
	fetch := func(address string, hosts ...string) error {
		client, err := NewClient(ClientOptions{Token: func() (string, error) { return "good", nil }, Hosts: hosts})
		must(t, err)
		artifact := *a
		artifact.URL = address + "/" + a.Path
		_, err = (&Fetcher{Client: client}).Fetch(t.Context(), webapp, artifact)
		return err
	}
	host := strings.TrimPrefix(ours.URL, "http://")
	if err := fetch(ours.URL); err == nil || !strings.Contains(err.Error(), "status 401") {
		t.Errorf("without a token: %v", err)
	}
	must(t, errors.Join(fetch(ours.URL, host), fetch(ours.URL, "127.0.0.1")))
	for _, address := range []string{theirs.URL, elsewhere.URL} {
		if err := fetch(address, host, strings.TrimPrefix(elsewhere.URL, "http://")); err == nil || seen != "" {
			t.Errorf("error %v, the servers received %q", err, seen)
		}
	}
}

func TestClientFollowsNoRedirectThatIsNotSafe(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	mux := http.NewServeMux()
	mux.Handle("/plain", http.RedirectHandler(plain.URL, http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	secure := httptest.NewTLSServer(mux)
	t.Cleanup(secure.Close)
	client, err := NewClient(ClientOptions{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: secure.Certificate().Raw})})
	must(t, err)
	for p, says := range map[string]string{"/plain": "from https to http", "/loop": "too often"} {
		address, err := url.JoinPath(secure.URL, p)
		must(t, err)
		_, err = (&Fetcher{Client: client}).Fetch(t.Context(), webapp, meta.Artifact{URL: address, Digest: "sha256:00"})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := NewClient(ClientOptions{CA: []byte("none")}); err == nil {
		t.Error("an invalid CA was accepted")
	}
}
