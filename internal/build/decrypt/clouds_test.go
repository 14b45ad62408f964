package decrypt

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getsops/sops/v3/azkv"
	"github.com/getsops/sops/v3/gcpkms"
	"github.com/getsops/sops/v3/hcvault"
	"github.com/getsops/sops/v3/keys"
	"github.com/getsops/sops/v3/kms"

	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
)

// internet responds to requests for the hosts of the key services.
type internet struct {
	t     *testing.T
	hosts map[string]http.HandlerFunc
	mu    sync.Mutex
	asked []string
}

// transport sends every request to the local server.
func (n *internet) transport() http.RoundTripper {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.asked = append(n.asked, r.Host+r.URL.Path)
		n.mu.Unlock()
		h := n.hosts[r.Host]
		if h == nil {
			n.t.Errorf("asked %s, which is none of the services", r.Host)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		h(w, r)
	}))
	n.t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}
}

// body reads a request in JSON.
func body(t *testing.T, r *http.Request) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		t.Errorf("%s: %v", r.URL, err)
	}
	return m
}

func answer(t *testing.T, w http.ResponseWriter, v any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		t.Error(err)
	}
}

// expect fails the test if a request does not contain the expected value.
func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// keyService is a key service that has the key of a file.
type keyService struct {
	entries map[string]string
	master  keys.MasterKey
	hosts   map[string]http.HandlerFunc
}

func newAWS(t *testing.T, dataKey []byte) keyService {
	name := "sluice"
	master := kms.NewMasterKey("arn:aws:kms:eu-west-1:123456789012:key/abc", "arn:aws:iam::123456789012:role/sops",
		map[string]*string{"app": &name})
	master.EncryptedKey = base64Of([]byte("blob"))
	return keyService{
		entries: map[string]string{awsEntry: "aws_access_key_id: AKIDEXAMPLE\naws_secret_access_key: hunter2\n" +
			"aws_session_token: session\n"}, master: master,
		hosts: map[string]http.HandlerFunc{
			"sts.eu-west-1.amazonaws.com": func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseForm(); err != nil {
					t.Error(err)
				}
				expect(t, "Action", r.Form.Get("Action"), "AssumeRole")
				expect(t, "RoleArn", r.Form.Get("RoleArn"), master.Role)
				expect(t, "X-Amz-Security-Token", r.Header.Get("X-Amz-Security-Token"), "session")
				if !strings.Contains(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") {
					t.Errorf("Authorization %s", r.Header.Get("Authorization"))
				}
				w.Header().Set("Content-Type", "text/xml")
				fmt.Fprint(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">`+
					`<AssumeRoleResult><Credentials><AccessKeyId>ROLEKEY</AccessKeyId>`+
					`<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>`+
					`<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>`+
					`</AssumeRoleResponse>`)
			},
			"kms.eu-west-1.amazonaws.com": func(w http.ResponseWriter, r *http.Request) {
				expect(t, "X-Amz-Target", r.Header.Get("X-Amz-Target"), "TrentService.Decrypt")
				if !strings.Contains(r.Header.Get("Authorization"), "Credential=ROLEKEY/") ||
					!strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/kms/aws4_request") {
					t.Errorf("Authorization %s", r.Header.Get("Authorization"))
				}
				b := body(t, r)
				expect(t, "CiphertextBlob", b["CiphertextBlob"], base64Of([]byte("blob")))
				expect(t, "EncryptionContext", b["EncryptionContext"], map[string]any{"app": "sluice"})
				answer(t, w, map[string]any{"KeyId": "abc", "Plaintext": base64Of(dataKey)})
			},
		},
	}
}

