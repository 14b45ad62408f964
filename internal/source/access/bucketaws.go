package access

import (
	"context"
	"os"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/bucket"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// keys returns the keys to an S3-compatible bucket.
func (b *Buckets) keys(ctx context.Context, at Bucket) (*credentials.Credentials, error) {
	switch {
	case at.login != nil:
		return bucket.KeysFrom(at.login)
	case at.spec.STS != nil:
		return b.temporaryKeys(ctx, at)
	case at.spec.Provider == sourcev1.ProviderAWS:
		return bucket.KeysOf(func(ctx context.Context) (bucket.Key, error) {
			provider, err := b.Identities.AWS(ctx, at.spec.Region, at.account)
			if err != nil {
				return bucket.Key{}, err
			}
			c, err := provider.Retrieve(ctx)
			return bucket.Key{Access: c.AccessKeyID, Secret: c.SecretAccessKey, Session: c.SessionToken,
				Expires: c.Expires}, err
		}), nil
	}
	return bucket.NoKeys(), nil
}

// temporaryKeys returns keys issued by the Security Token Service that the object names.
func (b *Buckets) temporaryKeys(ctx context.Context, at Bucket) (*credentials.Credentials, error) {
	transport, err := b.transport(at, at.stsCert)
	if err != nil {
		return nil, err
	}
	sts := at.spec.STS
	if sts.Provider == sourcev1.STSProviderLDAP {
		login, err := auth.BasicFrom(at.stsLogin)
		if err != nil {
			return nil, err
		}
		return bucket.LDAPKeys(sts.Endpoint, login, transport), nil
	}
	if err := auth.CheckEndpoint(auth.AWS, sts.Endpoint, false); err != nil {
		return nil, fault.New(sourcev1.InvalidSTSConfigurationReason, "spec.sts.endpoint cannot be used").
			Because(err).Final()
	}
	if err := at.checkAuthorities(at.stsCert, "spec.sts.certSecretRef"); err != nil {
		return nil, err
	}
	role, token, err := b.webIdentity(ctx, at.account)
	if err != nil {
		return nil, err
	}
	return bucket.WebIdentityKeys(sts.Endpoint, role, token, transport), nil
}

// Where the role of a ServiceAccount on AWS is declared, and the audience of its tokens.
const (
	roleAnnotation = "eks.amazonaws.com/role-arn"
	stsAudience    = "sts.amazonaws.com"
)

// tokenSource returns a token that is valid now.
type tokenSource = func(context.Context) (string, error)

// webIdentity returns the role to assume on AWS and the tokens to assume it with: those of the service account, or
// those of the process if the account is nil.
func (b *Buckets) webIdentity(ctx context.Context, account *types.NamespacedName) (role string, token tokenSource,
	err error) {
	if account == nil {
		return processIdentity()
	}
	if b.Identities == nil || b.Identities.Accounts == nil {
		return "", nil, fault.New(sourcev1.InvalidSTSConfigurationReason,
			"workload identities of ServiceAccounts are not enabled").Final()
	}
	annotations, err := b.Identities.Accounts.Annotations(ctx, *account)
	if err != nil {
		return "", nil, fault.New(meta.AuthenticationFailedReason, "cannot read ServiceAccount '%s'", account).
			Because(err)
	}
	if role = annotations[roleAnnotation]; role == "" {
		return "", nil, fault.New(sourcev1.InvalidSTSConfigurationReason, "ServiceAccount '%s' has no annotation %s",
			account, roleAnnotation).
			WithHint("Set it to the ARN of a role that can read the bucket")
	}
	return role, func(ctx context.Context) (string, error) {
		return b.Identities.Accounts.Token(ctx, *account, stsAudience)
	}, nil
}

// processIdentity returns the role and the tokens from the environment of the process.
func processIdentity() (role string, token tokenSource, err error) {
	role, file := os.Getenv("AWS_ROLE_ARN"), os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE")
	if role == "" || file == "" {
		return "", nil, fault.New(sourcev1.InvalidSTSConfigurationReason,
			"spec.sts is set, but the controller has no workload identity").
			WithHint("Set the annotation %s on the ServiceAccount of the controller, or set spec.serviceAccountName",
				roleAnnotation)
	}
	return role, func(context.Context) (string, error) {
		b, err := os.ReadFile(file)
		return string(b), err
	}, nil
}
