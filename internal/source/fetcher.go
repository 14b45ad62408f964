package source

import (
	"context"
	"errors"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Object is a source whose artifact is fetched and stored by Sluice.
type Object interface {
	sourcev1.Source
	SetArtifact(*meta.Artifact)
}

// Fetcher is the part of a source controller that is specific to its kind. The controller calls Resolve, asks the gates
// whether the revision is admitted, and only then calls Fetch. Implementations must not write to the object. They must
// be safe for concurrent use with different objects; calls for one object do not overlap.
//
// An error of Resolve or Fetch becomes the condition FetchFailed, unless [In] names another condition. The last
// artifact stays available. The suite in the package sourcetest checks this contract.
type Fetcher[T Object, R Revision] interface {
	// References lists the objects that the source depends on.
	References(obj T) []reconcile.Ref
	// Resolve finds the current revision of the source. It transfers as little as is needed to identify the revision:
	// references, a manifest digest or a listing. Each implementation documents what it transfers, as gates do not
	// prevent it. Resolving an unchanged source again returns an equal revision.
	Resolve(ctx context.Context, req Request[T]) (R, error)
	// Fetch fetches and verifies a revision. It is called on every pass in which the revision is admitted, and
	// transfers nothing if [Request.IsStored] reports that its content is already stored. Beside an error, only the
	// field Verification of the result is used.
	Fetch(ctx context.Context, req Request[T], revision R) (Fetched[T], error)
	// Forget removes what the fetcher keeps for an object, such as caches. It must be idempotent.
	Forget(ctx context.Context, obj T) error
}

// Revision is a resolved revision. A revision that holds resources, such as a connection, also implements [io.Closer];
// the controller closes it at the end of the pass.
type Revision interface {
	// String returns the revision in the documented form, such as main@sha1:<commit>. It is empty for a source that
	// has no artifact.
	String() string
}

// Request is what a fetcher needs to know about a pass.
type Request[T Object] struct {
	Object T
	// IsRequested reports whether a user or a tool requested the pass by annotation: caches must not answer it.
	IsRequested bool

	stored string // the key of the artifact that this process stored last for the object
}

// IsStored reports whether this process stored the artifact of the object from this revision and content. It reports
// false after a restart.
func (r Request[T]) IsStored(revision, content string) bool {
	return r.stored == storedKey(revision, content) && r.Object.GetArtifact().HasRevision(revision)
}

func storedKey(revision, content string) string { return revision + "\n" + content }

// Fetched is a fetched and verified revision. If neither Tree nor File is set, the artifact of the object is
// up to date.
type Fetched[T Object] struct {
	// Content distinguishes artifacts of the same revision, such as by the ignore rules. It is the second argument of
	// the next [Request.IsStored].
	Content string
	// Tree is the content of the artifact.
	Tree *artifact.Tree
	// File is the content of the artifact, stored as it is. The controller closes it. If its method Err, if any,
	// returns an error after reading, that error is a failure of the fetch, not of the storage.
	File io.ReadCloser
	// Extension is the file name extension of File, such as ".tgz".
	Extension string
	// Metadata becomes the metadata of the artifact.
	Metadata map[string]string
	// Observed is recorded in the status once the artifact is stored; may be nil.
	Observed Observed[T]
	// Verification is the result of verifying signatures; nil if the object does not ask for it.
	Verification *Verification
	// Reason and Message of the condition Ready. By default they report that the artifact was stored.
	Reason, Message string
	// HasNoArtifact means that objects such as this one have no artifact. An existing artifact is removed.
	HasNoArtifact bool
}

// isUnchanged reports whether there is nothing to store.
func (f Fetched[T]) isUnchanged() bool { return f.Tree == nil && f.File == nil }

// Observed is what the artifact of an object was made from, as its status records it.
type Observed[T Object] interface {
	// Record writes the values to the status of the object.
	Record(obj T)
}

// Verification is a value of the condition SourceVerified. The zero value keeps the condition as it is: the
// same content was verified before.
type Verification struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	// Signers are the fingerprints of the keys, or the identities, whose signatures were verified.
	Signers string
}

// verified is the result of a successful verification by keys or identities.
func verified(signers, message string) *Verification {
	return &Verification{Status: metav1.ConditionTrue, Reason: meta.SucceededReason, Message: message, Signers: signers}
}

// unverified is the result of a failed verification.
func unverified(err error) *Verification {
	return &Verification{Status: metav1.ConditionFalse, Message: err.Error(),
		Reason: fault.Reason(err, sourcev1.VerificationErrorReason)}
}

// In makes an error appear in the given condition instead of the default one.
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

// conditionOf returns the condition set by [In], or the fallback.
func conditionOf(err error, fallback string) string {
	var c *conditioned
	if errors.As(err, &c) {
		return c.condition
	}
	return fallback
}

// refuseAccessFrom refuses objects with spec.accessFrom. Legacy versions define the field as a restriction, so ignoring
// it would grant access that its author did not intend.
func refuseAccessFrom(from *meta.AccessFrom) error {
	if from == nil {
		return nil
	}
	return fault.New(meta.AccessDeniedReason, "spec.accessFrom is not supported").
		WithHint("Nothing was fetched. Remove the field; use --no-cross-namespace-refs to keep other namespaces from " +
			"the artifact").Final()
}