func newAzure(t *testing.T, dataKey []byte) keyService {
	master := azkv.NewMasterKey("https://team.vault.azure.net", "sops", "v1")
	master.EncryptedKey = base64.RawURLEncoding.EncodeToString([]byte("blob"))
	const tenant = "11111111-1111-1111-1111-111111111111"
	login := "https://login.microsoftonline.com/" + tenant
	return keyService{
		entries: map[string]string{azureEntry: "tenantId: " + tenant + "\nclientId: client\nclientSecret: hunter2\n"},
		master:  master,
		hosts: map[string]http.HandlerFunc{
			"login.microsoftonline.com": func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/discovery/instance"):
					answer(t, w, map[string]any{"tenant_discovery_endpoint": login +
						"/v2.0/.well-known/openid-configuration", "metadata": []any{map[string]any{
						"preferred_network": "login.microsoftonline.com",
						"preferred_cache":   "login.microsoftonline.com",
						"aliases":           []string{"login.microsoftonline.com"}}}})
				case strings.HasSuffix(r.URL.Path, "openid-configuration"):
					answer(t, w, map[string]any{"authorization_endpoint": login + "/oauth2/v2.0/authorize",
						"token_endpoint": login + "/oauth2/v2.0/token", "issuer": login + "/v2.0"})
				default:
					if err := r.ParseForm(); err != nil {
						t.Error(err)
					}
					expect(t, "path", r.URL.Path, "/"+tenant+"/oauth2/v2.0/token")
					expect(t, "client", r.Form.Get("client_id")+":"+r.Form.Get("client_secret"), "client:hunter2")
					if !strings.Contains(r.Form.Get("scope"), "https://vault.azure.net/.default") {
						t.Errorf("scope %s", r.Form.Get("scope"))
					}
					answer(t, w, map[string]any{"access_token": "token", "expires_in": 3600, "token_type": "Bearer"})
				}
			},
			"team.vault.azure.net": func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "" {
					w.Header().Set("WWW-Authenticate",
						fmt.Sprintf(`Bearer authorization=%q, resource="https://vault.azure.net"`, login))
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				expect(t, "Authorization", r.Header.Get("Authorization"), "Bearer token")
				expect(t, "path", r.URL.Path, "/keys/sops/v1/decrypt")
				b := body(t, r)
				expect(t, "alg", b["alg"], "RSA-OAEP-256")
				expect(t, "value", b["value"], base64.RawURLEncoding.EncodeToString([]byte("blob")))
				answer(t, w, map[string]any{"kid": "https://team.vault.azure.net/keys/sops/v1",
					"value": base64.RawURLEncoding.EncodeToString(dataKey)})
			},
		},
	}
}

func newGCP(t *testing.T, dataKey []byte) keyService {
	const resource = "projects/p/locations/global/keyRings/r/cryptoKeys/k"
	master := gcpkms.NewMasterKeyFromResourceID(resource)
	master.EncryptedKey = base64Of([]byte("blob"))
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
	account, err := json.Marshal(map[string]string{"type": "service_account", "project_id": "p", "private_key_id": "1",
		"private_key": string(key), "client_email": "sops@p.iam.gserviceaccount.com",
		"token_uri": "https://oauth2.googleapis.com/token"})
	if err != nil {
		t.Fatal(err)
	}
	return keyService{
		entries: map[string]string{gcpEntry: string(account)}, master: master,
		hosts: map[string]http.HandlerFunc{
			"oauth2.googleapis.com": func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseForm(); err != nil {
					t.Error(err)
				}
				expect(t, "grant_type", r.Form.Get("grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer")
				_, claims, _ := strings.Cut(r.Form.Get("assertion"), ".")
				claims, _, _ = strings.Cut(claims, ".")
				b, err := base64.RawURLEncoding.DecodeString(claims)
				if err != nil || !strings.Contains(string(b), "sops@p.iam.gserviceaccount.com") {
					t.Errorf("claims %s, %v", b, err)
				}
				answer(t, w, map[string]any{"access_token": "token", "expires_in": 3600, "token_type": "Bearer"})
			},
			"cloudkms.googleapis.com": func(w http.ResponseWriter, r *http.Request) {
				expect(t, "Authorization", r.Header.Get("Authorization"), "Bearer token")
				expect(t, "path", r.URL.Path, "/v1/"+resource+":decrypt")
				expect(t, "ciphertext", body(t, r)["ciphertext"], base64Of([]byte("blob")))
				answer(t, w, map[string]any{"plaintext": base64Of(dataKey)})
			},
		},
	}
}

