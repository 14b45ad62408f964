package resourceset

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operators answers with Deployments of Flux Operator.
type operators struct {
	client.Reader
	replicas *int32 // nil for none
	err      error
	requests int
}

func (r *operators) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	r.requests++
	if r.err == nil && r.replicas != nil {
		list.(*appsv1.DeploymentList).Items = []appsv1.Deployment{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "flux-operator"},
			Spec:       appsv1.DeploymentSpec{Replicas: r.replicas}}}
	}
	return r.err
}

func TestOperatorCountsAsRunningUntilItIsKnown(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "", nil)
	for _, step := range [][]struct {
		replicas *int32
		err      error
		want     string
	}{
		{{nil, nil, ""}, {nil, errors.New("down"), ""}, {ptr.To[int32](1), nil, "flux-system/flux-operator"}},
		{{nil, errors.New("down"), unknownOperator}, {nil, nil, ""}},
		{{ptr.To[int32](1), nil, "flux-system/flux-operator"}, {nil, errors.New("down"), "flux-system/flux-operator"},
			{ptr.To[int32](0), nil, ""}},
		{{nil, forbidden, ""}}, // a role of one namespace only
	} {
		reader, clock := &operators{}, testclock.NewFakePassiveClock(time.Unix(1, 0))
		o := &Operator{Reader: reader, Clock: clock}
		for n, s := range step {
			reader.replicas, reader.err = s.replicas, s.err
			for range 3 { // the API server is not asked again for each object, even if it fails
				if got := o.Running(t.Context()); got != s.want {
					t.Errorf("%v: step %d: %q", step, n, got)
				}
			}
			if reader.requests != n+1 {
				t.Errorf("%v: %d requests after step %d", step, reader.requests, n)
			}
			clock.SetTime(clock.Now().Add(operatorTTL))
		}
	}
}

func TestOperatorIsAskedAgainAfterACancelledPass(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reader := &operators{err: context.Canceled}
	o := &Operator{Reader: reader, Clock: testclock.NewFakePassiveClock(time.Unix(1, 0))}
	if got := o.Running(ctx); got != unknownOperator {
		t.Errorf("%q", got)
	}
	if reader.err = nil; o.Running(t.Context()) != "" {
		t.Error("it is not asked again")
	}
}
