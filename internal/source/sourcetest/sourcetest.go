// Package sourcetest contains the suite that every [source.Fetcher] must pass, against a real server. It is imported by
// tests only.
package sourcetest

import (
	"reflect"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// Suite is a fetcher to test, with a server that it fetches from.
type Suite[T source.Object, R source.Revision] struct {
	Kind    schema.GroupKind
	Fetcher source.Fetcher[T, R]
	Store   *artifact.Store
	// Object is a source that refers to the server. It must have a UID.
	Object T
	// Publish makes version n of the content the current one; n counts from 1.
	Publish func(n int)
	// Fetches returns how many requests for content the server has answered. Requests that only resolve a revision,
	// such as listings, do not count.
	Fetches func() int64
	// IsResolvedByContent means that Resolve must download content to identify it, once for each revision.
	IsResolvedByContent bool
	// Stop stops the server.
	Stop func()
}

// run is one run of a suite.
type run[T source.Object, R source.Revision] struct {
	Suite[T, R]
	*testing.T
	controller *source.Controller[T, R]
}

// Run runs the suite. Its steps share the server and build on each other.
func (s Suite[T, R]) Run(t *testing.T) {
	r := &run[T, R]{Suite: s, T: t,
		controller: &source.Controller[T, R]{Kind: s.Kind, Store: s.Store, Fetcher: s.Fetcher}}
	s.Publish(1)
	r.resolveIsStable()
	r.fetchStoresAnArtifact()
	r.unchangedContentIsNotFetched()
	s.Publish(2)
	r.resolveFetchesNothing()
	r.changeStoresAnotherArtifact()
	r.lostArtifactIsFetchedAgain()
	s.Publish(3)
	s.Stop()
	r.failureKeepsTheArtifact()
	r.forgetIsIdempotent()
}

// resolve resolves the current revision, as every pass does, and releases it, as a closed gate does.
func (r *run[T, R]) resolve() string {
	r.Helper()
	revision, err := r.Fetcher.Resolve(r.Context(), source.Request[T]{Object: r.Object})
	if err != nil {
		r.Fatalf("Resolve: %v", err)
	}
	if closer, ok := any(revision).(interface{ Close() error }); ok {
		defer func() {
			if err := closer.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
		}()
	}
	return revision.String()
}

// reconcile runs one pass without gates, and returns the artifact.
func (r *run[T, R]) reconcile() *meta.Artifact {
	r.Helper()
	r.controller.Reconcile(r.Context(), &reconcile.Pass[T]{Object: r.Object})
	return r.Object.GetArtifact()
}

// requireStored fails the test unless the object has a complete artifact and no failure.
func (r *run[T, R]) requireStored(a *meta.Artifact) {
	r.Helper()
	conditions := r.Object.CommonStatus().Conditions
	if a == nil || !apimeta.IsStatusConditionTrue(conditions, sourcev1.ArtifactInStorageCondition) {
		r.Fatalf("no artifact is stored; conditions %+v", conditions)
	}
	if err := r.Store.Verify(r.Context(), r.key(), a); err != nil {
		r.Fatalf("the artifact is not complete: %v", err)
	}
}

func (r *run[T, R]) key() artifact.Key {
	return artifact.Key{Kind: r.Kind.Kind, Namespace: r.Object.GetNamespace(), Name: r.Object.GetName()}
}

func (r *run[T, R]) resolveIsStable() {
	first := r.resolve()
	fetches := r.Fetches()
	if second := r.resolve(); first == "" || second != first {
		r.Errorf("Resolve returned %q, then %q for the same content", first, second)
	}
	if n := r.Fetches(); n != fetches || n > 0 && !r.IsResolvedByContent {
		r.Errorf("Resolve made %d requests for content, then %d", fetches, n-fetches)
	}
}

func (r *run[T, R]) fetchStoresAnArtifact() {
	revision := r.resolve()
	a := r.reconcile()
	r.requireStored(a)
	if a.Revision != revision {
		r.Errorf("the artifact has revision %q, want %q", a.Revision, revision)
	}
}

func (r *run[T, R]) unchangedContentIsNotFetched() {
	before, fetches := r.Object.GetArtifact().DeepCopy(), r.Fetches()
	after := r.reconcile()
	r.requireStored(after)
	if !reflect.DeepEqual(after, before) {
		r.Errorf("the artifact changed from %+v to %+v", before, after)
	}
	if n := r.Fetches() - fetches; n != 0 {
		r.Errorf("%d requests for unchanged content", n)
	}
}

func (r *run[T, R]) resolveFetchesNothing() {
	before := r.Object.GetArtifact().DeepCopy()
	if revision := r.resolve(); revision == before.Revision {
		r.Errorf("Resolve returned %q for changed content", revision)
	}
	fetches := r.Fetches()
	for range 2 {
		r.resolve()
	}
	if n := r.Fetches() - fetches; n != 0 {
		r.Errorf("%d requests for content that was not admitted", n)
	}
	if after := r.Object.GetArtifact(); !reflect.DeepEqual(after, before) {
		r.Errorf("Resolve changed the artifact to %+v", after)
	}
}

func (r *run[T, R]) changeStoresAnotherArtifact() {
	before, revision := r.Object.GetArtifact().DeepCopy(), r.resolve()
	after := r.reconcile()
	r.requireStored(after)
	if after.Revision != revision || after.Digest == before.Digest || after.Path == before.Path {
		r.Errorf("changed content %q made %+v after %+v", revision, after, before)
	}
}

func (r *run[T, R]) lostArtifactIsFetchedAgain() {
	before := r.Object.GetArtifact().DeepCopy()
	if err := r.Store.Remove(r.key()); err != nil {
		r.Fatal(err)
	}
	after := r.reconcile()
	r.requireStored(after)
	if after.Revision != before.Revision || after.Digest != before.Digest {
		r.Errorf("the artifact %+v was fetched again as %+v", before, after)
	}
}

func (r *run[T, R]) failureKeepsTheArtifact() {
	before := r.Object.GetArtifact().DeepCopy()
	after := r.reconcile()
	r.requireStored(after)
	if !reflect.DeepEqual(after, before) {
		r.Errorf("a failed fetch changed the artifact from %+v to %+v", before, after)
	}
	c := apimeta.FindStatusCondition(r.Object.CommonStatus().Conditions, sourcev1.FetchFailedCondition)
	if c == nil || c.Status != "True" || c.Reason == "" || c.Message == "" {
		r.Errorf("condition FetchFailed of a failed fetch is %+v", c)
	}
}

func (r *run[T, R]) forgetIsIdempotent() {
	for range 2 {
		if err := r.Fetcher.Forget(r.Context(), r.Object); err != nil {
			r.Errorf("Forget: %v", err)
		}
		if err := r.controller.Finalize(r.Context(), r.Object); err != nil {
			r.Errorf("Finalize: %v", err)
		}
	}
	if r.Store.Verify(r.Context(), r.key(), r.Object.GetArtifact()) == nil {
		r.Error("the artifact is still stored")
	}
}
