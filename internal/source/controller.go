package source

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// Controller is the step of all source kinds that have an artifact: resolve the revision, ask the gates, fetch, store.
// It keeps the last artifact available after failures, and is the only writer of conditions and status.
type Controller[T Object, R Revision] struct {
	Kind    schema.GroupKind
	Store   *artifact.Store
	Fetcher Fetcher[T, R]

	stored sync.Map // artifact.Key to the storedKey of the artifact that this process stored last
}

// fetchConditions are the conditions of a failed fetch. At most one of them is set.
var fetchConditions = []string{sourcev1.FetchFailedCondition, sourcev1.BuildFailedCondition,
	sourcev1.IncludeUnavailableCondition}

// References implements [reconcile.Step].
func (c *Controller[T, R]) References(obj T) []reconcile.Ref { return c.Fetcher.References(obj) }

// Reconcile implements [reconcile.Step].
func (c *Controller[T, R]) Reconcile(ctx context.Context, pass *reconcile.Pass[T]) reconcile.Outcome {
	obj, previous := pass.Object, pass.Object.GetArtifact()
	if previous != nil && obj.CommonStatus().ObservedGeneration == obj.GetGeneration() {
		pass.CurrentRevision = previous.Revision
	}
	c.checkArtifact(ctx, obj)
	req := c.request(pass)
	resolved := tracing.Begin(ctx, "resolve")
	revision, err := c.Fetcher.Resolve(ctx, req)
	resolved(err)
	if err == nil {
		defer closeRevision(revision)
		markOutdated(obj, revision.String())
		err = pass.Admit(revision.String())
	}
	if pass.IsHeld() {
		return c.held(ctx, pass, req, previous, revision, err)
	}
	if err != nil {
		return failed(obj, conditionOf(err, sourcev1.FetchFailedCondition), err)
	}
	done := tracing.Begin(ctx, "fetch and verify")
	fetched, err := c.Fetcher.Fetch(ctx, req, revision)
	done(err)
	markVerified(obj, fetched.Verification, err)
	if err != nil {
		return failed(obj, conditionOf(err, sourcev1.FetchFailedCondition), err)
	}
	return c.finish(ctx, obj, previous, revision.String(), fetched)
}

// request describes the pass to the fetcher.
func (c *Controller[T, R]) request(pass *reconcile.Pass[T]) Request[T] {
	req := Request[T]{Object: pass.Object, IsRequested: pass.Requested}
	if last, ok := c.stored.Load(c.key(pass.Object)); ok {
		req.stored = last.(string)
	}
	return req
}

// closeRevision releases the resources of a revision.
func closeRevision(revision any) {
	if closer, ok := revision.(io.Closer); ok {
		_ = closer.Close() // nothing was written
	}
}

// finish stores what was fetched, and reports the artifact.
func (c *Controller[T, R]) finish(ctx context.Context, obj T, previous *meta.Artifact, revision string,
	fetched Fetched[T]) reconcile.Outcome {
	for _, condition := range fetchConditions {
		reconcile.Unmark(obj, condition)
	}
	done := tracing.Begin(ctx, "store")
	err := c.store(ctx, obj, revision, fetched)
	done(err)
	if err != nil {
		return failed(obj, conditionOf(err, sourcev1.StorageOperationFailedCondition), err)
	}
	reconcile.Unmark(obj, sourcev1.StorageOperationFailedCondition)
	if fetched.HasNoArtifact {
		return reconcile.Ready(cmp.Or(fetched.Reason, meta.SucceededReason), "%s", fetched.Message)
	}
	message := cmp.Or(fetched.Message, markStored(obj, revision))
	a := obj.GetArtifact()
	o := reconcile.Ready(cmp.Or(fetched.Reason, meta.SucceededReason), "%s", message).WithArtifact(a).
		WithMetadata("revision", revision).WithMetadata("digest", a.Digest)
	if previous == nil || previous.Digest != a.Digest || !previous.HasRevision(a.Revision) {
		o = warnOfCase(o, fetched.Tree)
		return o.WithEvent(cmp.Or(fetched.Reason, sourcev1.NewArtifactReason))
	}
	return o
}

// warnOfCase adds a warning if names of a new artifact differ only in case.
func warnOfCase(o reconcile.Outcome, tree *artifact.Tree) reconcile.Outcome {
	if tree == nil || tree.CaseClash() == "" {
		return o
	}
	return o.Warn(sourcev1.NamesDifferInCaseReason, "%s. Checkouts on file systems that ignore case have only one of "+
		"the two. Rename one of them", tree.CaseClash())
}

// checkArtifact removes the artifact from the status if its file is missing or damaged, so that it is fetched again,
// and corrects its URL if the address of the server has changed.
func (c *Controller[T, R]) checkArtifact(ctx context.Context, obj T) {
	a := obj.GetArtifact()
	switch {
	case a == nil:
	case c.Store.Verify(ctx, c.key(obj), a) != nil:
		obj.SetArtifact(nil)
		reconcile.Unmark(obj, sourcev1.ArtifactInStorageCondition)
	case a.URL != c.Store.Address(a.Path):
		a.URL = c.Store.Address(a.Path)
		obj.SetArtifact(a)
	}
}

