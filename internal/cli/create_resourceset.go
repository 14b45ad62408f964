package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createResourceSet holds the flags of `create resourceset`.
type createResourceSet struct {
	inputs, from   []string
	permute, wait  bool
	template       string
	serviceAccount string
}

func (r *createResourceSet) bind(f *pflag.FlagSet) string {
	f.StringVar(&r.template, "template-file", "", "file with the template of the objects, as YAML documents")
	f.StringArrayVar(&r.inputs, "input", nil, "input set, as a map in YAML such as '{tenant: a}'; may be repeated")
	f.StringSliceVar(&r.from, "inputs-from", nil,
		"providers of inputs, as NAME of an input provider or KIND/NAME")
	f.BoolVar(&r.permute, "permute", false, "combine each input set of a provider with each of the others")
	f.StringVar(&r.serviceAccount, "service-account", "", "service account that applies the objects")
	f.BoolVar(&r.wait, "wait-for-objects", false, "set spec.wait: Ready once all objects are healthy")
	return "--template-file app.yaml --inputs-from previews"
}

func (r *createResourceSet) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("template-file", r.template); err != nil {
		return nil, err
	}
	template, err := os.ReadFile(r.template)
	if err != nil {
		return nil, err
	}
	set := &controlplanev1.ResourceSet{Spec: controlplanev1.ResourceSetSpec{ResourcesTemplate: string(template),
		ServiceAccountName: r.serviceAccount, Wait: r.wait}}
	setEvery(set, c)
	for _, text := range r.inputs {
		var values map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil || values == nil {
			return nil, usagef("invalid --input %q: use a map in YAML, such as '{tenant: a}'", text)
		}
		set.Spec.Inputs = append(set.Spec.Inputs, inputSet(values))
	}
	for _, text := range r.from {
		ref := controlplanev1.InputProviderReference{APIVersion: controlplanev1.GroupVersion.String(),
			Kind: controlplanev1.ResourceSetInputProviderKind, Name: text}
		if word, name, ok := strings.Cut(text, "/"); ok {
			switch k := kind.ByWord(word); {
			case k != nil && k.Name() == inputsv1.ClusterInputProviderKind:
				ref.APIVersion, ref.Kind = inputsv1.GroupVersion.String(), k.Name()
			case k == nil || k.Name() != ref.Kind:
				return nil, usagef("invalid --inputs-from %q: use NAME, input-provider/NAME or "+
					"cluster-input-provider/NAME", text)
			}
			ref.Name = name
		}
		set.Spec.InputsFrom = append(set.Spec.InputsFrom, ref)
	}
	if r.permute {
		set.Spec.InputStrategy = &controlplanev1.InputStrategy{Name: "Permute"}
	}
	return set, nil
}

// inputSet encodes values.
func inputSet(values map[string]any) controlplanev1.InputSet {
	set := controlplanev1.InputSet{}
	for key, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err) // it was decoded from YAML
		}
		set[key] = apiextensionsv1.JSON{Raw: raw}
	}
	return set
}

// setEvery sets the annotation for an interval that is not the default.
func setEvery(o reconcile.Object, c *creation) {
	if c.interval.Duration != o.Schedule().Interval {
		o.SetAnnotations(map[string]string{controlplanev1.ReconcileEveryAnnotation: c.interval.Duration.String()})
	}
}

// createInputProvider holds the flags of `create input-provider`.
type createInputProvider struct {
	spec                  controlplanev1.ResourceSetInputProviderSpec
	filter                controlplanev1.InputFilter
	secretRef, cert       string
	defaults              map[string]string
	skipLabels, artifacts []string
}

// inputTypes are the types of providers, without those that need no flag.
const inputTypes = "GitHubPullRequest, GitLabMergeRequest, GiteaBranch, OCIArtifactTag, ExternalService or Static"

