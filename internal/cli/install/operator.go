package install

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
)

// operatorName is the name of Flux Operator in the labels of its Deployment.
const operatorName = "flux-operator"

// RunsOperator reports whether Flux Operator runs, which reconciles ResourceSets then.
func (t *Target) RunsOperator(ctx context.Context) (bool, error) {
	found, err := t.deployments(ctx, "", NameLabel+"="+operatorName)
	return slices.ContainsFunc(found, func(u *unstructured.Unstructured) bool {
		replicas, isSet, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		return !isSet || replicas > 0
	}), err
}

// isOfOperator reports whether an object is a definition that Flux Operator has, too.
func isOfOperator(u *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	return u.GetKind() == definitionKind && group == controlplanev1.GroupVersion.Group
}

// leaveToOperator leaves the definitions of ResourceSets as Flux Operator installed them, while it runs.
func (i *installer) leaveToOperator(ctx context.Context) error {
	runs, err := i.RunsOperator(ctx)
	if err != nil || !runs {
		return err
	}
	var kept []*unstructured.Unstructured
	for _, u := range i.objects {
		if isOfOperator(u) {
			live, err := i.live(ctx, u)
			if err != nil {
				return cluster.Explain("cannot get "+u.GetKind()+" '"+u.GetName()+"'", err)
			}
			if live != nil && !isOwn(live) {
				i.Step("%s is left to Flux Operator, which runs in this cluster", refOf(u))
				continue
			}
		}
		kept = append(kept, u)
	}
	i.objects = kept
	return nil
}
