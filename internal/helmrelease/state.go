package helmrelease

import (
	"time"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// state is what this process stores about a HelmRelease between passes. Nothing depends on it but costs: if it is lost,
// the next pass compares all objects again.
type state struct {
	target      *rollout.Target
	checked     string    // what the cluster was compared with last: mode of drift detection and digest of the release
	failedAt    time.Time // when the last action of this process failed; zero if none did
	lastResync  time.Time // when all objects were compared last
	settled     settled   // identifies the release when it was as declared last
	drift       rollout.Drift
	released    *artifact.Applied // what was released last, completely; nil if that is not known
	heldProblem rollout.HeldProblem
	// reportedStay is why the HelmRelease cannot go back, as reported last.
	reportedStay string
	health       rollout.Health
	spec         rollout.SpecCheck
	preview      rollout.PendingPreview
	decided      rollout.Decided
	warnings     string // the last reported ones
	// valueWarnings and chartWarnings are the last reported ones about values, and about rendered objects.
	valueWarnings, chartWarnings string
	// waits is the release whose objects are waited for, and for how long.
	waits       string
	waitTimeout time.Duration
	// waitsForHealth reports whether the last action failed because objects did not become healthy. They are watched.
	waitsForHealth bool
	shown          *redact.Known // what may be shown of the last release; nil if nothing of it is secret
}

func newState() *state { return &state{} }

// setTarget records the target. Objects in another target are compared again.
func (r *run) setTarget() {
	s := r.state
	if s.target == r.target {
		return
	}
	r.forgetStored(s.target, refOf(r.obj))
	s.target, s.checked, s.settled = r.target, "", settled{}
}

// Leave implements [reconcile.Leaver].
func (c *Controller) Leave(obj *helmv2.HelmRelease) { c.forget(obj) }

// forget removes what the process stores about an object.
func (c *Controller) forget(obj *helmv2.HelmRelease) {
	if s := c.states.Remove(obj.UID); s != nil && s.target != nil {
		c.forgetStored(s.target, refOf(obj))
		s.target.Forget(refOf(obj))
	}
	_ = c.Applied.Forget(string(obj.UID)) // else the next start collects it
	_ = c.Applied.Forget(artifact.Healthy(string(obj.UID)))
	c.Clusters.Release(refOf(obj))
}