// store stores the artifact unless it is up to date, and removes old ones that are not retained.
func (c *Controller[T, R]) store(ctx context.Context, obj T, revision string, fetched Fetched[T]) error {
	if fetched.HasNoArtifact {
		return c.removeArtifact(ctx, obj)
	}
	if !fetched.isUnchanged() {
		a, err := c.put(ctx, obj, revision, fetched, obj.GetArtifact())
		if err != nil {
			return err
		}
		obj.SetArtifact(a)
	}
	if fetched.Observed != nil {
		fetched.Observed.Record(obj)
	}
	setSigners(obj, fetched.Verification)
	c.stored.Store(c.key(obj), storedKey(revision, fetched.Content))
	reconcile.Unmark(obj, sourcev1.ArtifactOutdatedCondition)
	_, err := c.Store.Collect(c.key(obj), obj.GetArtifact())
	return err
}

// put writes the artifact to the store.
func (c *Controller[T, R]) put(ctx context.Context, obj T, revision string, fetched Fetched[T],
	current *meta.Artifact) (a *meta.Artifact, err error) {
	if fetched.File != nil {
		defer fetched.File.Close() // it was only read
		a, err = c.Store.PutFile(ctx, c.key(obj), fetched.Extension, fetched.File, revision, current)
		if file, ok := fetched.File.(interface{ Err() error }); ok && file.Err() != nil {
			return nil, In(sourcev1.FetchFailedCondition, file.Err())
		}
	} else {
		a, err = c.Store.Put(ctx, c.key(obj), fetched.Tree, revision, current)
	}
	if err != nil {
		return nil, err
	}
	a.Metadata = traced(ctx, fetched.Metadata, a, current)
	return a, nil
}

// traced returns the metadata of a new artifact with the trace of its change. If the metadata names a trace, such as
// that of the program that built an OCI artifact, the change is part of it. An artifact that is stored again keeps its
// trace.
func traced(ctx context.Context, metadata map[string]string, a, current *meta.Artifact) map[string]string {
	change := ""
	if current != nil && current.Digest == a.Digest && current.Revision == a.Revision {
		change = current.Metadata[meta.TraceKey]
	}
	if change == "" {
		change = tracing.Change(ctx, metadata[meta.TraceKey])
	}
	if change == "" {
		return metadata
	}
	with := map[string]string{}
	maps.Copy(with, metadata)
	with[meta.TraceKey] = change
	return with
}

// removeArtifact removes the artifact of an object that no longer has one.
func (c *Controller[T, R]) removeArtifact(ctx context.Context, obj T) error {
	if obj.GetArtifact() == nil {
		return nil
	}
	if err := c.Finalize(ctx, obj); err != nil {
		return err
	}
	obj.SetArtifact(nil)
	reconcile.Unmark(obj, sourcev1.ArtifactInStorageCondition)
	reconcile.Unmark(obj, sourcev1.ArtifactOutdatedCondition)
	return nil
}

// Finalize implements [reconcile.Step]: it removes the artifact and what the fetcher keeps.
func (c *Controller[T, R]) Finalize(ctx context.Context, obj T) error {
	if err := c.Fetcher.Forget(ctx, obj); err != nil {
		return err
	}
	c.stored.Delete(c.key(obj))
	return c.Store.Remove(c.key(obj))
}

// Leave implements [reconcile.Leaver]. The artifact stays: consumers use it.
func (c *Controller[T, R]) Leave(obj T) {
	if err := c.Fetcher.Forget(context.Background(), obj); err != nil {
		log.Log.Error(err, "cannot remove what is stored for an object of another process", "kind", c.Kind.Kind,
			"namespace", obj.GetNamespace(), "name", obj.GetName())
	}
	c.stored.Delete(c.key(obj))
	c.Store.Release(c.key(obj))
}

func (c *Controller[T, R]) key(obj T) artifact.Key {
	return artifact.Key{Kind: c.Kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// markOutdated sets ArtifactOutdated if the artifact has another revision. The condition is removed once the new
// revision is stored.
func markOutdated(obj Object, revision string) {
	if a := obj.GetArtifact(); a != nil && revision != "" && !a.HasRevision(revision) {
		reconcile.Mark(obj, sourcev1.ArtifactOutdatedCondition, metav1.ConditionTrue, sourcev1.NewRevisionReason,
			fmt.Sprintf("new revision '%s' is not stored yet", revision))
	}
}

// markStored sets ArtifactInStorage, and returns its message.
func markStored(obj Object, revision string) string {
	message := fmt.Sprintf("stored artifact for revision '%s'", revision)
	reconcile.Mark(obj, sourcev1.ArtifactInStorageCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	return message
}

// markVerified sets SourceVerified to the result of a fetch.
func markVerified(obj Object, v *Verification, err error) {
	switch {
	case v == nil && err == nil:
		reconcile.Unmark(obj, sourcev1.SourceVerifiedCondition)
	case v != nil && v.Status != "":
		reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, v.Status, v.Reason, v.Message)
	}
}

// setSigners records who signed the stored artifact, on kinds whose status has a field for it. A revision that was
// verified, but could not be stored, says nothing about the artifact.
func setSigners(obj Object, v *Verification) {
	if v == nil {
		v = &Verification{}
	}
	switch o := any(obj).(type) {
	case *sourcev1.GitRepository:
		o.Status.SourceVerificationFingerprint = v.Signers
	case *sourcev1.OCIRepository:
		o.Status.SourceVerificationFingerprint = v.Signers
	}
}

// failed reports a failure in the given condition, in addition to Ready.
func failed(obj reconcile.Object, condition string, err error) reconcile.Outcome {
	for _, other := range fetchConditions {
		reconcile.Unmark(obj, other)
	}
	reconcile.Mark(obj, condition, metav1.ConditionTrue, fault.Reason(err, meta.FailedReason), err.Error())
	return reconcile.Failed(err)
}
