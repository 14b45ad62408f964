package cli

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createKustomization holds the flags of `create kustomization`.
type createKustomization struct {
	source, path          string
	prune, wait           bool
	dependsOn, checks     []string
	checkTimeout, retry   time.Duration
	account, kubeConfig   string
	namespace             string
	decryption, decrypter string
}

func (k *createKustomization) bind(f *pflag.FlagSet) string {
	f.StringVar(&k.source, "source", "", "source of the manifests, as [KIND/]NAME[.NAMESPACE]: GitRepository, "+
		"OCIRepository, Bucket or ExternalArtifact (default kind: GitRepository)")
	f.StringVar(&k.path, "path", "./", "directory to build, relative to the root of the source")
	f.BoolVar(&k.prune, "prune", false, "delete objects that are no longer declared")
	f.BoolVar(&k.wait, "wait", false, "become Ready only after all applied objects are healthy")
	f.StringSliceVar(&k.checks, "health-check", nil,
		"objects that must be healthy, as KIND/NAME.NAMESPACE: Deployment, StatefulSet, DaemonSet or HelmRelease")
	f.DurationVar(&k.checkTimeout, "health-check-timeout", 2*time.Minute, "timeout of health checks")
	f.StringSliceVar(&k.dependsOn, "depends-on", nil, "Kustomizations that must be Ready first, as [NAMESPACE/]NAME")
	f.DurationVar(&k.retry, "retry-interval", 0,
		"interval between retries after a failure (default: exponential backoff)")
	f.StringVar(&k.account, "service-account", "", "service account to apply as")
	f.StringVar(&k.kubeConfig, "kubeconfig-secret-ref", "", "Secret with the kubeconfig of another cluster to apply to")
	f.StringVar(&k.namespace, "target-namespace", "", "namespace for all objects")
	f.StringVar(&k.decryption, "decryption-provider", "", "decrypt Secrets with: sops")
	f.StringVar(&k.decrypter, "decryption-secret", "", "Secret with the keys to decrypt with")
	return "--source GitRepository/app --path ./deploy --prune"
}

func (k *createKustomization) build(_ context.Context, c *creation) (reconcile.Object, error) {
	source, err := k.sourceRef()
	if err != nil {
		return nil, err
	}
	spec := kustomizev1.KustomizationSpec{
		SourceRef: source, Path: k.path, Prune: k.prune, Wait: k.wait, Interval: c.interval,
		ServiceAccountName: k.account, TargetNamespace: k.namespace,
	}
	if !strings.HasPrefix(k.path, "./") {
		return nil, usagef("invalid --path %q: use a path relative to the root of the source, such as ./deploy", k.path)
	}
	if spec.HealthChecks, err = healthChecks(k.checks); err != nil {
		return nil, err
	}
	if k.wait || len(k.checks) > 0 {
		spec.Timeout = &meta.Duration{Duration: k.checkTimeout}
	}
	if k.retry > 0 {
		spec.RetryInterval = &meta.Duration{Duration: k.retry}
	}
	if spec.DependsOn, err = dependencies(k.dependsOn); err != nil {
		return nil, err
	}
	if k.kubeConfig != "" {
		spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: k.kubeConfig}}
	}
	if k.decryption != "" {
		if err := oneOf("decryption-provider", k.decryption, "sops"); err != nil {
			return nil, err
		}
		spec.Decryption = &kustomizev1.Decryption{Provider: k.decryption, SecretRef: localRef(k.decrypter)}
	} else if k.decrypter != "" {
		return nil, usagef("--decryption-secret needs --decryption-provider")
	}
	return &kustomizev1.Kustomization{Spec: spec}, nil
}

// dependencies parses --depends-on.
func dependencies(flags []string) ([]meta.DependencyReference, error) {
	var refs []meta.DependencyReference
	for _, d := range flags {
		namespace, name, ok := strings.Cut(d, "/")
		if !ok {
			namespace, name = "", d
		}
		if name == "" {
			return nil, usagef("invalid --depends-on %q: use NAME or NAMESPACE/NAME", d)
		}
		to := meta.NamespacedName{Namespace: namespace, Name: name}
		refs = append(refs, meta.DependencyReference{NamespacedName: to})
	}
	return refs, nil
}

func (k *createKustomization) sourceRef() (kustomizev1.SourceReference, error) {
	var ref kustomizev1.SourceReference
	if err := require("source", k.source); err != nil {
		return ref, err
	}
	kind, name, ok := strings.Cut(k.source, "/")
	if !ok {
		kind, name = sourcev1.GitRepositoryKind, k.source
	}
	ref.Kind = kind
	ref.Name, ref.Namespace, _ = strings.Cut(name, ".")
	if ref.Name == "" {
		return ref, usagef("invalid --source %q: use KIND/NAME, such as GitRepository/app", k.source)
	}
	return ref, oneOf("source", kind, sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind,
		sourcev1.ExternalArtifactKind)
}

// checkedVersions are the API versions of the kinds that --health-check supports.
var checkedVersions = map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1",
	"HelmRelease": "helm.toolkit.fluxcd.io/v2"}

var healthCheck = regexp.MustCompile(`^([A-Za-z]+)/([^/]+)\.([^./]+)$`)

func healthChecks(flags []string) ([]meta.ObjectReference, error) {
	var refs []meta.ObjectReference
	for _, text := range flags {
		m := healthCheck.FindStringSubmatch(text)
		if m == nil {
			return nil, usagef("invalid --health-check %q: use KIND/NAME.NAMESPACE, such as Deployment/app.apps", text)
		}
		version, ok := checkedVersions[m[1]]
		if !ok {
			return nil, usagef("invalid --health-check %q: choose from Deployment, StatefulSet, DaemonSet and "+
				"HelmRelease, or set spec.healthChecks in YAML for other kinds", text)
		}
		refs = append(refs, meta.ObjectReference{APIVersion: version, Kind: m[1], Name: m[2], Namespace: m[3]})
	}
	return refs, nil
}
