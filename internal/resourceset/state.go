package resourceset

import (
	"time"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// state is what this process stores about a ResourceSet between passes. If it is lost, the next pass renders and
// dry-runs everything again. Passes of one ResourceSet do not run concurrently.
type state struct {
	spec    rollout.SpecCheck
	started time.Time // of the work in progress, from its render to its health; zero if there is none
	build   buildState
	apply   applyState
	health  rollout.Health
	preview rollout.PendingPreview
	decided rollout.Decided
}

// buildState is the last render.
type buildState struct {
	key      string   // identifies the templates and inputs
	sources  []source // objects that it was completed from
	content  string   // digest of these
	err      error    // returned again until the key changes
	digest   string   // of the objects of the last successful render
	counts   map[string]string
	external []string // status.externalChecksumRefs
	declared rollout.Declared
	jobs     []apply.Ref // with the annotation recreateOnFailure
}

// applyState is the last apply.
type applyState struct {
	target            *rollout.Target
	isComplete        bool   // the last render was applied completely
	lastAppliedDigest string // of the objects that were applied completely; empty once another apply has started
	passedDigest      string // of the objects whose steps have passed
	passed            int    // the number of these steps: applied and healthy
	pruneStarted      time.Time
	recreations       int       // of failed Jobs since the objects were ready
	nextRecreation    time.Time // not before
	lastResync        time.Time // when all objects were compared last; zero before the first pass of the process
	warnings          string    // the last reported ones
	unknown           rollout.UnknownFields
	drift             rollout.Drift
}

// setTarget records the target. Another target requires a new apply.
func (s *applyState) setTarget(t *rollout.Target) {
	if s.target == t {
		return
	}
	if s.target != nil {
		s.lastAppliedDigest = ""
	}
	s.target, s.isComplete, s.passed = t, false, 0
}

// stateOf returns the state of an object.
func (c *Controller) stateOf(obj *controlplanev1.ResourceSet) *state {
	return c.states.Of(obj.UID, func() *state {
		return &state{apply: applyState{lastAppliedDigest: appliedDigest(obj)}}
	})
}

// appliedDigest returns the digest of the objects that a previous process applied completely; empty if that is not
// known.
func appliedDigest(obj *controlplanev1.ResourceSet) string {
	s := obj.Status
	if len(s.History) == 0 || s.ObservedGeneration != obj.Generation || s.History[0].Digest != s.LastAppliedRevision ||
		s.History[0].LastReconciledStatus != meta.ReconciliationSucceededReason {
		return ""
	}
	return s.LastAppliedRevision
}

// Leave implements [reconcile.Leaver].
func (c *Controller) Leave(obj *controlplanev1.ResourceSet) { c.forget(obj) }

// forget removes what this process stores about an object.
func (c *Controller) forget(obj *controlplanev1.ResourceSet) {
	if s := c.states.Remove(obj.UID); s != nil && s.apply.target != nil {
		s.apply.target.Forget(refOf(obj))
	}
	c.Clusters.Release(refOf(obj))
}
