package install

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
)

// stopFlux scales the Deployments of Flux to 0 that do what this installation does, if it may replace them, and returns
// them. Otherwise both would reconcile the same objects. A dry-run only reports them.
func (i *installer) stopFlux(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if !i.Force {
		return nil, nil
	}
	running, err := i.RunningFlux(ctx)
	if err != nil {
		return nil, err
	}
	stopped := i.conflicts(running)
	for _, u := range stopped {
		if i.DryRun {
			i.change("%s of Flux would be scaled to 0", refOf(u))
			continue
		}
		if _, err := i.Dynamic().Resource(prunable[0]).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(),
			types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{
				FieldManager: fieldManager}); err != nil {
			return nil, cluster.Explain(fmt.Sprintf("cannot stop %s of Flux", refOf(u)), err)
		}
		i.Done("%s of Flux scaled to 0", refOf(u))
	}
	return stopped, nil
}

// waitStopped waits until Deployments that were scaled to 0 have no Pods.
func (i *installer) waitStopped(ctx context.Context, stopped []*unstructured.Unstructured) error {
	tick := time.NewTicker(inspectInterval / 4)
	defer tick.Stop()
	for _, u := range stopped {
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
			return fmt.Errorf("cannot read %s: %w", refOf(u), err)
		}
		selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		if err != nil {
			return fmt.Errorf("%s has an invalid selector: %w", refOf(u), err)
		}
		for {
			pods, err := i.Kubernetes.CoreV1().Pods(u.GetNamespace()).List(ctx,
				metav1.ListOptions{LabelSelector: selector.String()})
			if err != nil {
				return cluster.Explain(fmt.Sprintf("cannot list the Pods of %s", refOf(u)), err)
			}
			if len(pods.Items) == 0 {
				break
			}
			i.Live("waiting for the Pods of %s to end", refOf(u))
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s of Flux still has %d Pods %s after the start of the command. Raise --timeout, "+
					"or delete the Pods, and run the command again", refOf(u), len(pods.Items), i.Timeout)
			case <-tick.C:
			}
		}
	}
	return nil
}
