package source

import (
	"context"
	"errors"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Announce publishes the changes of all sources to the subscribers of the artifact server.
func Announce(ctx context.Context, c ctrlcache.Cache, events *artifact.Events) error {
	return errors.Join(
		announce(ctx, c, events, sourcev1.GitRepositoryKind, &sourcev1.GitRepository{}),
		announce(ctx, c, events, sourcev1.OCIRepositoryKind, &sourcev1.OCIRepository{}),
		announce(ctx, c, events, sourcev1.BucketKind, &sourcev1.Bucket{}),
		announce(ctx, c, events, sourcev1.HelmRepositoryKind, &sourcev1.HelmRepository{}),
		announce(ctx, c, events, sourcev1.HelmChartKind, &sourcev1.HelmChart{}),
		announce(ctx, c, events, sourcev1.ExternalArtifactKind, &sourcev1.ExternalArtifact{}),
	)
}

func announce[T Object](ctx context.Context, c ctrlcache.Cache, events *artifact.Events, kind string, obj T) error {
	informer, err := c.GetInformer(ctx, client.Object(obj))
	if err != nil {
		return err
	}
	a := &announcer[T]{events: events, kind: kind, failing: map[types.NamespacedName]bool{}}
	_, err = informer.AddEventHandler(guard.EventHandler("announcing sources", cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: a.added, UpdateFunc: a.updated, DeleteFunc: a.deleted,
	}))
	return err
}

// announcer converts the changes of one kind to events. The informer calls it sequentially.
type announcer[T Object] struct {
	events  *artifact.Events
	kind    string
	failing map[types.NamespacedName]bool
}

func (a *announcer[T]) added(o any, initial bool) {
	obj, ok := o.(T)
	if !ok {
		return
	}
	if obj.GetArtifact() != nil && !initial {
		a.publish(artifact.EventPublished, obj, "")
	}
	a.publishHealth(obj, initial)
}

func (a *announcer[T]) updated(before, after any) {
	b, ok1 := before.(T)
	obj, ok2 := after.(T)
	if !ok1 || !ok2 {
		return
	}
	if obj.GetArtifact() != nil && artifactChanged(b, obj) {
		a.publish(artifact.EventPublished, obj, "")
	}
	a.publishHealth(obj, false)
}

func (a *announcer[T]) deleted(o any) {
	if obj, ok := o.(T); ok {
		delete(a.failing, client.ObjectKeyFromObject(obj))
		a.publish(artifact.EventRemoved, obj, "")
	}
}

// publishHealth publishes when a source starts to fail and when it is Ready again. Failures that exist when the
// process starts are recorded, but not published.
func (a *announcer[T]) publishHealth(obj T, initial bool) {
	key := client.ObjectKeyFromObject(obj)
	ready := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, reconcile.TypeReady)
	if ready == nil {
		return
	}
	switch failing := a.failing[key]; {
	case ready.Status == metav1.ConditionFalse && !failing:
		a.failing[key] = true
		if !initial {
			a.publish(artifact.EventFailing, obj, ready.Message)
		}
	case ready.Status == metav1.ConditionTrue && failing:
		delete(a.failing, key)
		a.publish(artifact.EventRecovered, obj, "")
	}
}

func (a *announcer[T]) publish(eventType string, obj T, message string) {
	e := artifact.Event{
		Type: eventType, Kind: a.kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Message: message,
		Time: time.Now().UTC(),
	}
	if current := obj.GetArtifact(); current != nil && eventType != artifact.EventRemoved {
		e.Revision, e.Digest, e.URL = current.Revision, current.Digest, current.URL
	}
	a.events.Publish(e)
}
