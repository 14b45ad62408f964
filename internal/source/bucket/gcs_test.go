package bucket

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// googleServer implements the documented JSON API and its token exchange, with two objects a page. It requires a token.
type googleServer struct {
	*httptest.Server
	objects  map[string]string
	key      *rsa.PublicKey
	requests []string
}

func newGoogle(t *testing.T, key *rsa.PublicKey) *googleServer {
	g := &googleServer{objects: map[string]string{}, key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /storage/v1/b/apps/o", g.authorized(g.list))
	mux.HandleFunc("GET /storage/v1/b/apps/o/{name...}", g.authorized(g.get))
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) { g.token(t, w, r) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":{"code":404,"message":"The specified bucket does not exist."}}`)
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func (g *googleServer) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.requests = append(g.requests, r.URL.Path)
		if r.Header.Get("Authorization") != "Bearer valid" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"code":401,"message":"Invalid Credentials"}}`)
			return
		}
		next(w, r)
	}
}

func generation(content string) string {
	return strconv.Itoa(len(content)*1000 + int(sha256.Sum256([]byte(content))[0]))
}

func (g *googleServer) list(w http.ResponseWriter, r *http.Request) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(g.objects)), func(n string) bool {
		return !strings.HasPrefix(n, r.URL.Query().Get("prefix")) || n <= r.URL.Query().Get("pageToken")
	})
	answer := map[string]any{}
	if len(names) > 2 {
		names = names[:2]
		answer["nextPageToken"] = names[1]
	}
	var items []map[string]string
	for _, n := range names {
		c := g.objects[n]
		items = append(items, map[string]string{"name": n, "etag": "e" + generation(c), "generation": generation(c),
			"size": strconv.Itoa(len(c))})
	}
	answer["items"] = items
	_ = json.NewEncoder(w).Encode(answer) // the client has disconnected
}

func (g *googleServer) get(w http.ResponseWriter, r *http.Request) {
	content, ok := g.objects[r.PathValue("name")]
	switch q := r.URL.Query(); {
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case q.Get("alt") != "media":
		w.WriteHeader(http.StatusBadRequest)
	case q.Get("ifGenerationMatch") != generation(content):
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		fmt.Fprint(w, content)
	}
}

// token issues a token for a JWT signed with the key:
// https://developers.google.com/identity/protocols/oauth2/service-account
func (g *googleServer) token(t *testing.T, w http.ResponseWriter, r *http.Request) {
	head, claims, _ := strings.Cut(r.FormValue("assertion"), ".")
	claims, signature, _ := strings.Cut(claims, ".")
	sum := sha256.Sum256([]byte(head + "." + claims))
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || rsa.VerifyPKCS1v15(g.key, crypto.SHA256, sum[:], raw) != nil ||
		r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant","error_description":"s3cr3t details"}`)
		return
	}
	var says struct{ Iss, Aud, Scope string }
	text, err := base64.RawURLEncoding.DecodeString(claims)
	if err != nil || json.Unmarshal(text, &says) != nil || says.Iss != "me@x.iam.gserviceaccount.com" ||
		says.Aud != g.URL+"/token" || says.Scope != GCSReadOnly {
		t.Errorf("token request with %s", text)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"access_token":"valid","token_type":"Bearer","expires_in":3600}`)
}

// accountKey returns the JSON key of a service account.
func (g *googleServer) accountKey(t *testing.T, key *rsa.PrivateKey) map[string][]byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "me@x.iam.gserviceaccount.com", "token_uri": g.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"serviceaccount": text}
}

func (g *googleServer) remote(t *testing.T, bucket string, tokens Tokens) Remote {
	t.Helper()
	r, err := NewGCS(GCS{Endpoint: strings.TrimPrefix(g.URL, "http://"), Bucket: bucket, Insecure: true, Tokens: tokens,
		Transport: http.DefaultTransport})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // no randomness
	}
	return key
}

func TestGoogleCloudStorage(t *testing.T) {
	key := mustKey()
	g := newGoogle(t, &key.PublicKey)
	g.objects = map[string]string{"a.yaml": "a", "dir/b c.yaml": "b", "dir/ü#?.yaml": "u", "dir/x%2Fy": "p",
		"other": "o"}
	tokens, err := ServiceAccountTokens(g.accountKey(t, key), http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	cache, r := open(t, t.TempDir()), g.remote(t, "apps", tokens)
	tree, first := update(t, cache, r, "", nil)
	if got := files(t, tree); !maps.Equal(got, g.objects) {
		t.Errorf("got %v", got)
	}
	g.objects["a.yaml"] = "changed"
	g.requests = nil
	tree, second := update(t, cache, r, "", nil)
	if got := files(t, tree); !maps.Equal(got, g.objects) || first == second {
		t.Errorf("got %v", got)
	}
	if want := []string{"/storage/v1/b/apps/o", "/storage/v1/b/apps/o", "/storage/v1/b/apps/o",
		"/storage/v1/b/apps/o/a.yaml"}; !slices.Equal(g.requests, want) {
		t.Errorf("requests after a change: %q, want %q", g.requests, want)
	}
	tree, _ = update(t, cache, r, "dir/", nil)
	if got := slices.Sorted(maps.Keys(files(t, tree))); !slices.Equal(got,
		[]string{"dir/b c.yaml", "dir/x%2Fy", "dir/ü#?.yaml"}) {
		t.Errorf("objects below dir/: %q", got)
	}
	l, err := cache.List(t.Context(), r, "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	g.objects["other"] = "changed"
	if _, err := cache.Tree(t.Context(), r, l); err == nil ||
		!strings.Contains(err.Error(), "it changed after it was listed. The bucket is listed again and the fetch "+
			"retried") {
		t.Errorf("got %v", err)
	}
}

func TestGoogleErrors(t *testing.T) {
	key := mustKey()
	g := newGoogle(t, &key.PublicKey)
	fixed := func(token string) Tokens {
		return func(context.Context) (*oauth2.Token, error) { return &oauth2.Token{AccessToken: token}, nil }
	}
	forged, err := ServiceAccountTokens(g.accountKey(t, mustKey()), http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		remote          Remote
		reason, message string
	}{
		"no token": {remote: g.remote(t, "apps", nil), reason: "AuthenticationFailed",
			message: "Invalid Credentials"},
		"wrong token": {remote: g.remote(t, "apps", fixed("wrong")), reason: "AuthenticationFailed",
			message: "Invalid Credentials"},
		"key of another account": {remote: g.remote(t, "apps", forged), reason: "AuthenticationFailed",
			message: "the token exchange returned 400 Bad Request. Check the service account, its key and its " +
				"permissions"},
		"missing bucket": {remote: g.remote(t, "none", fixed("valid")), reason: "BucketOperationFailed",
			message: "The specified bucket does not exist"},
		"bucket name with a path": {remote: g.remote(t, "../x?y#", fixed("valid")), reason: "BucketOperationFailed",
			message: "does not exist"},
	} {
		_, err := open(t, t.TempDir()).List(t.Context(), c.remote, "", nil)
		if fault.Reason(err, "") != c.reason || !strings.Contains(fmt.Sprint(err), c.message) ||
			strings.Contains(fmt.Sprint(err), "s3cr3t") {
			t.Errorf("%s: got %v, want %s with %q", name, err, c.reason, c.message)
		}
	}
}

func TestGoogleRefusesOtherTypesOfKeys(t *testing.T) {
	for _, text := range []string{
		"", "{", `{"type":"external_account","credential_source":{"file":"/etc/shadow"}}`,
		`{"type":"authorized_user","refresh_token":"s3cr3t"}`,
	} {
		_, err := ServiceAccountTokens(map[string][]byte{"serviceaccount": []byte(text)}, http.DefaultTransport)
		want := "Only keys of type service_account are supported: other types can refer to files and programs"
		if text == "" {
			want = "Set it to the JSON key of a service account, or correct spec.secretRef"
		}
		if fault.Reason(err, "") != "AuthenticationFailed" || fault.As(err).Hint != want ||
			strings.Contains(fmt.Sprint(err), "s3cr3t") {
			t.Errorf("%s: %v", text, err)
		}
	}
	large, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "a@b",
		"private_key": string(largekey.File(t))})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ServiceAccountTokens(map[string][]byte{"serviceaccount": large}, http.DefaultTransport)
	if f := fault.As(err); f == nil || f.Hint != "Use the file that Google Cloud created" ||
		!strings.Contains(f.Error(), "16640 bits") {
		t.Errorf("a large key: %v", err)
	}
	for _, endpoint := range []string{"", "a/b", "user@host", "host?x", "::"} {
		if _, err := NewGCS(GCS{Endpoint: endpoint, Bucket: "apps"}); fault.As(err) == nil ||
			fault.As(err).Hint != "Write spec.endpoint as a host, or host:port, without a path" {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
}

// FuzzGooglePage lists a bucket of a server that returns arbitrary pages.
func FuzzGooglePage(f *testing.F) {
	f.Add(`{"items":[{"name":"a","etag":"e","size":"1","generation":"2"}],"nextPageToken":"t"}`)
	f.Add(`{"items":[{"size":"-1"}]}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("pageToken") == "" {
				fmt.Fprint(w, text)
				return
			}
			fmt.Fprint(w, "{}")
		}))
		defer server.Close()
		r, err := NewGCS(GCS{Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "b", Insecure: true,
			Transport: http.DefaultTransport})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.List(t.Context(), "", func(o Object) error {
			if o.Size < 0 {
				t.Errorf("object with %d bytes", o.Size)
			}
			return nil
		})
	})
}
