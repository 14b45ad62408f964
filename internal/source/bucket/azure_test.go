package bucket

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	azureAccount = "acme"
	azureTenant  = "11111111-2222-3333-4444-555555555555"
	azureClient  = "66666666-7777-8888-9999-000000000000"
)

var azureKey = base64.StdEncoding.EncodeToString([]byte("an account's key"))

// azureServer implements the documented API of Blob Storage and Entra ID, with two blobs a page. It requires
// one of the logins.
type azureServer struct {
	*httptest.Server
	blobs    map[string]string
	public   bool
	requests []string
}

func newAzure(t *testing.T) *azureServer {
	a := &azureServer{blobs: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /acme/apps", a.authorized(a.list))
	mux.HandleFunc("GET /acme/apps/{name...}", a.authorized(a.get))
	mux.HandleFunc("GET /acme/none", a.authorized(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-error-code", "ContainerNotFound")
		w.WriteHeader(http.StatusNotFound)
	}))
	mux.HandleFunc("GET /"+azureTenant+"/v2.0/.well-known/openid-configuration",
		func(w http.ResponseWriter, _ *http.Request) {
			at := a.URL + "/" + azureTenant
			_ = json.NewEncoder(w).Encode(map[string]string{
				"token_endpoint": at + "/oauth2/v2.0/token", "authorization_endpoint": at + "/oauth2/v2.0/authorize",
				"issuer": at + "/v2.0",
			})
		})
	mux.HandleFunc("POST /"+azureTenant+"/oauth2/v2.0/token",
		func(w http.ResponseWriter, r *http.Request) { a.token(w, r) })
	a.Server = httptest.NewTLSServer(mux)
	t.Cleanup(a.Close)
	return a
}

func (a *azureServer) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.requests = append(a.requests, r.URL.Path)
		login, q := r.Header.Get("Authorization"), r.URL.Query()
		switch {
		case r.Header.Get("x-ms-version") == "":
			w.WriteHeader(http.StatusBadRequest)
		case a.public, login == "Bearer valid", login == sharedKey(r), q.Get("sig") == "signed&so" &&
			q.Get("sv") == "2024-11-04":
			next(w, r)
		default:
			w.Header().Set("x-ms-error-code", "AuthenticationFailed")
			w.WriteHeader(http.StatusForbidden)
		}
	}
}

// sharedKey returns the Authorization header of a request signed with the key of the account:
// https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key
func sharedKey(r *http.Request) string {
	lines := []string{r.Method}
	for _, h := range []string{
		"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
		"If-Modified-Since",
		"If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
	} {
		lines = append(lines, r.Header.Get(h))
	}
	for _, h := range slices.Sorted(maps.Keys(r.Header)) {
		if h = strings.ToLower(h); strings.HasPrefix(h, "x-ms-") {
			lines = append(lines, h+":"+r.Header.Get(h))
		}
	}
	lines = append(lines, "/"+azureAccount+r.URL.EscapedPath())
	for _, key := range slices.Sorted(maps.Keys(r.URL.Query())) {
		lines = append(lines, key+":"+r.URL.Query().Get(key))
	}
	m := hmac.New(sha256.New, []byte("an account's key"))
	fmt.Fprint(m, strings.Join(lines, "\n"))
	return "SharedKey " + azureAccount + ":" + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

func etagOf(content string) string { return fmt.Sprintf(`0x%X`, sha256.Sum256([]byte(content)))[:17] }

func (a *azureServer) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("restype") != "container" || q.Get("comp") != "list" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	type blob struct {
		Name          string
		ETag          string `xml:"Properties>Etag"`
		ContentLength int    `xml:"Properties>Content-Length"`
	}
	answer := struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Blobs      []blob   `xml:"Blobs>Blob"`
		NextMarker string
	}{}
	for _, n := range slices.Sorted(maps.Keys(a.blobs)) {
		if !strings.HasPrefix(n, q.Get("prefix")) || n <= q.Get("marker") {
			continue
		}
		if len(answer.Blobs) == 2 {
			answer.NextMarker = answer.Blobs[1].Name
			break
		}
		answer.Blobs = append(answer.Blobs, blob{Name: n, ETag: etagOf(a.blobs[n]), ContentLength: len(a.blobs[n])})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(answer) // the client has disconnected
}

