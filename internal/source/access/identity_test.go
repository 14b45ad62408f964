package access

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	authoritiesHint = "Remove ca.crt, and let the controller trust the authority by the environment variable " +
		"SSL_CERT_DIR; or use the identity of a ServiceAccount"
	managedIdentityHint = "Remove spec.secretRef, and set the annotations azure.workload.identity/client-id and " +
		"azure.workload.identity/tenant-id of the ServiceAccount; or set tenantId and clientSecret in the Secret, too"
)

// identityLogins are logins with a workload identity, over TLS that trusts the authority of the Secret 'tls'. An empty
// account is the identity of the controller.
var identityLogins = map[string]func(ctx context.Context, c Connector, account string) error{
	"OCIRepository on GCP":         registryLogin("gcp", "oci://europe-docker.pkg.dev/acme/app"),
	"ImageRepository on AWS":       registryLogin("aws", "oci://123456789012.dkr.ecr.eu-west-1.amazonaws.com/app"),
	"HelmRepository on Azure":      registryLogin("azure", "oci://acme.azurecr.io/app"),
	"GitRepository on AWS":         gitLogin("aws", "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app"),
	"GitRepository on Azure":       gitLogin("azure", "https://dev.azure.com/acme/app/_git/app"),
	"Bucket on GCP":                bucketLogin(googleSpec),
	"Bucket on Azure":              bucketLogin(azureSpec),
	"Bucket with the STS of AWS":   bucketLogin(stsSpec("https://sts.eu-west-1.amazonaws.com")),
	"Bucket with managed identity": managedIdentityLogin,
}

var (
	azureSpec  = sourcev1.BucketSpec{Provider: "azure", Endpoint: "https://acme.blob.core.windows.net"}
	googleSpec = sourcev1.BucketSpec{Provider: "gcp", Endpoint: "storage.googleapis.com"}
)

func registryLogin(provider, url string) func(context.Context, Connector, string) error {
	return func(ctx context.Context, c Connector, account string) error {
		_, _, err := (&Registries{Connector: c}).Access(ctx, Registry{Namespace: "apps", URL: url, Provider: provider,
			Cert: &meta.LocalObjectReference{Name: "tls"}, ServiceAccount: account})
		return err
	}
}

func gitLogin(provider, url string) func(context.Context, Connector, string) error {
	return func(ctx context.Context, c Connector, account string) error {
		_, err := (&Git{Connector: c}).Remote(ctx, &sourcev1.GitRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps"}, Spec: sourcev1.GitRepositorySpec{URL: url,
				Provider: provider, SecretRef: &meta.LocalObjectReference{Name: "tls"}, ServiceAccountName: account}})
		return err
	}
}

func bucketLogin(spec sourcev1.BucketSpec) func(context.Context, Connector, string) error {
	return func(ctx context.Context, c Connector, account string) error {
		spec.BucketName, spec.ServiceAccountName = "apps", account
		spec.CertSecretRef = &meta.LocalObjectReference{Name: "tls"}
		if spec.Endpoint == "" {
			spec.Endpoint = "s3.eu-west-1.amazonaws.com"
		}
		if spec.STS != nil {
			spec.STS.CertSecretRef, spec.CertSecretRef = spec.CertSecretRef, nil
		}
		buckets := &Buckets{Connector: c, Metadata: http.DefaultTransport}
		at, err := buckets.Resolve(ctx, &sourcev1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "apps"}, Spec: spec})
		if err == nil {
			_, err = buckets.Remote(ctx, at)
		}
		return err
	}
}

func managedIdentityLogin(ctx context.Context, c Connector, account string) error {
	if account != "" {
		return nil // the machine's identity only
	}
	spec := azureSpec
	spec.SecretRef = &meta.LocalObjectReference{Name: "machine"}
	return bucketLogin(spec)(ctx, c, "")
}