func newVault(t *testing.T, dataKey []byte) keyService {
	master := hcvault.NewMasterKey("https://vault.example.org:8200", "team/transit", "sops")
	master.EncryptedKey = "vault:v1:blob"
	return keyService{
		entries: map[string]string{vaultEntry: "hunter2\n", vaultAddressEntry: "https://vault.example.org:8200\n"},
		master:  master,
		hosts: map[string]http.HandlerFunc{"vault.example.org:8200": func(w http.ResponseWriter, r *http.Request) {
			expect(t, "X-Vault-Token", r.Header.Get("X-Vault-Token"), "hunter2")
			expect(t, "path", r.URL.Path, "/v1/team/transit/decrypt/sops")
			expect(t, "ciphertext", body(t, r)["ciphertext"], "vault:v1:blob")
			answer(t, w, map[string]any{"data": map[string]any{"plaintext": base64Of(dataKey)}})
		}},
	}
}

var clouds = map[string]func(*testing.T, []byte) keyService{"AWS KMS": newAWS, "Azure Key Vault": newAzure,
	"GCP KMS": newGCP, "Vault": newVault}

func TestKeyServicesDecrypt(t *testing.T) {
	for name, make := range clouds {
		t.Run(name, func(t *testing.T) {
			dataKey := newDataKey(t)
			c := make(t, dataKey)
			n := &internet{t: t, hosts: c.hosts}
			raw := map[string][]byte{}
			for e, v := range c.entries {
				raw[e] = []byte(v)
			}
			k, err := FromSecret(raw, n.transport())
			if err != nil {
				t.Fatal(err)
			}
			content := encrypt(t, "yaml", secret, dataKey, c.master)
			plain, _, err := file(t, k, "s.yaml", content)
			if err != nil || !strings.Contains(string(plain), "hunter2") {
				t.Fatalf("%s, %v; asked %v", plain, err, n.asked)
			}

			t.Log("the error of a refused request names the key, and does not contain the request body")
			for host := range n.hosts {
				n.hosts[host] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
			}
			if k, err = FromSecret(raw, n.transport()); err != nil {
				t.Fatal(err)
			}
			_, err = k.File(t.Context(), "s.yaml", content)
			if !errors.Is(err, ErrService) || !strings.Contains(err.Error(), name) ||
				!strings.Contains(err.Error(), "Check that the controller can reach the service of a key and may "+
					"decrypt with it, or add one of these keys to the Secret of spec.decryption.secretRef") ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}

			t.Log("a response that does not end takes little memory")
			chunk := bytes.Repeat([]byte(" "), 1<<20)
			for host := range n.hosts {
				n.hosts[host] = func(w http.ResponseWriter, _ *http.Request) {
					for range 256 {
						if _, err := w.Write(chunk); err != nil {
							return // the client disconnects
						}
					}
				}
			}
			if k, err = FromSecret(raw, n.transport()); err != nil {
				t.Fatal(err)
			}
			if taken := allocation.Bytes(func() { _, err = k.File(t.Context(), "s.yaml", content) }); err == nil ||
				taken > 64<<20 {
				t.Errorf("%d MiB were allocated, and the error is %v", taken>>20, err)
			}

			t.Log("without credentials no request is sent")
			n.asked = nil
			_, err = (&Keys{Transport: n.transport()}).File(t.Context(), "s.yaml", content)
			if err == nil || errors.Is(err, ErrService) || !strings.Contains(err.Error(), name) || len(n.asked) > 0 {
				t.Errorf("got %v, asked %v", err, n.asked)
			}
		})
	}
}

