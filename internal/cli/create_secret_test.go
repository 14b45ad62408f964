package cli

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// rsaKey creates a key in the format of GitHub Apps, and returns its file.
func rsaKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "app.pem", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})))
}

const trustPolicy = `{"version":"1.0","trustPolicies":[{"name":"all","registryScopes":["*"],` +
	`"signatureVerification":{"level":"strict"},"trustStores":["ca:root"],"trustedIdentities":["*"]}]}`

// secret returns the Secret that a command prints.
func secret(t *testing.T, in string, args ...string) *corev1.Secret {
	t.Helper()
	r := runWith(t.Context(), in, append([]string{"create", "secret"}, append(args, "--export")...)...).wants(t, exitOK)
	s := &corev1.Secret{}
	if err := yaml.UnmarshalStrict([]byte(r.out), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// pullSecret returns the data of a pull secret for user me with password secret.
func pullSecret(registry string) string {
	return `{"auths":{"` + registry + `":{"auth":"bWU6c2VjcmV0","password":"secret","username":"me"}}}`
}

// secretLines are arguments of create secret. Names in braces stand for files.
var secretLines = map[string]struct {
	line string
	in   string // standard input
	kind corev1.SecretType
	want map[string]string // names in braces stand for the content of the file
}{
	"git over HTTPS": {
		line: "git login --url https://example.com/app --username me --password - --ca-crt-file {cert}",
		in:   "pass word\r\n",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"username": "me", "password": "pass word", "ca.crt": "{cert}"},
	},
	"git with token": {
		line: "git login --url https://example.com/app --bearer-token -",
		in:   "token",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"bearerToken": "token"},
	},
	"registry": {
		line: "oci login --url oci://registry.example.com:5000/org/app --username me --password secret",
		kind: corev1.SecretTypeDockerConfigJson,
		want: map[string]string{
			".dockerconfigjson": pullSecret("registry.example.com:5000")},
	},
	"Docker Hub": {
		line: "oci login --url docker.io --username me --password secret",
		kind: corev1.SecretTypeDockerConfigJson,
		want: map[string]string{
			".dockerconfigjson": pullSecret("https://index.docker.io/v1/")},
	},
	"Helm repository": {
		line: "helm login --username me --password secret --tls-crt-file {cert} --tls-key-file {key}",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"username": "me", "password": "secret", "tls.crt": "{cert}",
			"tls.key": "{key}"},
	},
	"certificates": {
		line: "tls certs --ca-crt-file {cert} --tls-crt-file {cert} --tls-key-file {key}",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"ca.crt": "{cert}", "tls.crt": "{cert}", "tls.key": "{key}"},
	},
	"proxy": {
		line: "proxy out --address http://proxy.example.com:3128 --username me --password secret",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"address": "http://proxy.example.com:3128", "username": "me",
			"password": "secret"},
	},
	"GitHub App": {
		line: "githubapp app --app-id 1 --app-installation-id 2 --app-private-key {app}",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"githubAppID": "1", "githubAppInstallationID": "2",
			"githubAppPrivateKey": "{app}"},
	},
	"GitHub App by owner": {
		line: "github-app app --app-id 1 --app-installation-owner org --app-private-key {app} --app-base-url " +
			"https://github.example.com/api/v3",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"githubAppID": "1", "githubAppInstallationOwner": "org",
			"githubAppPrivateKey": "{app}", "githubAppBaseURL": "https://github.example.com/api/v3"},
	},
	"Receiver": {
		line: "receiver hook --type github --token - --hostname hooks.example.com",
		in:   "secret\n",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"token": "secret"},
	},
	"Receiver for Pub/Sub": {
		line: "receiver hook --type gcr --token secret --email-claim push@example.com " +
			"--audience-claim https://hooks.example.com",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"token": "secret", "email": "push@example.com",
			"audience": "https://hooks.example.com"},
	},
	"Notation": {
		line: "notation policy --trust-policy-file {policy} --ca-cert-file {cert}",
		kind: corev1.SecretTypeOpaque,
		want: map[string]string{"trustpolicy.json": "{policy}", "cert.crt": "{cert}"},
	},
}