// TestControllerIdentityTrustsNoAuthorityOfAnObject has Secrets with an authority. Whoever has its key, and the proxy
// of spec.proxySecretRef, could read the token.
func TestControllerIdentityTrustsNoAuthorityOfAnObject(t *testing.T) {
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/controller")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent")
	host := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(host.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: host.Certificate().Raw})
	c := Connector{Egress: &egress.Policy{}, Identities: &auth.Identities{Accounts: accounts{}},
		Secrets: Secrets{Reader: objects{
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"}, Data: map[string][]byte{"ca.crt": ca}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "machine"}, Data: machine}}}}
	for name, login := range identityLogins {
		err := login(t.Context(), c, "")
		if f := fault.As(err); f == nil || f.Hint != authoritiesHint {
			t.Errorf("%s with the identity of the controller: %v", name, err)
		}
		if f := fault.As(login(t.Context(), c, "plain")); f != nil && f.Hint == authoritiesHint {
			t.Errorf("%s with the identity of a service account: %v", name, f)
		}
	}
}

// TestManagedIdentityIsRefusedWithDefaultAccount has a Secret with the client ID of the machine's managed identity.
func TestManagedIdentityIsRefusedWithDefaultAccount(t *testing.T) {
	for account, want := range map[string]string{"": "", "tenant": managedIdentityHint} {
		buckets := &Buckets{Metadata: http.DefaultTransport, Connector: Connector{Egress: &egress.Policy{},
			Identities: &auth.Identities{Accounts: accounts{}, DefaultAccount: account},
			Secrets: Secrets{Reader: objects{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "machine"},
				Data: machine}}}}}
		spec := azureSpec
		spec.BucketName, spec.SecretRef = "apps", &meta.LocalObjectReference{Name: "machine"}
		at, err := buckets.Resolve(t.Context(), &sourcev1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "apps"},
			Spec: spec})
		if err == nil {
			_, err = buckets.Remote(t.Context(), at)
		}
		if f := fault.As(err); want == "" && err != nil || want != "" && (f == nil || f.Hint != want ||
			!strings.Contains(err.Error(), "'apps/tenant'")) {
			t.Errorf("with the default account %q: %v", account, err)
		}
	}
}

// TestTokensOfIdentitiesAreSentOverTLS has registries of clouds with spec.insecure.
func TestTokensOfIdentitiesAreSentOverTLS(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"}}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", googleCredentials(t))
	registries := &Registries{Connector: Connector{Egress: &egress.Policy{}, Identities: &auth.Identities{},
		Secrets: Secrets{Reader: objects{secret}}}}
	for _, ref := range []*meta.LocalObjectReference{nil, {Name: "login"}} {
		got, _, err := registries.Access(t.Context(), Registry{Namespace: "apps", Secret: ref, Insecure: true,
			URL: "oci://europe-docker.pkg.dev/acme/app", Provider: sourcev1.ProviderGCP})
		if err != nil || got.Insecure != (ref != nil) || (got.Login.Password == "ambient") != (ref == nil) {
			t.Errorf("with Secret %v: insecure is %v, %v", ref, got.Insecure, err)
		}
	}
}

// googleCredentials returns the file of credentials whose token is 'ambient'.
func googleCredentials(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token": "ambient", "token_type": "Bearer", "expires_in": 3600,
			"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}`)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "config.json")
	for name, content := range map[string]string{token: "of the pod", config: `{"type": "external_account",
		"audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "` + server.URL + `",
		"credential_source": {"file": "` + token + `"}}`} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// TestDefaultAccountIsUsed detects the account by the error: none of the accounts exists.
func TestDefaultAccountIsUsed(t *testing.T) {
	identities := &auth.Identities{Accounts: accounts{}, DefaultAccount: "tenant"}
	object := metav1.ObjectMeta{Namespace: "apps", Name: "app"}
	connector := Connector{Egress: &egress.Policy{}, Identities: identities}
	git := &Git{Connector: connector}
	registries := &Registries{Connector: connector}
	buckets := &Buckets{Connector: connector}
	for named, want := range map[string]string{"": "apps/tenant", "own": "apps/own"} {
		_, err := git.Remote(t.Context(), &sourcev1.GitRepository{ObjectMeta: object, Spec: sourcev1.GitRepositorySpec{
			URL: "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app", Provider: sourcev1.ProviderAWS,
			ServiceAccountName: named,
		}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("GitRepository with account %q: %v", named, err)
		}
		_, _, err = registries.Access(t.Context(), Registry{
			Namespace: "apps", URL: "oci://1.dkr.ecr.eu-west-1.amazonaws.com/app", Provider: sourcev1.ProviderAWS,
			ServiceAccount: named,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("registry with account %q: %v", named, err)
		}
		b, err := buckets.Resolve(t.Context(), &sourcev1.Bucket{ObjectMeta: object,
			Spec: sourcev1.BucketSpec{Provider: sourcev1.ProviderAWS, ServiceAccountName: named}})
		if err != nil || b.account == nil || b.account.String() != want {
			t.Errorf("Bucket with account %q: got %v, %v", named, b.account, err)
		}
	}
	if _, _, err := registries.Access(t.Context(),
		Registry{Namespace: "apps", URL: "oci://registry.example/app"}); err != nil {
		t.Errorf("registry without a cloud provider: %v", err)
	}
}
