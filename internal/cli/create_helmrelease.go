package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createHelmRelease holds the flags of `create helmrelease`.
type createHelmRelease struct {
	chart, version, source, strategy string
	chartInterval                    time.Duration
	chartRef                         string
	name, namespace, storage         string
	createNamespace                  bool
	crds                             string
	values, valuesFrom, dependsOn    []string
	account, kubeConfig              string
}

func (h *createHelmRelease) bind(f *pflag.FlagSet) string {
	f.StringVar(&h.source, "source", "", "source of the chart, as KIND/NAME[.NAMESPACE]: HelmRepository, "+
		"GitRepository or Bucket")
	f.StringVar(&h.chart, "chart", "", "name of the chart in a HelmRepository, or its path in another source")
	f.StringVar(&h.version, "chart-version", "", "range of versions to follow; the highest one is released")
	f.DurationVar(&h.chartInterval, "chart-interval", 0,
		"interval between checks for new charts (default: that of the HelmRelease)")
	f.StringVar(&h.strategy, "reconcile-strategy", sourcev1.ReconcileStrategyChartVersion,
		"what a new chart is made for: ChartVersion or Revision")
	f.StringVar(&h.chartRef, "chart-ref", "", "existing object with the chart, as KIND/NAME[.NAMESPACE]: "+
		"OCIRepository, HelmChart or ExternalArtifact")
	f.StringVar(&h.name, "release-name", "",
		"name of the Helm release (default: the target namespace and the name, or the name)")
	f.StringVar(&h.namespace, "target-namespace", "", "namespace to release to (default: that of the HelmRelease)")
	f.BoolVar(&h.createNamespace, "create-target-namespace", false, "create the target namespace if it does not exist")
	f.StringVar(&h.storage, "storage-namespace", "",
		"namespace in which Helm stores the release (default: that of the HelmRelease)")
	f.StringVar(&h.crds, "crds", "", "what happens to the definitions in crds/: Skip, Create or CreateReplace")
	f.StringSliceVar(&h.values, "values", nil, "local files with values; later files take precedence")
	f.StringSliceVar(&h.valuesFrom, "values-from", nil,
		"objects with values in the key values.yaml, as Secret/NAME or ConfigMap/NAME")
	f.StringSliceVar(&h.dependsOn, "depends-on", nil, "HelmReleases that must be Ready first, as [NAMESPACE/]NAME")
	f.StringVar(&h.account, "service-account", "", "service account to release as")
	f.StringVar(&h.kubeConfig, "kubeconfig-secret-ref", "",
		"Secret with the kubeconfig of another cluster to release to")
	return "--source HelmRepository/charts --chart app --chart-version 1.x"
}

func (h *createHelmRelease) build(_ context.Context, c *creation) (reconcile.Object, error) {
	spec := helmv2.HelmReleaseSpec{
		Interval: c.interval, ReleaseName: h.name, TargetNamespace: h.namespace, StorageNamespace: h.storage,
		ServiceAccountName: h.account,
	}
	if err := h.setChart(&spec); err != nil {
		return nil, err
	}
	if err := h.setValues(&spec); err != nil {
		return nil, err
	}
	var err error
	if spec.DependsOn, err = dependencies(h.dependsOn); err != nil {
		return nil, err
	}
	if err := optionalOneOf("crds", h.crds, helmv2.CRDsSkip, helmv2.CRDsCreate, helmv2.CRDsCreateReplace); err != nil {
		return nil, err
	}
	if h.createNamespace || h.crds != "" {
		spec.Install = &helmv2.Install{CreateNamespace: h.createNamespace, CRDs: h.crds}
	}
	if h.crds != "" {
		spec.Upgrade = &helmv2.Upgrade{CRDs: h.crds}
	}
	if h.kubeConfig != "" {
		spec.KubeConfig = &helmv2.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: h.kubeConfig}}
	}
	return &helmv2.HelmRelease{Spec: spec}, nil
}

func (h *createHelmRelease) setChart(spec *helmv2.HelmReleaseSpec) error {
	if (h.chartRef == "") == (h.source == "") {
		return usagef("set either --source with --chart, or --chart-ref")
	}
	if h.chartRef != "" {
		if h.chart != "" || h.version != "" {
			return usagef("--chart and --chart-version need --source: the object of --chart-ref names the chart")
		}
		kind, name, namespace, err := parseReference("chart-ref", h.chartRef, sourcev1.OCIRepositoryKind,
			sourcev1.HelmChartKind, sourcev1.ExternalArtifactKind)
		spec.ChartRef = &helmv2.ChartReference{Kind: kind, Name: name, Namespace: namespace}
		return err
	}
	if err := require("chart", h.chart); err != nil {
		return err
	}
	kind, name, namespace, err := parseReference("source", h.source, sourcev1.HelmRepositoryKind,
		sourcev1.GitRepositoryKind, sourcev1.BucketKind)
	if err != nil {
		return err
	}
	spec.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{
		Chart: h.chart, Version: h.version, Interval: optionalDuration(h.chartInterval), ReconcileStrategy: h.strategy,
		SourceRef: &helmv2.SourceReference{Kind: kind, Name: name, Namespace: namespace},
	}}
	return oneOf("reconcile-strategy", h.strategy, sourcev1.ReconcileStrategyChartVersion,
		sourcev1.ReconcileStrategyRevision)
}

// parseReference parses KIND/NAME[.NAMESPACE].
func parseReference(flag, text string, kinds ...string) (kind, name, namespace string, err error) {
	kind, name, _ = strings.Cut(text, "/")
	name, namespace, _ = strings.Cut(name, ".")
	if name == "" {
		return "", "", "", usagef("invalid --%s %q: use KIND/NAME, such as %s/app", flag, text, kinds[0])
	}
	return kind, name, namespace, oneOf(flag, kind, kinds...)
}

func (h *createHelmRelease) setValues(spec *helmv2.HelmReleaseSpec) error {
	for _, text := range h.valuesFrom {
		kind, name, ok := strings.Cut(text, "/")
		if !ok || name == "" || kind != "Secret" && kind != "ConfigMap" {
			return usagef("invalid --values-from %q: use Secret/NAME or ConfigMap/NAME", text)
		}
		spec.ValuesFrom = append(spec.ValuesFrom, meta.ValuesReference{Kind: kind, Name: name})
	}
	if len(h.values) == 0 {
		return nil
	}
	all := map[string]any{}
	for _, file := range h.values {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		one, err := common.ReadValues(content)
		if err != nil {
			return usagef("--values %s: %w", file, err)
		}
		all = loader.MergeMaps(all, one)
	}
	raw, err := json.Marshal(all)
	spec.Values = &apiextensionsv1.JSON{Raw: raw}
	return err
}
