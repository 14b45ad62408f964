package install

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
)

// optionsAnnotation of a Deployment holds the options of the installation, so that an upgrade keeps them.
const optionsAnnotation = "install.sluice.dev/options"

// Remember records the options in the annotations of the Deployments that they were made from.
func Remember(o Options, objects []*unstructured.Unstructured) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	for _, u := range objects {
		if u.GetKind() == deploymentKind {
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[optionsAnnotation] = string(b)
			u.SetAnnotations(annotations)
		}
	}
	return nil
}

// ErrNotInstalled is the error for a namespace without controllers of Sluice.
type ErrNotInstalled struct{ Namespace string }

func (e ErrNotInstalled) Error() string {
	return fmt.Sprintf("Sluice is not installed in namespace '%s'. Run sluice install, or choose the namespace with -n",
		e.Namespace)
}

// OwnDeployments returns the Deployments of Sluice in a namespace, or in all for "", however they were installed.
func (t *Target) OwnDeployments(ctx context.Context, namespace string) ([]*unstructured.Unstructured, error) {
	all, err := t.deployments(ctx, namespace, NameLabel+"="+ownName)
	if err != nil {
		return nil, err
	}
	var own []*unstructured.Unstructured
	for _, u := range all {
		if isOwn(u) {
			own = append(own, u)
		}
	}
	return own, nil
}

func (t *Target) deployments(ctx context.Context, namespace, selector string) ([]*unstructured.Unstructured, error) {
	list, err := t.Dynamic().Resource(prunable[0]).Namespace(namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, cluster.Explain("cannot list Deployments", err)
	}
	var objects []*unstructured.Unstructured
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}

// Recall returns the options that the installation in a namespace recorded. It fails if it recorded none: another tool
// installed it, and its settings would be lost.
func (t *Target) Recall(ctx context.Context, namespace, version string) (Options, error) {
	o := Default(version)
	o.Namespace = namespace
	own, err := t.OwnDeployments(ctx, namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return o, err
	}
	if len(own) == 0 {
		return o, ErrNotInstalled{namespace}
	}
	u := recorder(own)
	if u == nil {
		return o, fmt.Errorf("the settings of Deployment '%s/%s' are not known, as sluice install did not create it. "+
			"Upgrade it with the tool that did, such as Helm or kustomize, or run sluice install with all flags",
			namespace, own[0].GetName())
	}
	if err := json.Unmarshal([]byte(u.GetAnnotations()[optionsAnnotation]), &o); err != nil {
		return o, fmt.Errorf("annotation %s of Deployment '%s/%s' is invalid: %w. Run sluice install with all flags "+
			"instead", optionsAnnotation, namespace, u.GetName(), err)
	}
	o.Namespace = namespace
	return o.Complete()
}

// recorder returns the first of some Deployments that records options, or nil.
func recorder(own []*unstructured.Unstructured) *unstructured.Unstructured {
	for _, u := range own {
		if u.GetAnnotations()[optionsAnnotation] != "" {
			return u
		}
	}
	return nil
}

// recordedArgs returns the further arguments that the installation in a namespace recorded, if there is one. A record
// that cannot be read has none: sluice install with all flags is how to replace it.
func (t *Target) recordedArgs(ctx context.Context, namespace string) ([]string, error) {
	own, err := t.OwnDeployments(ctx, namespace)
	u := recorder(own)
	if err != nil || u == nil {
		return nil, err
	}
	var recorded Options
	_ = json.Unmarshal([]byte(u.GetAnnotations()[optionsAnnotation]), &recorded)
	return recorded.Args, nil
}

// isOwn reports whether an object belongs to Sluice.
func isOwn(u *unstructured.Unstructured) bool { return u.GetLabels()[NameLabel] == ownName }

// isFlux reports whether an object belongs to Flux.
func isFlux(u *unstructured.Unstructured) bool {
	return u.GetLabels()[PartOfLabel] == fluxName && !isOwn(u)
}
