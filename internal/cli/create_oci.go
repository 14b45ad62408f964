package cli

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createOCI holds the flags of `create source oci`.
type createOCI struct {
	spec   sourcev1.OCIRepositorySpec
	ref    sourcev1.OCIRepositoryRef
	layer  string
	ignore []string
	verify verifyFlags
}

func (o *createOCI) bind(f *pflag.FlagSet) string {
	f.StringVar(&o.spec.URL, "url", "", "URL of the repository, as oci://HOST/PATH")
	f.StringVar(&o.ref.Tag, "tag", "", "tag to follow (default: latest)")
	f.StringVar(&o.ref.SemVer, "tag-semver", "", "range of tags to follow; the highest one is used")
	f.StringVar(&o.ref.Digest, "digest", "", "digest to pin, as sha256:HEX")
	f.StringVar(&o.layer, "layer-selector", "",
		"media type of the layer to use; append :copy to keep the layer without extracting it")
	f.StringVar(&o.spec.Provider, "provider", sourcev1.ProviderGeneric,
		"identity to log in with: generic, aws, azure or gcp")
	refVar(f, &o.spec.SecretRef, "secret-ref", "Secret with the credentials; see sluice create secret oci")
	f.StringVar(&o.spec.ServiceAccountName, "service-account", "",
		"service account whose pull secrets or identity are used")
	refVar(f, &o.spec.CertSecretRef, "cert-ref", "Secret with certificates; see sluice create secret tls")
	refVar(f, &o.spec.ProxySecretRef, "proxy-secret-ref", "Secret with the address of a proxy")
	f.StringSliceVar(&o.ignore, "ignore-paths", nil, "paths to exclude, in .gitignore syntax")
	f.BoolVar(&o.spec.Insecure, "insecure", false, "use HTTP instead of HTTPS")
	o.verify.bind(f)
	return "--url oci://registry.example.com/org/app --tag latest"
}

func (o *createOCI) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("url", o.spec.URL); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(o.spec.URL, "oci://") {
		return nil, usagef("invalid --url: use oci://HOST/PATH")
	}
	if err := oneOf("provider", o.spec.Provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderAzure,
		sourcev1.ProviderGCP); err != nil {
		return nil, err
	}
	layer := sourcev1.OCILayerSelector{}
	layer.MediaType, layer.Operation, _ = strings.Cut(o.layer, ":")
	if err := optionalOneOf("layer-selector", layer.Operation, sourcev1.LayerExtract, sourcev1.LayerCopy); err != nil {
		return nil, err
	}
	var err error
	o.spec.Interval, o.spec.Reference, o.spec.LayerSelector = c.interval, optional(o.ref), optional(layer)
	o.spec.Ignore = ignoreRules(o.ignore)
	o.spec.Verify, err = o.verify.verification()
	return &sourcev1.OCIRepository{Spec: o.spec}, err
}

// verifyFlags say who must have signed an artifact.
type verifyFlags struct{ provider, secretRef, issuer, subject string }

func (v *verifyFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&v.provider, "verify-provider", "", "verify signatures with cosign or notation")
	f.StringVar(&v.secretRef, "verify-secret-ref", "", "Secret with the trusted public keys or the trust policy")
	f.StringVar(&v.issuer, "verify-issuer", "", "regular expression for the issuer of a keyless identity")
	f.StringVar(&v.subject, "verify-subject", "", "regular expression for the subject of a keyless identity")
}

func (v *verifyFlags) verification() (*sourcev1.Verification, error) {
	if v.provider == "" {
		if *v != (verifyFlags{}) {
			return nil, usagef("--verify-provider is missing: nothing would be verified")
		}
		return nil, nil
	}
	if err := oneOf("verify-provider", v.provider, sourcev1.VerifyCosign, sourcev1.VerifyNotation); err != nil {
		return nil, err
	}
	if (v.issuer == "") != (v.subject == "") {
		return nil, usagef("set both --verify-issuer and --verify-subject")
	}
	verification := &sourcev1.Verification{Provider: v.provider, SecretRef: localRef(v.secretRef)}
	if v.issuer != "" {
		verification.MatchOIDCIdentity = []sourcev1.OIDCIdentityMatch{{Issuer: v.issuer, Subject: v.subject}}
	}
	return verification, nil
}
