package source

import (
	"cmp"
	"context"
	"net/http"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/bucket"
)

// BucketLogin makes the way to a bucket: through the proxy, with the certificates and the login that the object names.
type BucketLogin struct {
	Connector
}

// secretData is that of a Secret; nil when none is named.
type secretData = map[string][]byte

// access is everything that the way to a bucket depends on.
type access struct {
	Spec    sourcev1.BucketSpec
	Account *types.NamespacedName // whose identity is used; that of the process when nil

	Login, Cert, Proxy, STSLogin, STSCert secretData
}

// access reads the Secrets that the object names.
func (l BucketLogin) access(ctx context.Context, obj *sourcev1.Bucket) (access, error) {
	a := access{Spec: obj.Spec}
	if err := checkProvider(obj.Spec); err != nil {
		return a, err
	}
	sts := sourcev1.BucketSTS{}
	if obj.Spec.STS != nil {
		sts = *obj.Spec.STS
	}
	for _, s := range []struct {
		ref   *meta.LocalObjectReference
		field string
		into  *secretData
	}{
		{obj.Spec.SecretRef, "spec.secretRef", &a.Login},
		{obj.Spec.CertSecretRef, "spec.certSecretRef", &a.Cert},
		{obj.Spec.ProxySecretRef, "spec.proxySecretRef", &a.Proxy},
		{sts.SecretRef, "spec.sts.secretRef", &a.STSLogin},
		{sts.CertSecretRef, "spec.sts.certSecretRef", &a.STSCert},
	} {
		data, err := l.Secrets.Data(ctx, obj.Namespace, s.ref, s.field)
		if err != nil {
			return a, err
		}
		*s.into = data
	}
	a.Account = l.Identities.Account(obj.Namespace, obj.Spec.ServiceAccountName)
	return a, nil
}

// checkProvider refuses what the definition of the kind does, for objects from before it did.
func checkProvider(spec sourcev1.BucketSpec) error {
	provider := cmp.Or(spec.Provider, sourcev1.ProviderGeneric)
	if sts := spec.STS; sts != nil {
		want := map[string]string{sourcev1.ProviderGeneric: sourcev1.STSProviderLDAP,
			sourcev1.ProviderAWS: sourcev1.STSProviderAWS}[provider]
		if sts.Provider != want {
			return fault.New(sourcev1.InvalidSTSConfigurationReason,
				"the provider '%s' does not go with the STS provider '%s'", provider, sts.Provider).
				WithHint("'aws' goes with 'aws', 'generic' with 'ldap'; other providers have no STS").Final()
		}
	}
	if spec.ServiceAccountName != "" && (provider == sourcev1.ProviderGeneric || spec.SecretRef != nil) {
		return fault.New(sourcev1.InvalidProviderConfigurationReason,
			"spec.serviceAccountName goes neither with the provider 'generic' nor with spec.secretRef").
			WithHint("Remove one of them").Final()
	}
	return nil
}

// key is the same for what makes the same way.
func (a access) key() string {
	s := a.Spec // without what makes no difference to it
	s.Interval, s.Timeout, s.Ignore, s.Prefix, s.Suspend, s.AccessFrom = sourcev1.BucketSpec{}.Interval, nil, nil, "",
		false, nil
	a.Spec = s
	return fingerprint(a)
}

// remote makes the way to the bucket. Nothing is asked of it yet.
func (l BucketLogin) remote(ctx context.Context, a access) (bucket.Remote, error) {
	transport, err := l.transport(a, a.Cert)
	if err != nil {
		return nil, err
	}
	switch cmp.Or(a.Spec.Provider, sourcev1.ProviderGeneric) {
	case sourcev1.ProviderGeneric, sourcev1.ProviderAWS:
		keys, err := l.keys(ctx, a)
		if err != nil {
			return nil, err
		}
		return bucket.NewS3(bucket.S3{
			Endpoint: a.Spec.Endpoint, Bucket: a.Spec.BucketName, Region: a.Spec.Region, Insecure: a.Spec.Insecure,
			Keys: keys, Transport: transport,
		})
	case sourcev1.ProviderGCP:
		tokens, err := l.googleTokens(a, transport)
		if err != nil {
			return nil, err
		}
		return bucket.NewGCS(bucket.GCS{
			Endpoint: a.Spec.Endpoint, Bucket: a.Spec.BucketName, Insecure: a.Spec.Insecure, Tokens: tokens,
			Transport: transport,
		})
	case sourcev1.ProviderAzure:
		login, err := l.azureLogin(ctx, a, transport)
		if err != nil {
			return nil, err
		}
		return bucket.NewAzure(bucket.Azure{Endpoint: a.Spec.Endpoint, Container: a.Spec.BucketName, Login: login,
			Transport: transport})
	}
	return nil, fault.New(sourcev1.InvalidProviderConfigurationReason, "there is no provider '%s'", a.Spec.Provider).
		WithHint("Set spec.provider to generic, aws, gcp or azure").Final()
}

// transport is the way out of the cluster, with the certificates of a Secret.
func (l BucketLogin) transport(a access, cert secretData) (http.RoundTripper, error) {
	options := egress.Options{Caller: a.key()}
	var err error
	if options.TLS, err = auth.TLSFrom(cert); err != nil {
		return nil, err
	}
	if a.Proxy != nil {
		if options.Proxy, err = auth.ProxyFrom(a.Proxy); err != nil {
			return nil, err
		}
	}
	return l.Egress.Transport(options)
}

