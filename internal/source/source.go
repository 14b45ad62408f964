package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Object is a source that keeps its artifact by itself.
type Object interface {
	sourcev1.Source
	SetArtifact(*meta.Artifact)
}

// Fetcher is what a kind of source supplies: how it comes by a revision.
type Fetcher[T Object] interface {
	// References lists what the source builds on. A change of one of them wakes it.
	References(obj T) []reconcile.Ref
	// Fetch finds the revision that counts, fetches what is new of it and verifies it. It may set conditions and status
	// fields of the kind's own. An error becomes the condition FetchFailed, unless [In] says another.
	Fetch(ctx context.Context, pass *reconcile.Pass[T]) (*Revision, error)
	// Forget removes what the source keeps beside its artifact. It must be idempotent.
	Forget(ctx context.Context, obj T) error
}

// Revision is a fetched and verified revision.
type Revision struct {
	// Name is the revision in the documented form, such as main@sha1:<commit>.
	Name string
	// Content tells artifacts of one revision apart, such as by the ignore rules.
	Content string
	// Put stores the artifact and then notes in the status what it was made of. It is called only when the
	// revision or its content is not the one that the object has. An error becomes the condition
	// StorageOperationFailed, unless [In] says another.
	Put func(ctx context.Context, key artifact.Key, current *meta.Artifact) (*meta.Artifact, error)
	// Message of the condition Ready; it says that the artifact was stored when empty.
	Message string
	// Reason of the condition Ready; Succeeded when empty.
	Reason string
}

// Keeper is the domain step that all sources share: fetch, store, and keep the last good artifact whatever happens.
type Keeper[T Object] struct {
	Kind    schema.GroupKind
	Store   *artifact.Store
	Fetcher Fetcher[T]

	put sync.Map // from artifact.Key to the revision and content that this process put last
}

// References implements [reconcile.Step].
func (k *Keeper[T]) References(obj T) []reconcile.Ref { return k.Fetcher.References(obj) }

// Reconcile brings the artifact to the revision that counts.
func (k *Keeper[T]) Reconcile(ctx context.Context, pass *reconcile.Pass[T]) reconcile.Outcome {
	obj, key := pass.Object, k.key(pass.Object)
	had := obj.GetArtifact()
	if had != nil && obj.CommonStatus().ObservedGeneration == obj.GetGeneration() {
		pass.CurrentRevision = had.Revision
	}
	k.keep(ctx, obj, key)
	revision, err := k.Fetcher.Fetch(ctx, pass)
	if err == nil {
		err = pass.Admit(revision.Name)
	}
	if pass.IsHeld() {
		return k.held(ctx, pass, had, revision, err)
	}
	if err != nil {
		return failed(obj, conditionOf(err, sourcev1.FetchFailedCondition), err)
	}
	for _, c := range []string{sourcev1.FetchFailedCondition, sourcev1.BuildFailedCondition,
		sourcev1.IncludeUnavailableCondition} {
		reconcile.Unmark(obj, c)
	}
	if err := k.store(ctx, obj, key, revision); err != nil {
		return failed(obj, conditionOf(err, sourcev1.StorageOperationFailedCondition), err)
	}
	reconcile.Unmark(obj, sourcev1.StorageOperationFailedCondition)
	return k.ready(obj, revision, had)
}

// keep makes sure that the artifact at hand is served, where the status says.
func (k *Keeper[T]) keep(ctx context.Context, obj T, key artifact.Key) {
	a := obj.GetArtifact()
	switch {
	case a == nil:
	case k.Store.Verify(ctx, key, a) != nil:
		obj.SetArtifact(nil) // no longer there whole: fetched and written again
		reconcile.Unmark(obj, sourcev1.ArtifactInStorageCondition)
	case a.URL != k.Store.Address(a.Path): // the server has another address than before the restart
		a.URL = k.Store.Address(a.Path)
		obj.SetArtifact(a)
	}
}

