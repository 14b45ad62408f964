package resourceset

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=list

// operatorLabels are on the Deployment of Flux Operator.
var operatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "flux-operator"}

const (
	// operatorTTL is how long a result of [Operator.Running] is used, also that the API server did not answer.
	operatorTTL = 15 * time.Second
	// operatorTimeout bounds a request, for which the passes of all objects wait.
	operatorTimeout = 10 * time.Second
)

// unknownOperator is the result while it is not known whether Flux Operator runs.
const unknownOperator = "unknown"

// Operator finds out whether Flux Operator runs in the cluster: two controllers of one object would undo each other's
// changes. It is safe for concurrent use.
type Operator struct {
	Reader    client.Reader // not cached
	Namespace string        // the only one to look in; empty for all
	Clock     clock.PassiveClock

	mu      sync.Mutex
	checked time.Time
	isKnown bool
	running string
}

// Running returns the Deployment of Flux Operator, as namespace/name; empty if none runs. If that cannot be found out,
// the last result counts, and before the first one, Flux Operator counts as running.
func (o *Operator) Running(ctx context.Context) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.checked.IsZero() || o.Clock.Since(o.checked) >= operatorTTL {
		o.check(ctx)
	}
	if !o.isKnown {
		return unknownOperator
	}
	return o.running
}

// check asks the API server.
func (o *Operator) check(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	found, err := o.find(asked)
	if ctx.Err() != nil {
		return // the process stops
	}
	o.checked = o.Clock.Now()
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot find out whether Flux Operator runs")
		return
	}
	if found != o.running {
		message := "Flux Operator reconciles the objects of fluxcd.controlplane.io; they are left to it"
		if found == "" {
			message = "Flux Operator no longer runs: the objects of fluxcd.controlplane.io are reconciled"
		}
		log.Log.Info(message, "deployment", found)
	}
	o.isKnown, o.running = true, found
}

func (o *Operator) find(ctx context.Context) (string, error) {
	list := &appsv1.DeploymentList{}
	err := o.Reader.List(ctx, list, operatorLabels, client.InNamespace(o.Namespace))
	if apierrors.IsForbidden(err) {
		return "", nil // a role of one namespace only
	}
	if err != nil {
		return "", fmt.Errorf("cannot list Deployments: %w", err)
	}
	for _, d := range list.Items {
		if ptr.Deref(d.Spec.Replicas, 1) > 0 && d.DeletionTimestamp.IsZero() {
			return d.Namespace + "/" + d.Name, nil
		}
	}
	return "", nil
}