func (a *azureServer) get(w http.ResponseWriter, r *http.Request) {
	content, ok := a.blobs[r.PathValue("name")]
	switch {
	case !ok:
		w.Header().Set("x-ms-error-code", "BlobNotFound")
		w.WriteHeader(http.StatusNotFound)
	case r.Header.Get("If-Match") != `"`+etagOf(content)+`"`:
		w.Header().Set("x-ms-error-code", "ConditionNotMet")
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		fmt.Fprint(w, content)
	}
}

// token issues a token for a client secret, or for an assertion signed with a client certificate.
func (a *azureServer) token(w http.ResponseWriter, r *http.Request) {
	known := r.FormValue("client_secret") == "the secret"
	if assertion := r.FormValue("client_assertion"); assertion != "" {
		claims := jwt.MapClaims{}
		_, err := jwt.ParseWithClaims(assertion, claims,
			func(*jwt.Token) (any, error) { return &clientKey.PublicKey, nil })
		known = err == nil && claims["iss"] == azureClient
	}
	w.Header().Set("Content-Type", "application/json")
	if !known || r.FormValue("client_id") != azureClient || r.FormValue("grant_type") != "client_credentials" ||
		!strings.Contains(r.FormValue("scope"), AzureScope) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":"invalid_client","error_description":"AADSTS7000215: invalid client secret"}`)
		return
	}
	fmt.Fprint(w, `{"access_token":"valid","token_type":"Bearer","expires_in":3600}`)
}

func (a *azureServer) remote(t *testing.T, container, query string, secret map[string]string) (Remote, error) {
	t.Helper()
	endpoint, login := a.URL+"/"+azureAccount+query, AzureLogin{}
	if secret != nil {
		data := map[string][]byte{}
		for k, v := range secret {
			data[k] = []byte(strings.ReplaceAll(v, "AUTHORITY", a.URL))
		}
		var err error
		if login, err = AzureLoginFrom(data, endpoint, a.Client().Transport, nil); err != nil {
			return nil, err
		}
	}
	return NewAzure(Azure{Endpoint: endpoint, Container: container, Login: login, Transport: a.Client().Transport})
}

var clientKey = mustKey()

// clientCertificate returns a certificate of clientKey and a private key, in PEM.
func clientCertificate(t *testing.T, private *rsa.PrivateKey) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &clientKey.PublicKey, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

func TestAzure(t *testing.T) {
	blobs := map[string]string{"a.yaml": "a", "dir/b c.yaml": "b", "dir/ü#?.yaml": "u", "dir/x%2Fy": "p", "other": "o"}
	principal := map[string]string{"tenantId": azureTenant, "clientId": azureClient, "authorityHost": "AUTHORITY"}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(principal)
		maps.Copy(all, more)
		return all
	}
	for name, c := range map[string]struct {
		public bool
		query  string
		secret map[string]string
	}{
		"anonymously":   {public: true, query: "", secret: nil},
		"client secret": {public: false, query: "", secret: with(map[string]string{"clientSecret": "the secret"})},
		"client certificate": {public: false, query: "",
			secret: with(map[string]string{"clientCertificate": clientCertificate(t, clientKey),
				"clientCertificateSendChain": "true"})},
		"account key": {public: false, query: "", secret: map[string]string{"accountKey": azureKey}},
		"account key with name": {public: false, query: "",
			secret: map[string]string{"accountKey": azureKey, "accountName": azureAccount}},
		"signature": {public: false, query: "",
			secret: map[string]string{"sasKey": "?sv=2024-11-04&sig=signed%26so"}},
		"signature in the endpoint": {public: false, query: "?sv=2024-11-04&sig=signed%26so", secret: nil},
		"signature that overrides the endpoint": {public: false, query: "?sv=2024-11-04&sig=old",
			secret: map[string]string{"sasKey": "sig=signed%26so"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAzure(t)
			a.blobs, a.public = maps.Clone(blobs), c.public
			r, err := a.remote(t, "apps", c.query, c.secret)
			if err != nil {
				t.Fatal(err)
			}
			cache := open(t, t.TempDir())
			tree, first := update(t, cache, r, "", nil)
			if got := files(t, tree); !maps.Equal(got, blobs) {
				t.Errorf("got %v", got)
			}
			a.blobs["other"] = "changed"
			a.requests = nil
			if _, second := update(t, cache, r, "", nil); second == first {
				t.Error("the change was not detected")
			}
			if want := []string{"/acme/apps", "/acme/apps", "/acme/apps",
				"/acme/apps/other"}; !slices.Equal(a.requests, want) {
				t.Errorf("requests after a change: %q, want %q", a.requests, want)
			}
		})
	}
}

