package auth

import (
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Clouds whose workload identity is known: the values of spec.provider.
const (
	AWS   = "aws"
	Azure = "azure"
	GCP   = "gcp"
)

// Accounts is what the cluster knows of service accounts.
type Accounts interface {
	// Annotations returns the annotations of a service account.
	Annotations(ctx context.Context, account types.NamespacedName) (map[string]string, error)
	// Token makes a short-lived token of the account for an audience.
	Token(ctx context.Context, account types.NamespacedName, audience string) (string, error)
}

// Identities turns workload identity into credentials: that of a service account where one is named, else that of the process.
// What it gets is kept until shortly before it expires, and is never shared between service accounts.
type Identities struct {
	Accounts  Accounts           // the identity of service accounts is refused when nil
	Transport http.RoundTripper  // for the exchange of tokens; http.DefaultTransport when nil
	Clock     clock.PassiveClock // the real one when nil
}

// Registry returns the login to the registry of a URL. The error is a fault.
func (i *Identities) Registry(_ context.Context, provider, _ string, _ *types.NamespacedName) (authn.Authenticator, error) {
	return nil, unknownProvider(provider)
}

// Git returns the login to the git repository of a URL. The error is a fault.
func (i *Identities) Git(_ context.Context, provider, _ string, _ *types.NamespacedName) (GitCredentials, error) {
	return GitCredentials{}, unknownProvider(provider)
}

// AWS returns credentials for a region. The error is a fault.
func (i *Identities) AWS(_ context.Context, _ string, _ *types.NamespacedName) (aws.CredentialsProvider, error) {
	return nil, unknownProvider(AWS)
}

// Azure returns credentials. The error is a fault.
func (i *Identities) Azure(_ context.Context, _ *types.NamespacedName) (azcore.TokenCredential, error) {
	return nil, unknownProvider(Azure)
}

// GCP returns a source of tokens for the scopes. The error is a fault.
func (i *Identities) GCP(_ context.Context, _ *types.NamespacedName, _ ...string) (oauth2.TokenSource, error) {
	return nil, unknownProvider(GCP)
}

func unknownProvider(provider string) error {
	return fault.New(meta.AuthenticationFailedReason, "there is no workload identity of provider '%s' for this", provider).
		WithHint("Correct spec.provider").Final()
}