func TestAzureTakesEveryDocumentedCredential(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	var both bytes.Buffer
	for _, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der},
		{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}} {
		if err := pem.Encode(&both, b); err != nil {
			t.Fatal(err)
		}
	}
	certificate, err := json.Marshal(map[string]any{"tenantId": "t", "clientId": "c",
		"clientCertificate": both.String(), "clientCertificateSendChain": true})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{
		"tenantId: t\nclientId: c\nclientSecret: s\nauthorityHost: https://login.microsoftonline.us/\n",
		string(certificate),
		`{"appId": "a", "displayName": "d", "name": "n", "password": "p", "tenant": "t"}`, "clientId: c\n",
	} {
		k, err := FromSecret(map[string][]byte{azureEntry: []byte(value)}, nil)
		if err != nil || k.Azure == nil {
			t.Errorf("%.20s: %v", value, err)
		}
	}
}

// One token for a key that fits into a Secret would take days to sign.
func TestLargeKeysOfCloudsAreRefused(t *testing.T) {
	file := string(largekey.File(t))
	certificate, _ := largekey.Certificate(t)
	both := file + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	for entry, values := range map[string]map[string]string{
		azureEntry: {"tenantId": "t", "clientId": "c", "clientCertificate": both},
		gcpEntry:   {"type": "service_account", "client_email": "a@b", "private_key": file},
	} {
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		_, err = FromSecret(map[string][]byte{entry: text}, nil)
		if err == nil || !strings.Contains(err.Error(), "the RSA key has 16640 bits; the maximum is 16384") {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

func TestServiceAccountsLogInToTheVaultsThatAreListed(t *testing.T) {
	dataKey := newDataKey(t)
	c := newVault(t, dataKey)
	n := &internet{t: t, hosts: c.hosts}
	decrypts := n.hosts["vault.example.org:8200"]
	n.hosts["vault.example.org:8200"] = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/ns/auth/kubernetes/login" {
			decrypts(w, r)
			return
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		expect(t, "login", string(b), `{"jwt":"jwt for https://vault.example.org:8200","role":"apps_sops"}`)
		answer(t, w, map[string]any{"auth": map[string]any{"client_token": "hunter2"}})
	}
	logins, err := ParseVaultLogins([]byte("instances:\n- address: https://vault.example.org:8200\n" +
		"  loginPath: ns/auth/kubernetes/login\n"))
	if err != nil {
		t.Fatal(err)
	}
	k := &Keys{Transport: n.transport()}
	k.Vault = func(ctx context.Context, address string) (string, error) {
		return k.Login(ctx, logins, address, func(_ context.Context, audience string) (string, string, string, error) {
			return "jwt for " + audience, "apps", "sops", nil
		})
	}
	plain, _, err := file(t, k, "s.yaml", encrypt(t, "yaml", secret, dataKey, c.master))
	if err != nil || !strings.Contains(string(plain), "hunter2") {
		t.Fatal(err)
	}

	t.Log("a file cannot send the token elsewhere")
	n.asked = nil
	evil := hcvault.NewMasterKey("https://evil.example.org", "transit", "sops")
	evil.EncryptedKey = "vault:v1:blob"
	_, err = k.File(t.Context(), "s.yaml", encrypt(t, "yaml", secret, dataKey, evil))
	if err == nil || errors.Is(err, ErrService) || len(n.asked) > 0 ||
		!strings.Contains(err.Error(), "the address is not in the ConfigMap of --sops-vault-configmap). Add one of "+
			"these keys to the Secret of "+
			"spec.decryption.secretRef, or encrypt the file for a key in that Secret") {
		t.Errorf("%v, asked %v", err, n.asked)
	}

	for _, text := range []string{"instances: [{address: 'file:///x', loginPath: a}]",
		"instances: [{address: 'https://x'}]", "instances: 7"} {
		if _, err := ParseVaultLogins([]byte(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestADeadServiceIsToldAsOne(t *testing.T) {
	dataKey := newDataKey(t)
	c := newVault(t, dataKey)
	k := fromSecret(t, c.entries)
	k.Transport = broken{}
	_, err := k.File(t.Context(), "s.yaml", encrypt(t, "yaml", secret, dataKey, c.master))
	if !errors.Is(err, ErrService) {
		t.Error(err)
	}
}

type broken struct{}

func (broken) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, &url.Error{Op: "dial", URL: r.URL.Host, Err: errors.New("connection refused")}
}
