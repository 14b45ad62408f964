package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// MinimumKubernetes is the first version of Kubernetes that serves all kinds of the manifests:
// ValidatingAdmissionPolicy is stable since then.
const MinimumKubernetes = "1.30"

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// preflight returns an error if the cluster cannot take the installation. It writes nothing.
func (i *installer) preflight(ctx context.Context) error {
	i.Live("checking the cluster")
	if _, err := i.CheckVersion(); err != nil {
		return err
	}
	missing, err := i.MissingRights(ctx, i.objects)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("this account may not install: it lacks the right to %s. Nothing was changed. Ask an "+
			"administrator of the cluster, or use another account with --context or --as",
			strings.Join(missing, "; "))
	}
	if err := i.checkNamespace(ctx); err != nil {
		return err
	}
	return i.checkOthers(ctx)
}

// CheckVersion returns the version of the cluster, and an error if it is too old.
func (t *Target) CheckVersion() (string, error) {
	info, err := t.Kubernetes.Discovery().ServerVersion()
	if err != nil {
		return "", cluster.Explain("cannot get the version of the cluster", err)
	}
	got, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return info.GitVersion, fmt.Errorf("cannot read the version %q of the cluster: %w", info.GitVersion, err)
	}
	if got.LessThan(version.MustParseGeneric(MinimumKubernetes)) {
		return info.GitVersion, fmt.Errorf("Kubernetes %s is too old: Sluice needs version %s or later. Upgrade the "+
			"cluster first", info.GitVersion, MinimumKubernetes)
	}
	return info.GitVersion, nil
}

// checkNamespace returns an error if the namespace is being deleted.
func (i *installer) checkNamespace(ctx context.Context) error {
	ns, err := i.Kubernetes.CoreV1().Namespaces().Get(ctx, i.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return cluster.Explain("cannot get namespace '"+i.Namespace+"'", err)
	}
	if ns.DeletionTimestamp == nil {
		return nil
	}
	reason := ""
	for _, c := range ns.Status.Conditions {
		remains := c.Type == corev1.NamespaceContentRemaining || c.Type == corev1.NamespaceFinalizersRemaining
		if remains && c.Status == corev1.ConditionTrue {
			reason = " (" + c.Message + ")"
		}
	}
	return fmt.Errorf("namespace '%s' is terminating%s. Nothing was changed. Wait until it is gone, or remove what "+
		"blocks its deletion, then run the command again", i.Namespace, reason)
}

// MissingRights returns what the account may not do, of all that is needed to apply the objects.
func (t *Target) MissingRights(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	if allowed, err := t.may(ctx, authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}); allowed ||
		err != nil {
		return nil, err
	}
	checked := map[string]bool{}
	var missing []string
	for _, u := range objects {
		gvk := u.GroupVersionKind()
		mapping, err := t.Mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, cluster.Explain("cannot find kind "+gvk.Kind, err)
		}
		resource := mapping.Resource
		if key := resource.String() + u.GetNamespace(); checked[key] {
			continue
		} else {
			checked[key] = true
		}
		var refused []string
		for _, verb := range []string{"get", "create", "patch"} {
			allowed, err := t.may(ctx, authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group,
				Resource: resource.Resource, Namespace: u.GetNamespace()})
			if err != nil {
				return nil, err
			}
			if !allowed {
				refused = append(refused, verb)
			}
		}
		if len(refused) > 0 {
			missing = append(missing, strings.Join(refused, ", ")+" "+resource.GroupResource().String())
		}
	}
	return missing, nil
}

func (t *Target) may(ctx context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
	review, err := t.Kubernetes.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &a}}, metav1.CreateOptions{})
	if err != nil {
		return false, cluster.Explain("cannot check the rights of this account", err)
	}
	return review.Status.Allowed, nil
}

// checkOthers returns an error if Flux, or Sluice in another namespace, would be in the way.
func (i *installer) checkOthers(ctx context.Context) error {
	if i.Force {
		return nil
	}
	running, err := i.RunningFlux(ctx)
	if err != nil {
		return err
	}
	if conflicts := i.conflicts(running); len(conflicts) > 0 {
		var names []string
		for _, u := range conflicts {
			names = append(names, "Deployment '"+u.GetNamespace()+"/"+u.GetName()+"'")
		}
		slices.Sort(names)
		return fmt.Errorf("Flux runs in this cluster: %s. Nothing was changed. Run sluice migrate flux to take over "+
			"without a restart, choose other controllers with --components, or replace Flux with --force",
			strings.Join(names, ", "))
	}
	foreign, err := i.FluxDefinitions(ctx)
	if err != nil {
		return err
	}
	if len(foreign) > 0 {
		return fmt.Errorf("%d CustomResourceDefinitions of Flux are installed, such as %s. Nothing was changed. Use "+
			"--force to replace them by those of Sluice, which serve all their versions and fields, or run sluice "+
			"migrate flux", len(foreign), foreign[0].GetName())
	}
	if i.CRDsOnly {
		return nil
	}
	own, err := i.OwnDeployments(ctx, "")
	if err != nil {
		return err
	}
	for _, u := range own {
		if u.GetNamespace() != i.Namespace {
			return fmt.Errorf("Sluice is installed in namespace '%s'. Nothing was changed. Update it with -n %s, or "+
				"use --force to install it a second time", u.GetNamespace(), u.GetNamespace())
		}
	}
	return nil
}

// conflicts returns the Deployments of Flux that do what this installation would do.
func (i *installer) conflicts(running []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(running), func(u *unstructured.Unstructured) bool {
		name := u.GetName()
		if name == sourceWatcher {
			name = options.SourceController
		}
		return i.CRDsOnly || !i.Runs(name)
	})
}

// RunningFlux returns the Deployments of Flux that have replicas.
func (t *Target) RunningFlux(ctx context.Context) ([]*unstructured.Unstructured, error) {
	all, err := t.deployments(ctx, "", PartOfLabel+"="+fluxName)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool {
		replicas, found, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		return !isFlux(u) || found && replicas == 0
	}), nil
}

// FluxDefinitions returns the definitions that Flux installed.
func (t *Target) FluxDefinitions(ctx context.Context) ([]*unstructured.Unstructured, error) {
	list, err := t.Dynamic().Resource(definitions).List(ctx, metav1.ListOptions{
		LabelSelector: PartOfLabel + "=" + fluxName})
	if err != nil {
		return nil, cluster.Explain("cannot list CustomResourceDefinitions", err)
	}
	var foreign []*unstructured.Unstructured
	for k := range list.Items {
		if isFlux(&list.Items[k]) {
			foreign = append(foreign, &list.Items[k])
		}
	}
	return foreign, nil
}
