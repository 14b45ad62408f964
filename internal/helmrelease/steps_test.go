package helmrelease_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/helmrelease"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// steps runs the passes of HelmReleases. A change of a HelmRelease is followed by its pass; after a change of anything
// else, the test calls pass.
type steps struct {
	releases
	charts *system.Charts
	clock  *shiftedClock
	asked  map[string]time.Duration // after which each HelmRelease asked for its next pass
}

// renderer is that of all steps, as the releases of a process share one: the start of its child takes longer than many
// a test.
var renderer = render.New(render.Options{})

func newSteps(t *testing.T, configure ...func(*options.Options)) *steps {
	t.Helper()
	h := &steps{clock: &shiftedClock{}, asked: map[string]time.Duration{}}
	s := system.NewSteps(t, append(configure, func(o *options.Options) { o.Clock = h.clock })...)
	h.releases, h.charts = releases{s.System}, system.NewCharts(s)
	o := s.Options()
	s.Clusters.Apply = manager.HelmReleaseApplyOptions(o)
	settings := manager.HelmReleaseOptions(o)
	settings.Decryption.Reader = s.Client
	c := &helmrelease.Controller{
		Client: s.Client, Live: s.Client, Artifacts: s.Artifacts, Applied: s.Applied, Clusters: s.Clusters,
		Removal: rollout.Removal{Reader: s.Client, Namespace: s.Namespace}, Renderer: renderer, Events: s,
		Clock: o.GetClock(), Options: settings,
	}
	if err := c.Observe(t.Context(), s.Informers()); err != nil {
		t.Fatal(err)
	}
	system.RunsPassesOf(s, reconcile.Kind[*helmv2.HelmRelease]{GroupKind: helmrelease.GroupKind,
		New: func() *helmv2.HelmRelease { return &helmv2.HelmRelease{} }, Step: c,
		GateBehavior: reconcile.HoldsSync})
	return h
}

// in returns the same namespace for a sub-test, which failures are reported to.
func (h *steps) in(t *testing.T) *steps {
	sub := *h
	sub.releases = releases{h.For(t)}
	return &sub
}

// publish publishes a version of the chart app. The next pass of a HelmRelease has it.
func (h *steps) publish(version string, files map[string]string) {
	h.Helper()
	h.charts.Publish("app", version, h.archive(version, files))
}

// release creates a HelmRelease of the chart app, and runs its pass.
func (h *steps) release(name string, change ...func(*helmv2.HelmReleaseSpec)) {
	h.Helper()
	h.releases.release(name, change...)
	h.pass(name)
}

// edit changes the spec of a HelmRelease, and runs its pass.
func (h *steps) edit(name string, change func(*helmv2.HelmReleaseSpec)) {
	h.Helper()
	h.releases.edit(name, change)
	h.pass(name)
}

// reconcile runs the pass of a HelmRelease that a person requests.
func (h *steps) reconcile(name string) {
	h.Helper()
	h.Requested(&helmv2.HelmRelease{}, name, h.pass)
}

// delete deletes a HelmRelease, and runs its pass.
func (h *steps) delete(name string) {
	h.Helper()
	h.remove(&helmv2.HelmRelease{}, name)
	h.pass(name)
}

// retry runs the pass that a HelmRelease has asked for since the last one failed, at its time.
func (h *steps) retry(name string) {
	h.Helper()
	o := h.Options()
	if after := h.asked[name]; after <= 0 || after > o.Retry.Max {
		h.Errorf("%s asks for its next pass after %s, not for a retry", name, after)
	}
	h.later(h.asked[name])
	h.pass(name)
}

// exhaust retries a HelmRelease until no retries are left. It does not count retries: an attempt that an API server
// under load refuses does not count for the HelmRelease either.
func (h *steps) exhaust(name string) {
	h.Helper()
	r := &helmv2.HelmRelease{}
	testenv.Eventually(h, name+" has no retries left", func() error {
		if err := h.Get(r, name); err != nil || reconcile.IsStalled(r) {
			return err
		}
		h.retry(name)
		return errors.New("it was retried")
	})
}

// HasEvent requires an event about a HelmRelease. See [system.Steps.HasEvent].
func (h *steps) HasEvent(name, reason string, texts ...string) int {
	h.Helper()
	return h.charts.HasEvent(name, reason, texts...)
}

// later lets time pass.
func (h *steps) later(d time.Duration) { h.clock.by.Add(int64(d)) }

// pass runs passes of a HelmRelease until it has its chart and asks for no other pass at once. Objects are healthy
// within the pass that applies them, unless the machine is slow: then passes follow until they are.
func (h *steps) pass(name string) {
	h.Helper()
	testenv.Eventually(h, "the passes of "+name+" end", func() error {
		h.charts.Fetch(h.Namespace + "-" + name)
		for again := true; again; {
			h.asked[name] = h.charts.Pass(name).RequeueAfter
			again = h.charts.Fetch(h.Namespace+"-"+name) || h.asked[name] == time.Millisecond
		}
		r := &helmv2.HelmRelease{}
		err := h.Get(r, name)
		c := apimeta.FindStatusCondition(r.Status.Conditions, reconcile.TypeReady)
		if err == nil && c != nil && strings.HasPrefix(c.Message, "Running health checks") {
			return errors.New(c.Message)
		}
		return client.IgnoreNotFound(err)
	})
}