func (p *createInputProvider) bind(f *pflag.FlagSet) string {
	f.StringVar(&p.spec.Type, "type", "", "what is read, such as "+inputTypes)
	f.StringVar(&p.spec.URL, "url", "", "address of the repository, the image or the service")
	f.StringVar(&p.secretRef, "secret-ref", "", "Secret with the login")
	f.StringVar(&p.cert, "cert-ref", "", "Secret with certificates; see sluice create secret tls")
	f.StringVar(&p.spec.ServiceAccountName, "service-account", "", "service account whose identity is used")
	f.BoolVar(&p.spec.Insecure, "insecure", false, "use HTTP instead of HTTPS")
	f.StringToStringVar(&p.defaults, "default-values", nil, "values for keys that an input set lacks, such as a=b")
	f.StringVar(&p.filter.IncludeBranch, "include-branch", "", "only branches that this expression matches")
	f.StringVar(&p.filter.IncludeTag, "include-tag", "", "only tags that this expression matches")
	f.StringVar(&p.filter.Semver, "tag-semver", "", "only tags in this range; the highest comes first")
	f.StringSliceVar(&p.filter.Labels, "filter-label", nil, "only change requests that have all of these labels")
	f.IntVar(&p.filter.Limit, "limit", 0, "number of input sets (default: 100)")
	f.StringSliceVar(&p.skipLabels, "skip-label", nil,
		"labels of change requests that keep their input set; !LABEL for those without it")
	f.StringSliceVar(&p.artifacts, "artifact", nil, "ExternalArtifacts, as NAME or NAME.NAMESPACE")
	return "--type GitHubPullRequest --url https://github.com/org/app --secret-ref github"
}

func (p *createInputProvider) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("type", p.spec.Type); err != nil {
		return nil, err
	}
	needsURL := p.spec.Type != controlplanev1.InputStatic && p.spec.Type != controlplanev1.InputExternalArtifact
	if needsURL && p.spec.URL == "" {
		return nil, require("url", p.spec.URL)
	}
	if p.spec.Type == controlplanev1.InputExternalArtifact && len(p.artifacts) == 0 {
		return nil, usagef("--artifact is missing")
	}
	obj := &controlplanev1.ResourceSetInputProvider{Spec: p.spec}
	setEvery(obj, c)
	obj.Spec.SecretRef, obj.Spec.CertSecretRef = localRef(p.secretRef), localRef(p.cert)
	obj.Spec.DefaultValues = textInputs(p.defaults)
	if f := p.filter; f.IncludeBranch+f.IncludeTag+f.Semver != "" || f.Limit != 0 || len(f.Labels) > 0 {
		obj.Spec.Filter = &f
	}
	if len(p.skipLabels) > 0 {
		obj.Spec.Skip = &controlplanev1.InputSkip{Labels: p.skipLabels}
	}
	for _, text := range p.artifacts {
		name, namespace, _ := strings.Cut(text, ".")
		obj.Spec.Selectors = append(obj.Spec.Selectors, controlplanev1.ArtifactSelector{Name: name,
			Namespace: namespace})
	}
	return obj, nil
}

// textInputs encodes texts; it returns nil if there are none.
func textInputs(values map[string]string) controlplanev1.InputSet {
	if len(values) == 0 {
		return nil
	}
	all := map[string]any{}
	for key, value := range values {
		all[key] = value
	}
	return inputSet(all)
}

// createClusterInputs holds the flags of `create cluster-input-provider`.
type createClusterInputs struct {
	kind     string
	selector map[string]string
	defaults map[string]string
}

func (p *createClusterInputs) bind(f *pflag.FlagSet) string {
	f.StringVar(&p.kind, "kind", "Secret", "objects that stand for clusters: Secret (with a kubeconfig) or Cluster")
	f.StringToStringVar(&p.selector, "selector", nil, "labels of the objects, such as fleet=production")
	f.StringToStringVar(&p.defaults, "default-values", nil, "values for keys that an input set lacks, such as a=b")
	return "--selector fleet=production"
}

func (p *createClusterInputs) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := oneOf("kind", p.kind, "Secret", "Cluster"); err != nil {
		return nil, err
	}
	obj := &inputsv1.ClusterInputProvider{Spec: inputsv1.ClusterInputProviderSpec{Kind: p.kind,
		DefaultValues: textInputs(p.defaults)}}
	obj.Spec.Selector.MatchLabels = p.selector
	if c.interval.Duration != obj.Schedule().Interval {
		obj.Spec.Interval = optionalDuration(c.interval.Duration)
	}
	return obj, nil
}