// store puts the artifact if it is not the one at hand, and drops those that retention no longer keeps.
func (k *Keeper[T]) store(ctx context.Context, obj T, key artifact.Key, revision *Revision) error {
	content := revision.Name + "\n" + revision.Content
	if last, _ := k.put.Load(key); last != content || !obj.GetArtifact().HasRevision(revision.Name) {
		markOutdated(obj, revision.Name)
		a, err := revision.Put(ctx, key, obj.GetArtifact())
		if err != nil {
			return err
		}
		obj.SetArtifact(a)
		k.put.Store(key, content)
	}
	reconcile.Unmark(obj, sourcev1.ArtifactOutdatedCondition)
	_, err := k.Store.Collect(key, obj.GetArtifact())
	return err
}

// markOutdated says that there is a newer revision than that of the artifact, if that is so, for as long as
// it is not stored.
func markOutdated(obj Object, revision string) {
	if a := obj.GetArtifact(); a != nil && revision != "" && !a.HasRevision(revision) {
		reconcile.Mark(obj, sourcev1.ArtifactOutdatedCondition, metav1.ConditionTrue, sourcev1.NewRevisionReason,
			fmt.Sprintf("new revision '%s' is not stored yet", revision))
	}
}

// ready tells of the artifact in the documented words: as one that is new, where it is not the one that the object had.
func (k *Keeper[T]) ready(obj T, revision *Revision, had *meta.Artifact) reconcile.Outcome {
	stored := markStored(obj, revision.Name)
	message, reason := cmp.Or(revision.Message, stored), cmp.Or(revision.Reason, meta.SucceededReason)
	a := obj.GetArtifact()
	o := reconcile.Ready(reason, "%s", message).WithArtifact(a).WithMetadata("revision", revision.Name).WithMetadata("digest", a.Digest)
	if had == nil || had.Digest != a.Digest || !had.HasRevision(a.Revision) {
		return o.WithEvent(cmp.Or(revision.Reason, sourcev1.NewArtifactReason))
	}
	return o
}

// markStored says that the artifact of a revision is served, and returns the words.
func markStored(obj Object, revision string) string {
	stored := fmt.Sprintf("stored artifact for revision '%s'", revision)
	reconcile.Mark(obj, sourcev1.ArtifactInStorageCondition, metav1.ConditionTrue, meta.SucceededReason, stored)
	return stored
}

// Finalize removes the artifact and what else is kept of the source.
func (k *Keeper[T]) Finalize(ctx context.Context, obj T) error {
	if err := k.Fetcher.Forget(ctx, obj); err != nil {
		return err
	}
	k.put.Delete(k.key(obj))
	return k.Store.Remove(k.key(obj))
}

func (k *Keeper[T]) key(obj T) artifact.Key {
	return artifact.Key{Kind: k.Kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// In says which condition tells of the error, for a step that has one of its own.
func In(condition string, err error) error {
	if err == nil {
		return nil
	}
	return &conditioned{err, condition}
}

type conditioned struct {
	error
	condition string
}

func (c *conditioned) Unwrap() error { return c.error }

func conditionOf(err error, otherwise string) string {
	var c *conditioned
	if errors.As(err, &c) {
		return c.condition
	}
	return otherwise
}

// failed reports a failure in a condition of its own beside Ready. The last artifact stays and keeps being served.
func failed(obj reconcile.Object, condition string, err error) reconcile.Outcome {
	reconcile.Mark(obj, condition, metav1.ConditionTrue, fault.Reason(err, meta.FailedReason), err.Error())
	return reconcile.Failed(err)
}

// refuseAccessFrom fails closed on what the legacy versions define and nobody honours: it is meant to guard
// the artifact.
func refuseAccessFrom(from *meta.AccessFrom) error {
	if from == nil {
		return nil
	}
	return fault.New(meta.AccessDeniedReason, "spec.accessFrom is set, which is not honoured").
		WithHint("Nothing was fetched. Remove the field; --no-cross-namespace-refs keeps other namespaces from " +
			"the artifact").Final()
}
