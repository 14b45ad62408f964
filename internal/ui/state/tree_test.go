package state

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// withoutPods has a Deployment, whose pods may not be listed.
type withoutPods struct{ client.Reader }

func (withoutPods) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return unstructured.SetNestedMap(o.(*unstructured.Unstructured).Object,
		map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}}, "spec")
}

func (withoutPods) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
}

func TestPodsThatMayNotBeListedAreHidden(t *testing.T) {
	n := &Node{Kind: "Deployment", Namespace: "shop", Name: "web"}
	(&treeReader{cluster: withoutPods{}}).read(t.Context(), n, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if len(n.Below) != 1 || n.Below[0].Status != StatusHidden {
		t.Errorf("below it: %+v", n.Below)
	}
}

// withoutJobs has no Jobs, but pods of others.
type withoutJobs struct{ client.Reader }

func (withoutJobs) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if pods, ok := list.(*corev1.PodList); ok {
		pods.Items = append(pods.Items, corev1.Pod{})
	}
	return nil
}

func TestACronJobThatDidNotRunHasNoPods(t *testing.T) {
	cron := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "CronJob"}}
	if pods, err := Pods(t.Context(), withoutJobs{}, cron); err != nil || len(pods) > 0 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
}

func TestInventoriesOfATreeAreBounded(t *testing.T) {
	r := &inventoryReader{}
	for range 3 {
		o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"inventory": map[string]any{"entries": make([]any, MaxEntries/2+10)}}}}
		r.shorten(o)
	}
	r.shorten(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"inventory": []any{1, 2}}}})
	r.shorten(&unstructured.Unstructured{Object: map[string]any{"status": "x"}})
	if r.entries != MaxEntries || r.omitted != MaxEntries/2+32 {
		t.Errorf("%d entries, %d omitted", r.entries, r.omitted)
	}
}
