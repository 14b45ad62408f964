package cli

import (
	"context"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createHelm holds the flags of `create source helm`.
type createHelm struct {
	url, provider, secretRef string
	passCredentials          bool
	login                    basicLogin
	tls                      tlsFiles
}

func (h *createHelm) bind(f *pflag.FlagSet) string {
	f.StringVar(&h.url, "url", "", "URL of the repository: http, https or oci")
	f.StringVar(&h.provider, "oci-provider", "",
		"identity to log in to an OCI registry with: generic, aws, azure or gcp")
	f.StringVar(&h.secretRef, "secret-ref", "", "existing Secret with the credentials, instead of creating one")
	f.BoolVar(&h.passCredentials, "pass-credentials", false, "send the credentials to the hosts of charts too")
	h.login.bind(f)
	h.tls.bind(f, "ca-file", "cert-file", "key-file")
	return "--url https://charts.example.com"
}

func (h *createHelm) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("url", h.url); err != nil {
		return nil, err
	}
	spec := sourcev1.HelmRepositorySpec{URL: h.url, Interval: c.interval, SecretRef: localRef(h.secretRef),
		PassCredentials: h.passCredentials}
	scheme, _, _ := strings.Cut(h.url, "://")
	if err := oneOf("url", scheme, "http", "https", "oci"); err != nil {
		return nil, err
	}
	if scheme == "oci" {
		spec.Type, spec.Provider = sourcev1.HelmRepositoryTypeOCI, h.provider
	}
	if h.provider != "" {
		if scheme != "oci" {
			return nil, usagef("--oci-provider needs a --url that begins with oci://")
		}
		if err := oneOf("oci-provider", h.provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS,
			sourcev1.ProviderAzure, sourcev1.ProviderGCP); err != nil {
			return nil, err
		}
	}
	if h.secretRef != "" || !h.login.isSet() && !h.tls.isSet() {
		return &sourcev1.HelmRepository{Spec: spec}, nil
	}
	data, kind := map[string]string{}, corev1.SecretTypeOpaque
	if scheme == "oci" && h.login.isSet() {
		var err error
		if data, err = h.login.registry(c.env, h.url); err != nil {
			return nil, err
		}
		kind = corev1.SecretTypeDockerConfigJson
	} else if err := h.login.addTo(c.env, data); err != nil {
		return nil, err
	}
	if err := h.tls.addTo(data); err != nil {
		return nil, err
	}
	if err := c.setSecret(kind, data, checkTLS); err != nil {
		return nil, err
	}
	spec.SecretRef = localRef(c.secret.Name)
	if h.tls.isSet() {
		spec.CertSecretRef = localRef(c.secret.Name)
	}
	return &sourcev1.HelmRepository{Spec: spec}, nil
}

// createChart holds the flags of `create source chart`.
type createChart struct {
	spec   sourcev1.HelmChartSpec
	source string
	verify verifyFlags
}

func (h *createChart) bind(f *pflag.FlagSet) string {
	f.StringVar(&h.source, "source", "", "source of the chart, as KIND/NAME: HelmRepository, GitRepository or Bucket")
	f.StringVar(&h.spec.Chart, "chart", "", "name of the chart, or its path in a GitRepository or Bucket")
	f.StringVar(&h.spec.Version, "chart-version", "",
		"range of versions to follow in a HelmRepository; the highest one is used")
	f.StringVar(&h.spec.ReconcileStrategy, "reconcile-strategy", sourcev1.ReconcileStrategyChartVersion,
		"what a new artifact is made for: ChartVersion or Revision")
	h.verify.bind(f)
	return "--source HelmRepository/charts --chart app --chart-version 1.x"
}

func (h *createChart) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("chart", h.spec.Chart); err != nil {
		return nil, err
	}
	kind, name, ok := strings.Cut(h.source, "/")
	if !ok || name == "" {
		return nil, usagef("invalid --source %q: use KIND/NAME, such as HelmRepository/charts", h.source)
	}
	if err := oneOf("source", kind, sourcev1.HelmRepositoryKind, sourcev1.GitRepositoryKind,
		sourcev1.BucketKind); err != nil {
		return nil, err
	}
	if err := oneOf("reconcile-strategy", h.spec.ReconcileStrategy, sourcev1.ReconcileStrategyChartVersion,
		sourcev1.ReconcileStrategyRevision); err != nil {
		return nil, err
	}
	var err error
	h.spec.Interval, h.spec.SourceRef = c.interval, sourcev1.LocalHelmChartSourceReference{Kind: kind, Name: name}
	h.spec.Verify, err = h.verify.verification()
	return &sourcev1.HelmChart{Spec: h.spec}, err
}