func TestCreateSecretExport(t *testing.T) {
	cert, key := certificate(t)
	files := strings.NewReplacer("{cert}", cert, "{key}", key, "{policy}", file(t, "policy.json", trustPolicy),
		"{app}", rsaKey(t))
	for name, c := range secretLines {
		t.Run(name, func(t *testing.T) {
			s := secret(t, c.in, strings.Fields(files.Replace(c.line))...)
			if s.Type != c.kind {
				t.Errorf("type is %s, want %s", s.Type, c.kind)
			}
			for key, value := range s.StringData {
				want := files.Replace(c.want[key])
				if filepath.IsAbs(want) {
					b, err := os.ReadFile(want)
					if err != nil {
						t.Fatal(err)
					}
					want = string(b)
				}
				if value != want {
					t.Errorf("%s is %q, want %q", key, value, want)
				}
			}
			if len(s.StringData) != len(c.want) {
				t.Errorf("the Secret has %d keys, want %d", len(s.StringData), len(c.want))
			}
		})
	}
}

// sshServer runs a git server with SSH that accepts one key, and returns it with the file of that key.
func sshServer(t *testing.T) (*testenv.Git, string) {
	t.Helper()
	private, err := sshkey.Generate(sshkey.Spec{Algorithm: "ed25519"})
	if err != nil {
		t.Fatal(err)
	}
	public, err := sshkey.Public(private, "")
	if err != nil {
		t.Fatal(err)
	}
	git := testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(t.TempDir(), "host"),
		"--ssh-authorized-keys", file(t, "authorized", string(public)))
	return git, file(t, "identity", string(private))
}

// TestCreateSecretForSSH creates keys, gets the host keys of a real server, and checks that the controllers can
// read the Secret.
func TestCreateSecretForSSH(t *testing.T) {
	git, identity := sshServer(t)
	for name, c := range map[string]struct{ flags, kind string }{
		"default":      {kind: "ecdsa-sha2-nistp384"},
		"ecdsa p521":   {flags: "--ssh-ecdsa-curve p521", kind: "ecdsa-sha2-nistp521"},
		"ed25519":      {flags: "--ssh-key-algorithm ed25519", kind: "ssh-ed25519"},
		"rsa":          {flags: "--ssh-key-algorithm rsa --ssh-rsa-bits 2048", kind: "ssh-rsa"},
		"existing key": {flags: "--private-key-file " + identity, kind: "ssh-ed25519"},
		"given known hosts": {
			flags: "--known-hosts-file " + file(t, "known_hosts",
				"example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDEKpqtnZ1Q4vPB5OLcZ1v2mDzvxeB0pGEUOAZ1FSHdz"),
			kind: "ecdsa-sha2-nistp384",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := secret(t, "", strings.Fields("git login --url "+git.SSHURL+"/app "+c.flags)...)
			if kind, _, _ := strings.Cut(s.StringData["identity.pub"], " "); kind != c.kind {
				t.Errorf("the key has type %s, want %s", kind, c.kind)
			}
			data := map[string][]byte{}
			for key, value := range s.StringData {
				data[key] = []byte(value)
			}
			if _, err := auth.Git(git.SSHURL+"/app", data); err != nil {
				t.Errorf("the controllers cannot read the Secret: %v", err)
			}
			want := "[127.0.0.1]:"
			if strings.Contains(c.flags, "known-hosts") {
				want = "example.com "
			}
			if !strings.HasPrefix(s.StringData["known_hosts"], want) {
				t.Errorf("known_hosts is %q, want it to begin with %q", s.StringData["known_hosts"], want)
			}
		})
	}
	r := run(t, "create", "secret", "git", "login", "--url", git.SSHURL+"/app", "--export").
		wants(t, exitOK, "which will be trusted", "ssh-ed25519 SHA256:")
	if strings.Contains(r.err, "PRIVATE KEY") {
		t.Error("the private key is printed to standard error")
	}
}