// keys are those to an S3-compatible bucket.
func (l BucketLogin) keys(ctx context.Context, a access) (*credentials.Credentials, error) {
	switch {
	case a.Login != nil:
		return bucket.KeysFrom(a.Login)
	case a.Spec.STS != nil:
		return l.temporaryKeys(ctx, a)
	case a.Spec.Provider == sourcev1.ProviderAWS:
		return bucket.KeysOf(func(ctx context.Context) (bucket.Key, error) {
			provider, err := l.Identities.AWS(ctx, a.Spec.Region, a.Account)
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

// temporaryKeys are had from the object's own Security Token Service.
func (l BucketLogin) temporaryKeys(ctx context.Context, a access) (*credentials.Credentials, error) {
	transport, err := l.transport(a, a.STSCert)
	if err != nil {
		return nil, err
	}
	sts := a.Spec.STS
	if sts.Provider == sourcev1.STSProviderLDAP {
		login, err := auth.BasicFrom(a.STSLogin)
		if err != nil {
			return nil, err
		}
		return bucket.LDAPKeys(sts.Endpoint, login, transport), nil
	}
	if err := auth.CheckEndpoint(auth.AWS, sts.Endpoint, false); err != nil {
		return nil, fault.New(sourcev1.InvalidSTSConfigurationReason, "spec.sts.endpoint cannot be used").
			Because(err).Final()
	}
	role, token, err := l.webIdentity(ctx, a.Account)
	if err != nil {
		return nil, err
	}
	return bucket.WebIdentityKeys(sts.Endpoint, role, token, transport), nil
}

// webIdentity is the role on AWS that a service account has by its annotation, or this process by its
// environment, and the token to show for it.
func (l BucketLogin) webIdentity(ctx context.Context, account *types.NamespacedName) (role string,
	token func(context.Context) (string, error), err error) {
	const annotation, audience = "eks.amazonaws.com/role-arn", "sts.amazonaws.com"
	if account == nil {
		role, file := os.Getenv("AWS_ROLE_ARN"), os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE")
		if role == "" || file == "" {
			return "", nil, fault.New(sourcev1.InvalidSTSConfigurationReason,
				"spec.sts is set, but this process has no identity to show to it").
				WithHint("Give the controller's ServiceAccount the annotation %s, or set spec.serviceAccountName",
					annotation)
		}
		return role, func(context.Context) (string, error) {
			b, err := os.ReadFile(file)
			return string(b), err
		}, nil
	}
	if l.Identities == nil || l.Identities.Accounts == nil {
		return "", nil, fault.New(sourcev1.InvalidSTSConfigurationReason,
			"identities of ServiceAccounts are not enabled").Final()
	}
	annotations, err := l.Identities.Accounts.Annotations(ctx, *account)
	if err != nil {
		return "", nil, fault.New(meta.AuthenticationFailedReason, "cannot read ServiceAccount '%s'", account).
			Because(err)
	}
	if role = annotations[annotation]; role == "" {
		return "", nil, fault.New(sourcev1.InvalidSTSConfigurationReason, "ServiceAccount '%s' has no annotation %s",
			account, annotation).
			WithHint("Set it to the role that may read the bucket")
	}
	return role, func(ctx context.Context) (string, error) {
		return l.Identities.Accounts.Token(ctx, *account, audience)
	}, nil
}

// googleTokens are those of the Secret, else those of the identity.
func (l BucketLogin) googleTokens(a access, transport http.RoundTripper) (bucket.Tokens, error) {
	if a.Login != nil {
		return bucket.ServiceAccountTokens(a.Login, transport)
	}
	if err := auth.CheckEndpoint(auth.GCP, a.Spec.Endpoint, a.Spec.Insecure); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		source, err := l.Identities.GCP(ctx, a.Account, bucket.GCSReadOnly)
		if err != nil {
			return nil, err
		}
		return source.Token()
	}, nil
}

// azureLogin is that of the Secret, else that of the identity. Where the object names none and there is none,
// the container is taken to be public.
func (l BucketLogin) azureLogin(ctx context.Context, a access, transport http.RoundTripper) (bucket.AzureLogin, error) {
	if a.Login != nil {
		login, err := bucket.AzureLoginFrom(a.Login, a.Spec.Endpoint, transport)
		if err == nil && login.Ambient {
			err = auth.CheckEndpoint(auth.Azure, a.Spec.Endpoint, a.Spec.Insecure)
		}
		return login, err
	}
	identity := azureIdentity{l.Identities, a.Account}
	err := auth.CheckEndpoint(auth.Azure, a.Spec.Endpoint, a.Spec.Insecure)
	if err == nil {
		_, err = identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{bucket.AzureScope}})
	}
	if err != nil && a.Spec.ServiceAccountName == "" {
		return bucket.AzureLogin{}, nil
	}
	return bucket.AzureLogin{Token: identity}, err
}

// azureIdentity asks for the identity whenever a token is needed.
type azureIdentity struct {
	identities *auth.Identities
	account    *types.NamespacedName
}

// GetToken implements [azcore.TokenCredential].
func (i azureIdentity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c, err := i.identities.Azure(ctx, i.account)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return c.GetToken(ctx, o)
}
