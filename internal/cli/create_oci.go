package cli

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createOCI is the flags of `create source oci`.
type createOCI struct {
	url, provider, layer   string
	ref                    sourcev1.OCIRepositoryRef
	secretRef, cert, proxy string
	serviceAccount         string
	ignore                 []string
	insecure               bool
	verify                 verifyFlags
}

func (o *createOCI) bind(f *pflag.FlagSet) string {
	f.StringVar(&o.url, "url", "", "URL of the repository in a registry, as oci://HOST/PATH")
	f.StringVar(&o.ref.Tag, "tag", "", "tag to follow (default: latest)")
	f.StringVar(&o.ref.SemVer, "tag-semver", "", "range of tags to follow, highest first")
	f.StringVar(&o.ref.Digest, "digest", "", "digest to pin, as sha256:HEX")
	f.StringVar(&o.layer, "layer-selector", "",
		"media type of the layer to take; with :copy it is kept as it is, not extracted")
	f.StringVar(&o.provider, "provider", sourcev1.ProviderGeneric,
		"whose identity to log in by: generic, aws, azure or gcp")
	f.StringVar(&o.secretRef, "secret-ref", "", "Secret with the login, as `sluice create secret oci` makes it")
	f.StringVar(&o.serviceAccount, "service-account", "", "account whose pull secrets or identity to log in by")
	f.StringVar(&o.cert, "cert-ref", "", "Secret with the certificates, as `sluice create secret tls` makes it")
	f.StringVar(&o.proxy, "proxy-secret-ref", "", "Secret with the proxy")
	f.StringSliceVar(&o.ignore, "ignore-paths", nil, "paths to leave out, in .gitignore syntax")
	f.BoolVar(&o.insecure, "insecure", false, "speak to the registry over HTTP")
	o.verify.bind(f)
	return "--url oci://registry.example.com/org/app --tag latest"
}

func (o *createOCI) make(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := need("url", o.url); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(o.url, "oci://") {
		return nil, usagef("--url must be as oci://HOST/PATH")
	}
	if err := oneOf("provider", o.provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderAzure,
		sourcev1.ProviderGCP); err != nil {
		return nil, err
	}
	layer := sourcev1.OCILayerSelector{}
	layer.MediaType, layer.Operation, _ = strings.Cut(o.layer, ":")
	if layer.Operation != "" {
		if err := oneOf("layer-selector", layer.Operation, sourcev1.LayerExtract, sourcev1.LayerCopy); err != nil {
			return nil, err
		}
	}
	verification, err := o.verify.verification()
	if err != nil {
		return nil, err
	}
	return &sourcev1.OCIRepository{Spec: sourcev1.OCIRepositorySpec{
		URL: o.url, Interval: c.interval, Reference: orNil(o.ref), LayerSelector: orNil(layer),
		Provider: o.provider, ServiceAccountName: o.serviceAccount,
		SecretRef: refer(o.secretRef), CertSecretRef: refer(o.cert), ProxySecretRef: refer(o.proxy),
		Ignore: ignoreRules(o.ignore), Insecure: o.insecure, Verify: verification,
	}}, nil
}

// verifyFlags say by whom an artifact must be signed.
type verifyFlags struct{ provider, secretRef, issuer, subject string }

func (v *verifyFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&v.provider, "verify-provider", "", "verify signatures by cosign or notation")
	f.StringVar(&v.secretRef, "verify-secret-ref", "", "Secret with the trusted public keys, or with the trust policy")
	f.StringVar(&v.issuer, "verify-issuer", "", "issuer of a keyless signer's identity, as a regular expression")
	f.StringVar(&v.subject, "verify-subject", "", "subject of a keyless signer's identity, as a regular expression")
}

func (v *verifyFlags) verification() (*sourcev1.Verification, error) {
	if v.provider == "" {
		if *v != (verifyFlags{}) {
			return nil, usagef("--verify-provider is missing, without which nothing is verified")
		}
		return nil, nil
	}
	if err := oneOf("verify-provider", v.provider, sourcev1.VerifyCosign, sourcev1.VerifyNotation); err != nil {
		return nil, err
	}
	if (v.issuer == "") != (v.subject == "") {
		return nil, usagef("--verify-issuer and --verify-subject go together: a keyless signer is known by both")
	}
	verification := &sourcev1.Verification{Provider: v.provider, SecretRef: refer(v.secretRef)}
	if v.issuer != "" {
		verification.MatchOIDCIdentity = []sourcev1.OIDCIdentityMatch{{Issuer: v.issuer, Subject: v.subject}}
	}
	return verification, nil
}
