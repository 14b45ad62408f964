package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/sshkey"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestCreateExport prints an object of every kind, with all that its flags can say.
func TestCreateExport(t *testing.T) {
	verify := " --verify-provider cosign --verify-secret-ref keys --verify-issuer ^https://example.com$ " +
		"--verify-subject ^ci$"
	for file, line := range map[string]string{
		"git": "source git app --url https://example.com/app --branch main --label " +
			"team=a,tier=web --interval 5m",
		"git-options": "source git app --url https://example.com/app --tag-semver 1.x --provider azure " +
			"--service-account puller --secret-ref login --proxy-secret-ref proxy --recurse-submodules " +
			"--ignore-paths *.md,docs/ --sparse-checkout-paths deploy,lib",
		"git-login": "source git app --url https://example.com/app --commit " +
			"363a6a8fe6a7f13e05d34c163b0ef02a777da20a --username me --password secret",
		"oci": "source oci app --url oci://registry.example.com/app",
		"oci-options": "source oci app --url oci://registry.example.com/app --tag-semver 1.x " +
			"--provider aws --secret-ref login --service-account puller --cert-ref certs --proxy-secret-ref proxy " +
			"--insecure --ignore-paths *.md --layer-selector application/vnd.cncf.helm.chart.content.v1.tar+gzip:copy" + verify,
		"helm": "source helm charts --url https://charts.example.com --pass-credentials " +
			"--username me --password secret",
		"helm-oci": "source helm charts --url oci://registry.example.com/charts --oci-provider gcp " +
			"--username me --password secret",
		"chart": "source chart app --source HelmRepository/charts --chart app --chart-version " +
			"1.x --reconcile-strategy Revision" + verify,
		"bucket": "source bucket app --bucket-name deploy --endpoint s3.example.com --region eu " +
			"--prefix app/ --access-key AKIA --secret-key secret --insecure --ignore-paths *.md",
		"alert": "alert ops --provider-ref slack --event-source Kustomization/* --event-source " +
			"gitrepo/app.apps --event-severity error --event-metadata summary=production",
		"provider": "alert-provider slack --type slack --channel ops --address " +
			"https://slack.com/api/chat.postMessage --username sluice --secret-ref slack",
		"receiver": "receiver app --type github --event ping,push --secret-ref token --resource " +
			"GitRepository/app --resource OCIRepository/*.apps",
		"gate":             "gate release",
		"image-repository": "image repository app --image ghcr.io/org/app",
		"image-repository-options": "images repository app --image registry.example.com:5000/org/app --secret-ref " +
			"login --cert-ref certs --proxy-secret-ref proxy --service-account puller --provider aws --scan-timeout " +
			"30s --exclusion-list ^dev-,.sig$ --insecure --interval 10m",
		"image-policy": "image policy app --image-ref app --select-semver >=1.0.0",
		"image-policy-options": "image policy app --image-ref app --select-numeric asc --filter-regex " +
			"^main-(?P<ts>[0-9]+)$ --filter-extract $ts --reflect-digest Always --interval 10m",
		"image-policy-cel": "image policy app --image-ref app --select-cel created --filter-cel tag!='latest'",
		"image-update":     "image update app --git-repo-ref app --author-email sluice@example.com",
		"image-update-options": "image update app --git-repo-ref app --git-repo-namespace sources --git-repo-path " +
			"./deploy --checkout-branch main --push-branch images --commit-template Update " +
			"--author-name Sluice --author-email sluice@example.com --signing-key-secret signer --signing-key-type " +
			"ssh --interval 30m --pull-request gitea --pull-request-secret gitea",
		"kustomization": "kustomization app --source app",
		"kustomization-options": "kustomization app --source OCIRepository/app.sources --path ./deploy --prune " +
			"--wait --interval 10m --retry-interval 30s --label team=a --target-namespace apps " +
			"--health-check Deployment/app.apps,HelmRelease/db.1.apps --health-check-timeout 3m --depends-on " +
			"base,infra/crds --service-account deployer " +
			"--kubeconfig-secret-ref other --decryption-provider sops --decryption-secret keys",
	} {
		t.Run(file, func(t *testing.T) {
			r := run(t, append(strings.Fields("create "+line), "--export")...).wants(t, exitOK)
			golden(t, "create-"+file+".yaml", r.out)
			if r.err != "" {
				t.Errorf("beside the manifests it says:\n%s", r.err)
			}
		})
	}
}

// certificate makes a certificate of its own authority, and returns the files with it and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "cert.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		file(t, "cert.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

