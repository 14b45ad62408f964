package decrypt

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/getsops/sops/v3/hcvault"
)

func TestDecryptPathsStayInTheirEngine(t *testing.T) {
	for _, test := range []struct{ engine, key, want string }{
		{engine: "transit", key: "k", want: "transit/decrypt/k"},
		{engine: "/team/transit/", key: "a.b-c_d", want: "team/transit/decrypt/a.b-c_d"},
		{engine: "ns1/ns2/transit", key: "k", want: "ns1/ns2/transit/decrypt/k"},
		{engine: "", key: "k"},
		{engine: "auth/token/revoke-self?", key: "k"},
		{engine: "auth/token/revoke-self", key: "k"},
		{engine: "/auth/token", key: "k"},
		{engine: "//auth/token", key: "k"},
		{engine: "sys/seal#", key: "k"},
		{engine: "ns1/auth/token/revoke-self", key: "k"},
		{engine: "ns1/ns2/sys", key: "k"},
		{engine: "sys", key: "k"},
		{engine: "../../secret/victim?", key: "k"},
		{engine: "transit/../sys", key: "k"},
		{engine: "transit/./x", key: "k"},
		{engine: "transit/.../x", key: "k"},
		{engine: "transit//x", key: "k"},
		{engine: "transit/%2e%2e/sys", key: "k"},
		{engine: `transit\..\sys`, key: "k"},
		{engine: "transit;x", key: "k"},
		{engine: "transit\r\nX: y", key: "k"},
		{engine: "transit\u2024\u2024", key: "k"},
		{engine: "transit", key: ""},
		{engine: "transit", key: ".."},
		{engine: "transit", key: "../../keys/k"},
		{engine: "transit", key: "k?x=y"},
		{engine: "transit", key: "k#x"},
	} {
		got, err := decryptPath(test.engine, test.key)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q with key %q: %q, %v; want %q", test.engine, test.key, got, err, test.want)
		}
	}
}

// FuzzDecryptPath checks by net/url, as servers read paths, that the engine is the start of the path.
func FuzzDecryptPath(f *testing.F) {
	f.Add("team/transit", "k")
	f.Add("auth/token/revoke-self?", "k")
	f.Add("../../secret/victim?", "..")
	f.Fuzz(func(t *testing.T, engine, key string) {
		path, err := decryptPath(engine, key)
		if err != nil {
			return
		}
		u, err := url.Parse("https://vault.example.org/v1/" + path)
		if err != nil || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("%q is read as %v, %v", path, u, err)
		}
		if clean := u.JoinPath().Path; clean != "/v1/"+strings.Trim(engine, "/")+"/decrypt/"+key {
			t.Errorf("engine %q and key %q are read as %q", engine, key, clean)
		}
	})
}

func TestServersOfVaultAreCompared(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{a: "https://vault.example.org", b: "https://VAULT.example.org:443/", same: true},
		{a: "https://vault.example.org\n", b: "https://vault.example.org", same: true},
		{a: "https://vault.example.org:8200", b: "https://vault.example.org"},
		{a: "https://vault.example.org", b: "http://vault.example.org"},
		{a: "https://vault.example.org", b: "https://vault.example.org.evil.org"},
		{a: "https://vault.example.org", b: "https://vault.example.org@evil.org"},
		{a: "https://vault.example.org", b: "https://vault.example.org?x"},
		{a: "https://vault.example.org/a", b: "https://vault.example.org/a/../b"},
		{a: "https://vault.example.org/a", b: "https://vault.example.org/a/", same: true},
		{a: "https://vault.example.org/a", b: "https://vault.example.org/b"},
		{a: "https://vault.example.org/a", b: "https://vault.example.org/%61"},
		{a: "", b: ""},
		{a: "vault", b: "vault"},
	} {
		if same := SameServer(test.a, test.b); same != test.same {
			t.Errorf("%q and %q: the same is %t", test.a, test.b, same)
		}
	}
}

// TestTokensOfSecretsStayAtTheirServer has files that name another server than the one that the token is for.
func TestTokensOfSecretsStayAtTheirServer(t *testing.T) {
	const home, evil = "https://vault.example.org:8200", "https://evil.example.org"
	for _, test := range []struct {
		name    string
		entries map[string]string
		servers []string
		named   string
		asked   string
	}{
		{name: "own server", entries: map[string]string{vaultAddressEntry: home + "/"}, named: home,
			asked: "vault.example.org:8200"},
		{name: "other server", entries: map[string]string{vaultAddressEntry: home}, named: evil},
		{name: "server of the administrator", servers: []string{home}, named: home, asked: "vault.example.org:8200"},
		{name: "not of the administrator", servers: []string{home}, named: evil},
		{name: "the Secret has precedence", entries: map[string]string{vaultAddressEntry: home},
			servers: []string{evil}, named: evil},
		{name: "no server is known", named: home},
		{name: "an unset variable", servers: []string{""}, named: evil},
		{name: "an address in the name of a user", entries: map[string]string{vaultAddressEntry: home},
			named: home + "@evil.example.org"},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := ""
			answers := func(w http.ResponseWriter, r *http.Request) {
				asked = r.Host
				w.WriteHeader(http.StatusNotFound)
			}
			n := &internet{t: t, hosts: map[string]http.HandlerFunc{"vault.example.org:8200": answers,
				"evil.example.org": answers}}
			data := map[string][]byte{vaultEntry: []byte("hunter2\n")}
			for entry, value := range test.entries {
				data[entry] = []byte(value)
			}
			k, err := FromSecret(data, n.transport())
			if err != nil {
				t.Fatal(err)
			}
			if len(k.Ignored) > 0 {
				t.Errorf("the entries %q are ignored", k.Ignored)
			}
			k.VaultServers = test.servers
			all := &Keys{Transport: n.transport()}
			all.Fallback(k)
			master := hcvault.NewMasterKey(test.named, "transit", "sops")
			master.EncryptedKey = "vault:v1:blob"
			_, err = all.File(t.Context(), "s.yaml", encrypt(t, "yaml", secret, newDataKey(t), master))
			if err == nil || asked != test.asked {
				t.Errorf("asked %q, want %q; error %v", asked, test.asked, err)
			}
			if test.asked == "" && (errors.Is(err, ErrService) || !strings.Contains(err.Error(), "the Secret "+
				"does not say that its sops.vault-token is for this server. Set its entry sops.vault-address to the "+
				"address of the server, if the token is for it")) {
				t.Errorf("the error does not say what to do: %v", err)
			}
		})
	}
	k, _ := FromSecret(map[string][]byte{vaultEntry: []byte("hunter2")}, nil)
	if token, err := k.Vault(context.Background(), home); token != "" || err == nil {
		t.Errorf("got token %q", token)
	}
}