func TestAzureErrors(t *testing.T) {
	a := newAzure(t)
	for name, c := range map[string]struct {
		container       string
		secret          map[string]string
		reason, message string
	}{
		"anonymously": {container: "apps", secret: nil, reason: "AuthenticationFailed",
			message: "AuthenticationFailed"},
		"wrong account key": {container: "apps", secret: map[string]string{
			"accountKey": base64.StdEncoding.EncodeToString([]byte("s3cr3t"))}, reason: "AuthenticationFailed",
			message: "AuthenticationFailed"},
		"invalid account key": {container: "apps", secret: map[string]string{"accountKey": "s3cr3t!"},
			reason:  "AuthenticationFailed",
			message: "is not valid"},
		"wrong signature": {container: "apps", secret: map[string]string{"sasKey": "sv=2024-11-04&sig=s3cr3t"},
			reason: "AuthenticationFailed", message: "AuthenticationFailed"},
		"invalid signature": {container: "apps", secret: map[string]string{"sasKey": "sig=%zzs3cr3t"},
			reason:  "AuthenticationFailed",
			message: "is not valid"},
		"Secret for another provider": {container: "apps", secret: map[string]string{"username": "s3cr3t"},
			reason: "AuthenticationFailed",
			message: "no login to Azure. Set tenantId, clientId and clientSecret or clientCertificate; or " +
				"clientId alone; or accountKey; or sasKey"},
		"invalid certificate": {container: "apps",
			secret: map[string]string{"tenantId": azureTenant, "clientId": azureClient,
				"clientCertificate": "s3cr3t"}, reason: "AuthenticationFailed", message: "is not valid"},
		"large key": {container: "apps",
			secret: map[string]string{"tenantId": azureTenant, "clientId": azureClient,
				"clientCertificate": clientCertificate(t, largekey.New(t))}, reason: "AuthenticationFailed",
			message: "is not valid"},
		"wrong client secret": {container: "apps",
			secret: map[string]string{"tenantId": azureTenant, "clientId": azureClient,
				"clientSecret": "s3cr3t", "authorityHost": "AUTHORITY"}, reason: "AuthenticationFailed",
			message: "Entra ID returned 401 Unauthorized. Check tenantId, clientId and the secret or certificate " +
				"of the Secret"},
		"missing container": {container: "none", secret: map[string]string{"accountKey": azureKey},
			reason: "BucketOperationFailed",
			message: "ContainerNotFound. Create the bucket, or correct spec.bucketName, spec.endpoint and " +
				"spec.region"},
		"invalid tenant": {container: "apps",
			secret: map[string]string{"tenantId": "../s3cr3t", "clientId": azureClient,
				"clientSecret": "x"}, reason: "AuthenticationFailed", message: "is not valid"},
	} {
		r, err := a.remote(t, c.container, "", c.secret)
		if err == nil {
			_, err = open(t, t.TempDir()).List(t.Context(), r, "", nil)
		}
		if fault.Reason(err, "") != c.reason || !strings.Contains(fmt.Sprint(err), c.message) ||
			strings.Contains(fmt.Sprint(err), "s3cr3t") {
			t.Errorf("%s: got %v, want %s with %q", name, err, c.reason, c.message)
		}
	}
	a.Close()
	r, err := a.remote(t, "apps", "?sig=s3cr3t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, t.TempDir()).List(t.Context(), r, "", nil); err == nil ||
		strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("stopped server: %v", err)
	}
}

func TestAzureEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://acme.blob.core.windows.net":       "acme",
		"http://127.0.0.1:10000/devstoreaccount1":  "devstoreaccount1",
		"https://acme.blob.core.windows.net/?sv=1": "acme",
	} {
		if got := accountName(nil, endpoint); got != want {
			t.Errorf("%s: account %q, want %q", endpoint, got, want)
		}
	}
	for _, endpoint := range []string{"", "acme.blob.core.windows.net", "ftp://x", "https://"} {
		if _, err := NewAzure(Azure{Endpoint: endpoint, Container: "apps"}); fault.As(err) == nil || !fault.As(err).
			Terminal || fault.As(err).Hint != "Write spec.endpoint as https://ACCOUNT.blob.core.windows.net" {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
}
