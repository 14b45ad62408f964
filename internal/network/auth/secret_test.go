package auth

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
)

func TestHintsOfGitSecrets(t *testing.T) {
	_, err := Git("https://host/%zz", nil)
	mustFail(t, err, "Use https://host/path or ssh://git@host/path")
	for _, data := range []map[string][]byte{nil, {"identity": []byte("x")}} {
		_, err = Git("ssh://git@host/app", data)
		mustFail(t, err, "Set 'identity' to a private key and 'known_hosts' to the output of ssh-keyscan HOST")
	}
}

func TestTLSFromSecret(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]map[string][]byte{
		"current": {"ca.crt": []byte("ca"), "tls.crt": []byte("cert"), "tls.key": []byte("key")},
		"legacy":  {"caFile": []byte("ca"), "certFile": []byte("cert"), "keyFile": []byte("key")},
		"both": {"caFile": []byte("x"), "certFile": []byte("x"), "keyFile": []byte("x"), "ca.crt": []byte("ca"),
			"tls.crt": []byte("cert"), "tls.key": []byte("key")},
	} {
		got, err := TLSFrom(data)
		if err != nil || string(got.CA)+string(got.Cert)+string(got.Key) != "cacertkey" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	_, err := TLSFrom(map[string][]byte{"tls.crt": []byte("s3cret")})
	mustFail(t, err, "only one of the keys tls.crt and tls.key. Set both keys")
	_, err = TLS{CA: []byte("s3cret")}.Config()
	mustFail(t, err, "ca.crt' of the Secret contains no certificate. Set it to the certificate of the authority "+
		"in PEM")
	_, err = TLS{Cert: []byte("s3cret"), Key: []byte("s3cret")}.Config()
	mustFail(t, err, "do not match: tls: failed to find any PEM data in certificate input. Both must be in PEM, "+
		"and tls.key must be the private key of the certificate")
	key := pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(appKey()))
	_, err = TLS{Cert: key, Key: key}.Config()
	mustFail(t, err, "do not match")
	_, large := largekey.Certificate(t)
	for _, config := range []TLS{{CA: large}, {Cert: key, Key: largekey.File(t)}} {
		_, err = config.Config()
		mustFail(t, err, "the Secret has a key that is too large: ", "16640 bits", "Use keys of 4096 bits or less")
	}
	if c, err := (TLS{}).Config(); err != nil || c.RootCAs != nil || len(c.Certificates) != 0 || c.InsecureSkipVerify {
		t.Errorf("without a Secret: %+v, %v", c, err)
	}
}