// rsaKey makes a key as GitHub does for its apps, and returns the file with it.
func rsaKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "app.pem", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})))
}

const trustPolicy = `{"version":"1.0","trustPolicies":[{"name":"all","registryScopes":["*"],"signatureVerification":{"level":"strict"},` +
	`"trustStores":["ca:root"],"trustedIdentities":["*"]}]}`

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secret returns the Secret that a command line prints.
func secret(t *testing.T, in string, args ...string) *corev1.Secret {
	t.Helper()
	r := runWith(t.Context(), in, append([]string{"create", "secret"}, append(args, "--export")...)...).wants(t, exitOK)
	s := &corev1.Secret{}
	if err := yaml.UnmarshalStrict([]byte(r.out), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCreateSecretExport(t *testing.T) {
	cert, key := certificate(t)
	policy := file(t, "policy.json", trustPolicy)
	app := rsaKey(t)
	for name, c := range map[string]struct {
		line string
		in   string // standard input
		kind corev1.SecretType
		want map[string]string // of which values that are file names stand for what is in the file
	}{
		"git over HTTPS": {"git login --url https://example.com/app --username me --password - --ca-crt-file " + cert,
			"pass word\r\n",
			corev1.SecretTypeOpaque, map[string]string{"username": "me", "password": "pass word", "ca.crt": cert}},
		"git by token": {"git login --url https://example.com/app --bearer-token -", "token",
			corev1.SecretTypeOpaque, map[string]string{"bearerToken": "token"}},
		"a registry": {"oci login --url oci://registry.example.com:5000/org/app --username me --password secret", "",
			corev1.SecretTypeDockerConfigJson, map[string]string{
				".dockerconfigjson": `{"auths":{"registry.example.com:5000":{"auth":"bWU6c2VjcmV0","password":"secret","username":"me"}}}`}},
		"Docker Hub": {"oci login --url docker.io --username me --password secret", "",
			corev1.SecretTypeDockerConfigJson, map[string]string{
				".dockerconfigjson": `{"auths":{"https://index.docker.io/v1/":{"auth":"bWU6c2VjcmV0","password":"secret","username":"me"}}}`}},
		"a Helm repository": {"helm login --username me --password secret --tls-crt-file " + cert + " --tls-key-file " +
			key, "",
			corev1.SecretTypeOpaque, map[string]string{"username": "me", "password": "secret", "tls.crt": cert,
				"tls.key": key}},
		"certificates": {"tls certs --ca-crt-file " + cert + " --tls-crt-file " + cert + " --tls-key-file " + key, "",
			corev1.SecretTypeOpaque, map[string]string{"ca.crt": cert, "tls.crt": cert, "tls.key": key}},
		"a proxy": {"proxy out --address http://proxy.example.com:3128 --username me --password secret", "",
			corev1.SecretTypeOpaque, map[string]string{"address": "http://proxy.example.com:3128", "username": "me",
				"password": "secret"}},
		"a GitHub App": {"githubapp app --app-id 1 --app-installation-id 2 --app-private-key " + app, "",
			corev1.SecretTypeOpaque, map[string]string{"githubAppID": "1", "githubAppInstallationID": "2",
				"githubAppPrivateKey": app}},
		"a GitHub App by owner": {"github-app app --app-id 1 --app-installation-owner org --app-private-key " + app +
			" --app-base-url https://github.example.com/api/v3", "",
			corev1.SecretTypeOpaque, map[string]string{"githubAppID": "1", "githubAppInstallationOwner": "org",
				"githubAppPrivateKey": app, "githubAppBaseURL": "https://github.example.com/api/v3"}},
		"a Receiver": {"receiver hook --type github --token - --hostname hooks.example.com", "secret\n",
			corev1.SecretTypeOpaque, map[string]string{"token": "secret"}},
		"a Receiver of Pub/Sub": {"receiver hook --type gcr --token secret --email-claim push@example.com " +
			"--audience-claim https://hooks.example.com", "",
			corev1.SecretTypeOpaque, map[string]string{"token": "secret", "email": "push@example.com",
				"audience": "https://hooks.example.com"}},
		"Notation": {"notation policy --trust-policy-file " + policy + " --ca-cert-file " + cert, "",
			corev1.SecretTypeOpaque, map[string]string{"trustpolicy.json": policy, "cert.crt": cert}},
	} {
		t.Run(name, func(t *testing.T) {
			s := secret(t, c.in, strings.Fields(c.line)...)
			if s.Type != c.kind {
				t.Errorf("type is %s, want %s", s.Type, c.kind)
			}
			for key, value := range s.StringData {
				want := c.want[key]
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
				t.Errorf("it has %d keys, want %d", len(s.StringData), len(c.want))
			}
		})
	}
}

// sshServer runs a git server over SSH that knows one client's key, and returns it with the file of that key.
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

// TestCreateSecretOverSSH makes keys, asks a real host for its own, and checks that the controllers can read
// the result.
func TestCreateSecretOverSSH(t *testing.T) {
	git, identity := sshServer(t)
	for name, c := range map[string]struct{ flags, kind string }{
		"by default":  {"", "ecdsa-sha2-nistp384"},
		"ecdsa p521":  {"--ssh-ecdsa-curve p521", "ecdsa-sha2-nistp521"},
		"ed25519":     {"--ssh-key-algorithm ed25519", "ssh-ed25519"},
		"rsa":         {"--ssh-key-algorithm rsa --ssh-rsa-bits 2048", "ssh-rsa"},
		"from a file": {"--private-key-file " + identity, "ssh-ed25519"},
		"a known host": {"--known-hosts-file " + file(t, "known_hosts",
			"example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDEKpqtnZ1Q4vPB5OLcZ1v2mDzvxeB0pGEUOAZ1FSHdz"),
			"ecdsa-sha2-nistp384"},
	} {
		t.Run(name, func(t *testing.T) {
			s := secret(t, "", strings.Fields("git login --url "+git.SSHURL+"/app "+c.flags)...)
			if kind, _, _ := strings.Cut(s.StringData["identity.pub"], " "); kind != c.kind {
				t.Errorf("the key is of type %s, want %s", kind, c.kind)
			}
			data := map[string][]byte{}
			for key, value := range s.StringData {
				data[key] = []byte(value)
			}
			if _, err := auth.Git(git.SSHURL+"/app", data); err != nil {
				t.Errorf("the controllers cannot read it: %v", err)
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
		wants(t, exitOK, "which are trusted from now on", "ssh-ed25519 SHA256:")
	if strings.Contains(r.err, "PRIVATE KEY") {
		t.Error("the private key stands in what is said beside the manifest")
	}
}

// TestCreateRefuses checks that what cannot work is refused before anything is stored, in words that help.
func TestCreateRefuses(t *testing.T) {
	cert, key := certificate(t)
	_, other := certificate(t)
	for name, c := range map[string]struct {
		line string
		code int
		says string
	}{
		"no name": {"source git --url https://example.com/app", exitUsage,
			"name one object, got 0"},
		"a name that is none": {"source git App --url https://example.com/app", exitUsage,
			`"App" cannot be a name`},
		"no URL": {"source git app", exitUsage, "--url is missing"},
		"a URL of git's own form": {"source git app --url git@example.com:org/app", exitUsage,
			"ssh://git@HOST/PATH"},
		"a password in the URL": {"source git app --url https://me:secret@example.com/app", exitUsage,
			"--username and --password"},
		"a git provider that is none": {"source git app --url https://example.com/app --provider gcp", exitUsage,
			"choose from generic, aws, azure, github"},
		"a name without a password": {"source git app --url https://example.com/app --username me", exitUsage,
			"go together"},
		"a name over SSH": {"source git app --url ssh://git@example.com/app --username me --export",
			exitUsage, "the login is a key"},
		"a passphrase of no key": {"source git app --url ssh://git@example.com/app --password x --export",
			exitUsage, "--private-key-file, which is missing"},
		"a key over HTTPS": {
			"secret git login --url https://example.com/app --username me --password x --private-key-file k", exitUsage,
			"begin with ssh://"},
		"a token and a password": {
			"secret git login --url https://example.com/app --username me --password x --bearer-token y", exitUsage,
			"instead of"},
		"nothing for a git server": {"secret git login --url https://example.com/app", exitUsage,
			"nothing to put in"},
		"a key algorithm that is none": {
			"secret git login --url ssh://git@127.0.0.1:1/app --ssh-key-algorithm dsa", exitUsage,
			"choose from ecdsa, ed25519, rsa"},
		"a host that is not there": {"secret git login --url ssh://git@127.0.0.1:1/app", exitFailed,
			"--known-hosts-file"},
		"a key that is none": {"secret git login --url ssh://git@127.0.0.1:1/app --private-key-file " +
			cert, exitFailed, "cannot be read"},
		"a file that is not there": {
			"secret git login --url ssh://git@127.0.0.1:1/app --private-key-file /none", exitFailed,
			"--private-key-file: open /none"},
		"no password on standard input": {"secret proxy out --address http://proxy --username me --password -",
			exitFailed, "standard input holds no value"},
		"a registry by HTTPS URL": {"source oci app --url https://example.com/app", exitUsage,
			"oci://HOST/PATH"},
		"an OCI provider that is none": {"source oci app --url oci://example.com/app --provider github",
			exitUsage, "choose from generic, aws, azure, gcp"},
		"a layer operation that is none": {"source oci app --url oci://example.com/app --layer-selector a/b:burn",
			exitUsage, "choose from extract, copy"},
		"a signer without verification": {"source oci app --url oci://example.com/app --verify-secret-ref keys",
			exitUsage, "--verify-provider is missing"},
		"half a signer": {
			"source oci app --url oci://example.com/app --verify-provider cosign --verify-issuer x", exitUsage,
			"go together"},
		"a verification that is none": {"source oci app --url oci://example.com/app --verify-provider pgp",
			exitUsage, "choose from cosign, notation"},
		"a chart repository over SSH": {"source helm charts --url ssh://example.com", exitUsage,
			"choose from http, https, oci"},
		"an OCI provider over HTTPS": {"source helm charts --url https://example.com --oci-provider aws",
			exitUsage, "begin with oci://"},
		"a chart without a source": {"source chart app --chart app", exitUsage, "KIND/NAME"},
		"a chart of a kind that has none": {"source chart app --chart app --source OCIRepository/app", exitUsage,
			"choose from HelmRepository"},
		"a strategy that is none": {
			"source chart app --chart app --source Bucket/app --reconcile-strategy Never", exitUsage,
			"choose from ChartVersion, Revision"},
		"neither bucket nor endpoint": {"source bucket app", exitUsage, "--endpoint is missing"},
		"half a login to a bucket": {"source bucket app --bucket-name a --endpoint b --access-key c",
			exitUsage, "go together"},
		"a bucket provider that is none": {"source bucket app --bucket-name a --endpoint b --provider tape",
			exitUsage, "choose from generic, aws, gcp, azure"},
		"a registry without a host": {"secret oci login --url oci:///app --username me --password x",
			exitUsage, "address of a registry"},
		"nothing for a Helm repository": {"secret helm login", exitUsage, "nothing to put in"},
		"no certificates":               {"secret tls certs", exitUsage, "nothing to put in"},
		"a certificate without its key": {"secret tls certs --tls-crt-file " + cert, exitUsage, "go together"},
		"a certificate with another's key": {"secret tls certs --tls-crt-file " + cert + " --tls-key-file " + other,
			exitFailed, "are no pair"},
		"an authority that is a key": {"secret tls certs --ca-crt-file " + key, exitFailed,
			"holds no certificate"},
		"a proxy without a scheme": {"secret proxy out --address proxy:3128", exitFailed, "http://HOST:PORT"},
		"a login in the proxy's address": {"secret proxy out --address http://me:x@proxy:3128", exitUsage,
			"--username and --password"},
		"an app by words": {"secret githubapp app --app-id one --app-installation-id 2 " +
			"--app-private-key " + key, exitFailed, "no number in the key githubAppID"},
		"an app of no installation": {"secret githubapp app --app-id 1 --app-private-key " + key, exitFailed,
			"githubAppInstallationOwner"},
		"an app with another kind of key": {
			"secret githubapp app --app-id 1 --app-installation-id 2 --app-private-key " + key, exitFailed,
			"no RSA key in PEM"},
		"a policy that is not JSON": {"secret notation p --trust-policy-file " + cert + " --ca-cert-file " +
			cert, exitFailed, "cannot be read"},
		"a root by a name that is not read": {"secret notation p --trust-policy-file " + file(t, "p", "{}") +
			" --ca-cert-file " + key, exitUsage, ".crt or .pem"},
		"two roots of one name": {"secret notation p --trust-policy-file " + file(t, "p", "{}") +
			" --ca-cert-file " + cert + "," + cert, exitUsage, "two files are named"},
		"a label that is none": {"source git app --url https://example.com/app --label team", exitUsage,
			"--label"},
		"a kind that controllers alone make": {"source external app", exitUsage, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, append([]string{"create"}, strings.Fields(c.line)...)...).wants(t, c.code, c.says)
			if strings.Contains(r.err, "secret@") || strings.Contains(r.err, "me:x") {
				t.Errorf("the password stands in the error: %s", r.err)
			}
			if r.out != "" {
				t.Errorf("it prints %q", r.out)
			}
		})
	}
}
