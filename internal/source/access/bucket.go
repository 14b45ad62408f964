package access

import (
	"cmp"
	"context"
	"net/http"

	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/bucket"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Buckets gives access to buckets, with the proxy, the certificates and the login that an object names.
type Buckets struct {
	Connector
	// Metadata sends requests to the metadata server of the machine. It is made by an egress policy that allows its
	// link-local address. Managed identities are refused if it is nil.
	Metadata http.RoundTripper
}

// secretData is the data of a Secret; nil if the object names none.
type secretData = map[string][]byte

// Bucket is everything that access to a bucket depends on.
type Bucket struct {
	spec    sourcev1.BucketSpec
	account *types.NamespacedName // the service account to log in as; the identity of the process if nil

	login, cert, proxy, stsLogin, stsCert secretData
}

// Resolve checks the login that the object specifies, and reads the Secrets that it names.
func (b *Buckets) Resolve(ctx context.Context, obj *sourcev1.Bucket) (Bucket, error) {
	resolved := Bucket{spec: obj.Spec}
	if err := checkProvider(obj.Spec); err != nil {
		return resolved, err
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
		{ref: obj.Spec.SecretRef, field: "spec.secretRef", into: &resolved.login},
		{ref: obj.Spec.CertSecretRef, field: "spec.certSecretRef", into: &resolved.cert},
		{ref: obj.Spec.ProxySecretRef, field: "spec.proxySecretRef", into: &resolved.proxy},
		{ref: sts.SecretRef, field: "spec.sts.secretRef", into: &resolved.stsLogin},
		{ref: sts.CertSecretRef, field: "spec.sts.certSecretRef", into: &resolved.stsCert},
	} {
		data, err := b.Secrets.Data(ctx, obj.Namespace, s.ref, s.field)
		if err != nil {
			return resolved, err
		}
		*s.into = data
	}
	resolved.account = b.Identities.Account(obj.Namespace, obj.Spec.ServiceAccountName)
	return resolved, nil
}

// checkProvider repeats the validation of the resource definition, for objects that are older than it.
func checkProvider(spec sourcev1.BucketSpec) error {
	provider := cmp.Or(spec.Provider, sourcev1.ProviderGeneric)
	if sts := spec.STS; sts != nil {
		want := map[string]string{sourcev1.ProviderGeneric: sourcev1.STSProviderLDAP,
			sourcev1.ProviderAWS: sourcev1.STSProviderAWS}[provider]
		if sts.Provider != want {
			return fault.New(sourcev1.InvalidSTSConfigurationReason,
				"the provider '%s' does not support the STS provider '%s'", provider, sts.Provider).
				WithHint("'aws' supports 'aws', 'generic' supports 'ldap', other providers support no STS").Final()
		}
	}
	if spec.ServiceAccountName != "" && (provider == sourcev1.ProviderGeneric || spec.SecretRef != nil) {
		return fault.New(sourcev1.InvalidProviderConfigurationReason,
			"spec.serviceAccountName cannot be combined with the provider 'generic' or with spec.secretRef").
			WithHint("Remove spec.serviceAccountName, or set spec.provider to aws, gcp or azure and remove " +
				"spec.secretRef").
			Final()
	}
	return nil
}

// Key changes whenever a new [bucket.Remote] is needed.
func (b Bucket) Key() string {
	spec := b.spec // without the fields that do not affect access
	spec.Interval, spec.Timeout, spec.Ignore, spec.Prefix = sourcev1.BucketSpec{}.Interval, nil, nil, ""
	spec.Suspend, spec.AccessFrom = false, nil
	return Fingerprint(spec, b.account, b.login, b.cert, b.proxy, b.stsLogin, b.stsCert)
}

// Remote returns a client of the bucket. It sends no request to the bucket itself.
func (b *Buckets) Remote(ctx context.Context, at Bucket) (bucket.Remote, error) {
	transport, err := b.transport(at, at.cert)
	if err != nil {
		return nil, err
	}
	spec := at.spec
	if err := auth.CheckRegion(spec.Region); err != nil {
		return nil, err
	}
	switch cmp.Or(spec.Provider, sourcev1.ProviderGeneric) {
	case sourcev1.ProviderGeneric, sourcev1.ProviderAWS:
		keys, err := b.keys(ctx, at)
		if err != nil {
			return nil, err
		}
		return bucket.NewS3(bucket.S3{Endpoint: spec.Endpoint, Bucket: spec.BucketName, Region: spec.Region,
			Insecure: spec.Insecure, Keys: keys, Transport: transport})
	case sourcev1.ProviderGCP:
		tokens, err := b.googleTokens(at, transport)
		if err != nil {
			return nil, err
		}
		return bucket.NewGCS(bucket.GCS{Endpoint: spec.Endpoint, Bucket: spec.BucketName, Insecure: spec.Insecure,
			Tokens: tokens, Transport: transport})
	case sourcev1.ProviderAzure:
		login, err := b.azureLogin(ctx, at, transport)
		if err != nil {
			return nil, err
		}
		return bucket.NewAzure(bucket.Azure{Endpoint: spec.Endpoint, Container: spec.BucketName, Login: login,
			Transport: transport})
	}
	return nil, fault.New(sourcev1.InvalidProviderConfigurationReason, "provider '%s' is not supported",
		spec.Provider).WithHint("Set spec.provider to generic, aws, gcp or azure").Final()
}

// transport returns a transport with the certificates of a Secret and the proxy of the bucket.
func (b *Buckets) transport(at Bucket, cert secretData) (http.RoundTripper, error) {
	options := egress.Options{Caller: at.Key()}
	var err error
	if options.TLS, err = auth.TLSFrom(cert); err != nil {
		return nil, err
	}
	if at.proxy != nil {
		if options.Proxy, err = auth.ProxyFrom(at.proxy); err != nil {
			return nil, err
		}
	}
	transport, err := b.Egress.Transport(options)
	if err != nil {
		return nil, err
	}
	return egress.Unquoted(transport), nil
}

// checkIdentity returns a fault if no token of a workload identity may be sent to the endpoint.
func (b Bucket) checkIdentity(provider string) error {
	if err := auth.CheckEndpoint(provider, b.spec.Endpoint, b.spec.Insecure); err != nil {
		return err
	}
	return b.checkAuthorities(b.cert, "spec.certSecretRef")
}

// checkAuthorities is [auth.CheckAuthorities] for the certificates of a Secret.
func (b Bucket) checkAuthorities(cert secretData, field string) error {
	tls, err := auth.TLSFrom(cert)
	if err != nil {
		return err
	}
	return auth.CheckAuthorities(b.account, tls, field)
}

// googleTokens returns tokens of the Secret, or else of the workload identity.
func (b *Buckets) googleTokens(at Bucket, transport http.RoundTripper) (bucket.Tokens, error) {
	if at.login != nil {
		return bucket.ServiceAccountTokens(at.login, transport)
	}
	if err := at.checkIdentity(auth.GCP); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		source, err := b.Identities.GCP(ctx, at.account, bucket.GCSReadOnly)
		if err != nil {
			return nil, err
		}
		return source.Token()
	}, nil
}
