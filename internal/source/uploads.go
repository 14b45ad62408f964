package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Uploads publishes what programs upload as the artifacts of ExternalArtifacts, which these programs or their users
// have created. It stores the archive and writes the status, as policy sluice-status lets only controllers write it.
type Uploads struct {
	Store  *artifact.Store
	Client client.Client
	Reader client.Reader // without a cache, so that the status is never older than the last upload
	Events reconcile.Events
}

// Publish publishes an upload, and returns the HTTP status of the result.
func (u *Uploads) Publish(ctx context.Context, up artifact.Upload) (status int, err error) {
	live := &sourcev1.ExternalArtifact{}
	key := client.ObjectKey{Namespace: up.Key.Namespace, Name: up.Key.Name}
	if err := u.Reader.Get(ctx, key, live); apierrors.IsNotFound(err) {
		return http.StatusNotFound, fmt.Errorf("ExternalArtifact '%s' does not exist", key)
	} else if err != nil {
		return statusOf(err), failedOn(key, err)
	}
	if isGenerated(live) {
		return http.StatusUnprocessableEntity, fmt.Errorf("ExternalArtifact '%s' belongs to an ArtifactGenerator", key)
	}
	if !live.DeletionTimestamp.IsZero() {
		return http.StatusConflict, fmt.Errorf("ExternalArtifact '%s' is being deleted", key)
	}
	desired := live.DeepCopy()
	if err := u.store(ctx, up, desired); err != nil {
		return http.StatusInternalServerError, err
	}
	if err := u.note(ctx, live, desired); err != nil {
		return statusOf(err), failedOn(key, err)
	}
	if _, err := u.Store.Collect(externalKeyOf(live), desired.Status.Artifact); err != nil {
		return http.StatusInternalServerError, err
	}
	return http.StatusOK, nil
}

// statusOf returns the HTTP status of an error of the API server. Those that pass let the program send its upload
// again.
func statusOf(err error) int {
	var api apierrors.APIStatus
	if errors.As(err, &api) && api.Status().Code < http.StatusInternalServerError {
		return int(api.Status().Code)
	}
	return http.StatusServiceUnavailable
}

// store stores the artifact of an upload, and sets the status that describes it. A failure leaves the last artifact.
func (u *Uploads) store(ctx context.Context, up artifact.Upload, o *sourcev1.ExternalArtifact) error {
	o.Status.ObservedGeneration = o.Generation
	if up.Tree == nil {
		reconcile.Mark(o, reconcile.TypeReady, metav1.ConditionFalse, meta.RenderFailedReason,
			fmt.Sprintf("revision %s: %s", up.Revision, up.Failure))
		return nil
	}
	key := externalKeyOf(o)
	a, err := u.Store.Put(ctx, key, up.Tree, up.Revision, o.Status.Artifact)
	if err != nil {
		return err
	}
	u.Store.Release(key) // the next upload may reach another replica
	o.Status.Artifact = a
	reconcile.Mark(o, reconcile.TypeReady, metav1.ConditionTrue, meta.SucceededReason,
		"stored artifact for revision '"+a.Revision+"'")
	return nil
}

// note writes the status and an event if they differ from the last ones.
func (u *Uploads) note(ctx context.Context, live, desired *sourcev1.ExternalArtifact) error {
	if meta.Equal(live.Status, desired.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if err := u.Client.Status().Patch(ctx, desired, patch); err != nil {
		return err
	}
	ready := apimeta.FindStatusCondition(desired.Status.Conditions, reconcile.TypeReady)
	event := reconcile.Event{Type: corev1.EventTypeNormal, Reason: ready.Reason, Message: ready.Message}
	if ready.Status == metav1.ConditionFalse {
		event.Type = corev1.EventTypeWarning
	}
	u.Events.Emit(sourcev1.GroupVersion.Group, desired, event)
	return nil
}

// RemoveDeleted removes the artifacts of an uploaded ExternalArtifact when it is deleted: it has no finalizer, as it
// has no controller. Informers call it.
func (u *Uploads) RemoveDeleted(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		obj, ok := o.(*sourcev1.ExternalArtifact)
		if !ok || isGenerated(obj) {
			return
		}
		if err := u.Store.Remove(externalKeyOf(obj)); err != nil {
			log.FromContext(ctx).Info("cannot remove the artifacts of a deleted ExternalArtifact; the next start "+
				"tries again", "namespace", obj.Namespace, "name", obj.Name, "error", err.Error())
		}
	}}
}

func externalKeyOf(o *sourcev1.ExternalArtifact) artifact.Key {
	return externalKey(o.Namespace, o.Name)
}

// isGenerated reports whether an ArtifactGenerator publishes the artifact of an object.
func isGenerated(o *sourcev1.ExternalArtifact) bool {
	return o.Labels[extensionsv1beta1.GeneratorLabel] != ""
}