func TestProxyFromSecret(t *testing.T) {
	t.Parallel()
	for want, data := range map[string]map[string][]byte{
		"http://proxy:3128": {"address": []byte("http://proxy:3128")},
		"https://me:p%40ss@proxy": {"address": []byte("https://proxy/ignored?too"), "username": []byte("me"),
			"password": []byte("p@ss")},
		"socks5://proxy:1080": {"address": []byte("socks5://proxy:1080")},
		"http://me:right@10.0.0.1:3128": {"address": []byte("http://you:wrong@10.0.0.1:3128"), "username": []byte("me"),
			"password": []byte("right")},
	} {
		got, err := ProxyFrom(data)
		if err != nil || got.String() != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	for _, address := range []string{"", "proxy:3128", "http://", "ftp://s3cret", "http://s3cret\x00"} {
		_, err := ProxyFrom(map[string][]byte{"address": []byte(address)})
		mustFail(t, err, "address' of the proxy Secret is not the URL of a proxy. Use the form http://HOST:PORT; "+
			"the schemes https and socks5 are supported as well")
	}
	_, err := ProxyFrom(map[string][]byte{"address": []byte("http://proxy"), "username": []byte("s3cret")})
	mustFail(t, err, "only one of the keys username and password")
}

// loginTo returns the login of a keychain to a repository, as user:password or the token.
func loginTo(t *testing.T, k authn.Keychain, repository string) string {
	t.Helper()
	repo, err := name.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	a, err := k.Resolve(repo)
	c := login(t, a, err)
	if c == (authn.AuthConfig{}) {
		return ""
	}
	if c.IdentityToken+c.RegistryToken != "" {
		return c.IdentityToken + c.RegistryToken
	}
	return c.Username + ":" + c.Password
}

func TestRegistryLoginsFromDockerConfig(t *testing.T) {
	t.Parallel()
	k, err := RegistryFrom(map[string][]byte{".dockerconfigjson": []byte(`{"auths": {
		"ghcr.io": {"auth": "Z2l0aHViOmh1Yg=="},
		"ghcr.io/team": {"username": "team", "password": "a:b"},
		"https://ghcr.io/team/app/": {"username": "app", "password": "x"},
		"https://index.docker.io/v1/": {"username": "docker", "password": "x"},
		"registry.example.com:5000": {"identitytoken": "refresh"},
		"https://other.example.com/v2/": {"registrytoken": "bearer"},
		"*.example.org": {"username": "any", "password": "x"},
		"one.example.org": {"username": "one", "password": "x"},
		"helper.example.com": {}
	}, "credsStore": "desktop"}`)}, "ignored.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]string{
		"ghcr.io/someone/x":                   "github:hub",
		"ghcr.io/teams":                       "github:hub",
		"ghcr.io/team":                        "team:a:b",
		"ghcr.io/team/x":                      "team:a:b",
		"ghcr.io/team/app":                    "app:x",
		"ghcr.io/team/app/charts":             "app:x",
		"ghcr.io/team/app2":                   "team:a:b",
		"busybox":                             "docker:x",
		"docker.io/library/busybox":           "docker:x",
		"registry.example.com:5000/x":         "refresh",
		"registry.example.com/x":              "",
		"other.example.com/x":                 "bearer",
		"two.example.org/x":                   "any:x",
		"one.example.org/x":                   "one:x",
		"a.b.example.org/x":                   "",
		"example.org/x":                       "",
		"ghcr.io.evil.com/team/app":           "",
		"helper.example.com/x":                "",
		"ignored.example.com/x":               "",
		"evil.com/ghcr.io/team/app":           "",
		"registry.example.com:5001/ghcr.io/x": "",
	} {
		if got := loginTo(t, k, repository); got != want {
			t.Errorf("%s: %q, want %q", repository, got, want)
		}
	}
}

func TestRegistryLoginsFromUsernameAndPassword(t *testing.T) {
	t.Parallel()
	k, err := RegistryFrom(map[string][]byte{"username": []byte("me"), "password": []byte("x")},
		"Registry.example.com:5000")
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]string{"registry.example.com:5000/x": "me:x", "registry.example.com/x": "",
		"other.example.com:5000/x": "", "busybox": ""} {
		if got := loginTo(t, k, repository); got != want {
			t.Errorf("%s: %q, want %q", repository, got, want)
		}
	}
	k, err = RegistryFrom(map[string][]byte{".dockercfg": []byte(
		`{"ghcr.io": {"username": "old", "password": "x"}}`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := loginTo(t, k, "ghcr.io/x"); got != "old:x" {
		t.Errorf(".dockercfg: %q", got)
	}
	if k, err = RegistryFrom(nil, "ghcr.io"); err != nil || loginTo(t, k, "ghcr.io/x") != "" {
		t.Errorf("no data: %v", err)
	}
	_, err = RegistryFrom(map[string][]byte{"password": []byte("s3cret")}, "ghcr.io")
	mustFail(t, err, "only one of the keys username and password. Set both keys")
}

func TestInvalidDockerConfigs(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"s3cret", `{"auths": {"ghcr.io": "s3cret"}}`,
		`{"auths": {"ghcr.io": {"auth": "s3cret!"}}}`, `{"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}`,
		`{"auths": {"": {"auth": "YTpi"}}}`, `{"auths": {"https://s3cret\u0000": {"auth": "YTpi"}}}`} {
		_, err := RegistryFrom(map[string][]byte{".dockerconfigjson": []byte(config)}, "")
		mustFail(t, err, "docker config", "Create it with: kubectl create secret docker-registry NAME "+
			"--docker-server=HOST --docker-username=USER --docker-password=PASSWORD")
	}
}

func FuzzDockerConfig(f *testing.F) {
	f.Add([]byte(`{"auths":{"ghcr.io/team":{"auth":"dTpw"},`+
		`"*.example.com":{"username":"u","password":"p"},"https://index.docker.io/v1/":{"identitytoken":"t"}}}`),
		"ghcr.io/team/app")
	f.Add([]byte(`{"auths":{"[":{"auth":"dTpw"},"a:b:c":{"auth":"dTpw"},"%zz":{}}}`), "localhost:5000/x")
	f.Add([]byte(`{"auths":{"\\":{"username":"u"},"a*?[":{"username":"u"}}}`), "busybox")
	f.Fuzz(func(t *testing.T, config []byte, repository string) {
		k, err := RegistryFrom(map[string][]byte{".dockerconfigjson": config}, "")
		if err != nil {
			return
		}
		repo, err := name.NewRepository(repository)
		if err != nil {
			return
		}
		a, err := k.Resolve(repo)
		if err != nil {
			t.Fatal(err)
		}
		if a != authn.Anonymous && !strings.Contains(string(config), "auths") {
			t.Error("a config without auths has a login")
		}
	})
}

func FuzzGitHubApp(f *testing.F) {
	f.Add("12", "34", "team", "https://github.example.com/api/v3")
	f.Add("-1", "", "a/../b", "http://[::1")
	f.Fuzz(func(t *testing.T, id, installation, owner, api string) {
		a, err := GitHubAppFrom(appSecret("githubAppID", id, "githubAppInstallationID", installation,
			"githubAppInstallationOwner", owner, "githubAppBaseURL", api))
		if err == nil && strings.ContainsAny(a.id+a.installation+a.owner, "/?#%\\ \n") {
			t.Errorf("%q, %q and %q are not safe in a path", a.id, a.installation, a.owner)
		}
	})
}

func FuzzGitURL(f *testing.F) {
	for _, raw := range []string{"https://me:pw@host/x", "ssh://git@host:22/x", "git@host:x", "http://[",
		"https://host/%zz"} {
		f.Add(raw, "me", "pw")
	}
	f.Fuzz(func(t *testing.T, raw, username, password string) {
		c, err := Git(raw, map[string][]byte{"username": []byte(username), "password": []byte(password)})
		if err == nil && c.Username != username && !strings.HasPrefix(strings.ToLower(raw), "ssh:") {
			t.Errorf("the user is %q", c.Username)
		}
		for _, host := range []string{hostOf(raw), hostOf("oci://" + raw)} {
			if ecrHost.MatchString(host) && !strings.Contains(strings.ToLower(raw), host) {
				t.Errorf("the host of %q is %q", raw, host)
			}
		}
	})
}
