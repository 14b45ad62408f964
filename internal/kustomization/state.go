package kustomization

import (
	"sync/atomic"
	"time"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// state is what this process stores about a Kustomization between passes. If it is lost, the next pass builds and
// dry-runs everything again. Passes of one Kustomization do not run concurrently; fields that passes of others read are
// atomic.
type state struct {
	spec    rollout.SpecCheck
	started time.Time              // of the work in progress, from its build to its health; zero if there is none
	times   *kustomizev1.StepTimes // of the steps of that work; nil if the last build was not applied, or was before
	build   buildState
	apply   applyState
	health  rollout.Health
	preview rollout.PendingPreview
	decided rollout.Decided
}

// buildState is the last build.
type buildState struct {
	generation int64        // of the Kustomization
	inputs     string       // digest of the variables and keys
	trace      *build.Trace // the files that it read; nil if the build must not be reused
	err        error        // returned again until the trace or the inputs change
	digest     string       // of the last successful build
	declared   rollout.Declared
}

// isCurrent reports whether a build with the same settings, inputs and tree would have the same result.
func (b *buildState) isCurrent(obj *kustomizev1.Kustomization, in *inputs, tree *artifact.Tree) bool {
	return b.trace != nil && b.generation == obj.Generation && b.inputs == in.digest && b.trace.Unchanged(tree)
}

// applyState is the last apply.
type applyState struct {
	target            *rollout.Target
	isComplete        bool            // the last build was applied completely, or did not need to be
	lastAppliedDigest string          // of the build that was applied completely; empty once another apply has started
	retained          apply.Inventory // objects that are no longer declared, for other Kustomizations to adopt
	lastResync        time.Time       // when all objects were compared last; zero before the first pass of the process
	warnings          string          // the last reported ones
	unknown           rollout.UnknownFields
	shown             *redact.Known // what may be shown of what was applied last; nil if nothing of it is secret
	drift             rollout.Drift
	applied           *artifact.Applied // what this process applied completely; nil if not known
	missing           string            // the last reported promoted revision that is not stored
	staysProblem      string            // why the Kustomization cannot go back; empty if it need not
	reportedRevert    string            // the last revision that an event said it went back from
	reportedStay      string            // the last reported one
	heldProblem       rollout.HeldProblem
	appliedBuild      atomic.Pointer[appliedBuild] // read by dependents; nil if the last build is not applied
}

// appliedBuild is a build that was applied completely.
type appliedBuild struct {
	generation int64
	trace      *build.Trace
}

// complete records that the last build was applied.
func (s *state) complete() {
	s.apply.isComplete = true
	s.apply.appliedBuild.Store(&appliedBuild{s.build.generation, s.build.trace})
}

// setTarget records the target. Another target requires a new apply.
func (s *applyState) setTarget(t *rollout.Target) {
	if s.target == t {
		return
	}
	if s.target != nil {
		s.lastAppliedDigest = ""
	}
	s.target, s.isComplete = t, false
}

// stateOf returns the state of an object.
func (c *Controller) stateOf(obj *kustomizev1.Kustomization) *state {
	return c.states.Of(obj.UID, func() *state {
		return &state{apply: applyState{lastAppliedDigest: appliedDigest(obj)}}
	})
}

// appliedBuildOf returns the last build of an object that this process applied completely; nil if that is not known, as
// for objects that another process reconciles.
func (c *Controller) appliedBuildOf(obj *kustomizev1.Kustomization) *appliedBuild {
	if s := c.states.Get(obj.UID); s != nil {
		return s.apply.appliedBuild.Load()
	}
	return nil
}

// Leave implements [reconcile.Leaver].
func (c *Controller) Leave(obj *kustomizev1.Kustomization) { c.forget(obj) }

// forget removes what this process stores about an object.
func (c *Controller) forget(obj *kustomizev1.Kustomization) {
	if s := c.states.Remove(obj.UID); s != nil && s.apply.target != nil {
		s.apply.target.Forget(refOf(obj))
	}
	_ = c.Applied.Forget(string(obj.UID)) // else the next start collects it
	_ = c.Promotable.Forget(string(obj.UID))
	_ = c.Applied.Forget(artifact.Healthy(string(obj.UID)))
	c.Clusters.Release(refOf(obj))
}

// appliedDigest returns the digest of the build that a previous process applied completely; empty if that is not known.
func appliedDigest(obj *kustomizev1.Kustomization) string {
	s := obj.Status
	if len(s.History) == 0 || s.ObservedGeneration != obj.Generation ||
		s.LastAppliedRevision != s.LastAttemptedRevision ||
		s.History[0].LastReconciledStatus != meta.ReconciliationSucceededReason {
		return ""
	}
	return s.History[0].Digest
}
