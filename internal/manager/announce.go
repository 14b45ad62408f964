package manager

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
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// announceAll tells the subscribers of the artifact server what becomes of all sources, as their objects say.
func announceAll(ctx context.Context, c ctrlcache.Cache, events *artifact.Events) error {
	return errors.Join(
		announce(ctx, c, events, sourcev1.GitRepositoryKind, &sourcev1.GitRepository{}),
		announce(ctx, c, events, sourcev1.OCIRepositoryKind, &sourcev1.OCIRepository{}),
		announce(ctx, c, events, sourcev1.BucketKind, &sourcev1.Bucket{}),
		announce(ctx, c, events, sourcev1.HelmRepositoryKind, &sourcev1.HelmRepository{}),
		announce(ctx, c, events, sourcev1.HelmChartKind, &sourcev1.HelmChart{}),
		announce(ctx, c, events, sourcev1.ExternalArtifactKind, &sourcev1.ExternalArtifact{}),
	)
}

func announce[T source.Object](ctx context.Context, c ctrlcache.Cache, events *artifact.Events, kind string,
	obj T) error {
	informer, err := c.GetInformer(ctx, client.Object(obj))
	if err != nil {
		return err
	}
	a := &announcer[T]{events: events, kind: kind, failing: map[types.NamespacedName]bool{}}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{AddFunc: a.added, UpdateFunc: a.updated,
		DeleteFunc: a.deleted})
	return err
}

// announcer turns what an informer sees of a kind into events. An informer calls it for one object after the other.
type announcer[T source.Object] struct {
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
		a.tell(artifact.EventPublished, obj, "")
	}
	a.health(obj, initial)
}

func (a *announcer[T]) updated(before, after any) {
	b, ok1 := before.(T)
	obj, ok2 := after.(T)
	if !ok1 || !ok2 {
		return
	}
	if obj.GetArtifact() != nil && kustomization.SourceMoved(b, obj) {
		a.tell(artifact.EventPublished, obj, "")
	}
	a.health(obj, false)
}

func (a *announcer[T]) deleted(o any) {
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	if obj, ok := o.(T); ok {
		delete(a.failing, client.ObjectKeyFromObject(obj))
		a.tell(artifact.EventRemoved, obj, "")
	}
}

// health tells when a source begins to fail, and when it is Ready again.
func (a *announcer[T]) health(obj T, quiet bool) {
	key := client.ObjectKeyFromObject(obj)
	ready := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, reconcile.TypeReady)
	if ready == nil {
		return
	}
	switch failing := a.failing[key]; {
	case ready.Status == metav1.ConditionFalse && !failing:
		a.failing[key] = true
		if !quiet {
			a.tell(artifact.EventFailing, obj, ready.Message)
		}
	case ready.Status == metav1.ConditionTrue && failing:
		delete(a.failing, key)
		a.tell(artifact.EventRecovered, obj, "")
	}
}

func (a *announcer[T]) tell(what string, obj T, message string) {
	e := artifact.Event{
		Type: what, Kind: a.kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Message: message,
		Time: time.Now().UTC(),
	}
	if made := obj.GetArtifact(); made != nil && what != artifact.EventRemoved {
		e.Revision, e.Digest, e.URL = made.Revision, made.Digest, made.URL
	}
	a.events.Publish(e)
}
