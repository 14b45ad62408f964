package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// jumpingClock is a clock of a machine whose time is set. As there, timers do not notice.
type jumpingClock struct {
	clock.RealClock
	offset *atomic.Int64
}

func (c jumpingClock) Now() time.Time                  { return c.RealClock.Now().Add(time.Duration(c.offset.Load())) }
func (c jumpingClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// AfterFunc implements [clock.WithDelayedExecution].
func (c jumpingClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return timer{time.AfterFunc(d, f)}
}

type timer struct{ *time.Timer }

func (t timer) C() <-chan time.Time { return t.Timer.C }

const jumpWindow = 2 * time.Hour // of requests to gates

// clockGates are gates, with whether each is open at a time if it was requested at another.
var clockGates = map[string]struct {
	spec   gatingv1.GateSpec
	isOpen func(now, requested time.Time) bool
}{
	"opened-by-request": {
		spec: gatingv1.GateSpec{Default: gatingv1.Closed, Window: &meta.Duration{Duration: jumpWindow}},
		isOpen: func(now, requested time.Time) bool {
			return !now.Before(requested) && now.Before(requested.Add(jumpWindow))
		}},
	"opened-by-calendar": {
		spec: gatingv1.GateSpec{Default: gatingv1.Closed, Schedule: []gatingv1.ScheduleEntry{
			{State: gatingv1.Opened, Cron: "0 9 * * *", Duration: &meta.Duration{Duration: 8 * time.Hour}}}},
		isOpen: func(now, _ time.Time) bool { return now.UTC().Hour() >= 9 && now.UTC().Hour() < 17 }},
	"closed-by-calendar": {
		spec: gatingv1.GateSpec{Default: gatingv1.Opened, Schedule: []gatingv1.ScheduleEntry{
			{State: gatingv1.Closed, Cron: "30 */2 * * *", Duration: &meta.Duration{Duration: time.Hour}}}},
		isOpen: func(now, _ time.Time) bool {
			minute := now.UTC().Hour()*60 + now.UTC().Minute()
			return (minute+24*60-30)%120 >= 60
		}},
}

// TestCampaignClock sets the clock forward and back, and commits a change behind each gate after each jump. The
// controllers run in this process, as the clock of another cannot be set.
func TestCampaignClock(t *testing.T) {
	const short, full = 4, 100
	e := begin(t, short, full)
	n := newTenant(t, testenv.NewGit(t))
	clock := jumpingClock{offset: &atomic.Int64{}}
	runInProcess(t, n, clock)
	n.create(n.source("app"))
	requested := clock.Now().UTC().Truncate(time.Second)
	for name, g := range clockGates {
		g.spec.Interval = hour
		n.create(&gatingv1.Gate{ObjectMeta: n.named(name), Spec: g.spec}, n.app(name,
			func(k *kustomizev1.Kustomization) {
				k.Spec.Path, k.Spec.Gates = "./"+name, []meta.GateReference{{Name: name}}
			}))
	}
	opened := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
		gatingv1.OpenPrefix+gatingv1.RequestedAtSuffix, requested.Format(time.RFC3339))))
	gate := &gatingv1.Gate{ObjectMeta: n.named("opened-by-request")}
	if err := n.client.Patch(t.Context(), gate, opened); err != nil {
		t.Fatal(err)
	}
	passed, held := 0, 0
	e.each(func(i int, random *rand.Rand) {
		jump(clock, random)
		p, h := n.behindGates(i, clock, requested)
		passed, held = passed+p, held+h
	})
	e.note("%d changes passed open gates, %d were held by closed ones", passed, held)
}

// jump sets the clock by up to an hour or a year, and a few minutes from the boundaries of the gates.
func jump(c jumpingClock, random *rand.Rand) {
	jumps := []time.Duration{time.Hour, -time.Hour, 365 * 24 * time.Hour, -365 * 24 * time.Hour, 0}
	by := jumps[random.IntN(len(jumps))] + time.Duration(random.IntN(12)-6)*time.Hour
	to := c.Now().Add(by)
	if offset := to.Sub(c.RealClock.Now()); offset > 3*365*24*time.Hour || offset < -365*24*time.Hour {
		to = c.RealClock.Now() // back to where the request was made
	}
	minute := to.Minute() % 30
	to = to.Add(time.Duration(15-minute) * time.Minute)
	c.offset.Store(int64(to.Sub(c.RealClock.Now())))
}

// runInProcess runs the controllers with a clock until the end of the test.
func runInProcess(t *testing.T, n *tenant, c clock.WithDelayedExecution) {
	t.Helper()
	var o options.Options
	o.BindFlags(pflag.NewFlagSet("campaign", pflag.ContinueOnError))
	o.StoragePath, o.StorageAddr, o.MetricsAddr, o.HealthAddr, o.ReceiverAddr, o.EventsAddr, o.ImagesAddr = t.TempDir(),
		"127.0.0.1:0", "0", "0", "0", "0", "0"
	o.WatchAllNamespaces, o.RuntimeNamespace, o.LogLevel, o.Clock = false, n.namespace, "error", c
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- manager.Run(ctx, testenv.Cluster(t), o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("the controllers failed: %v", err)
		}
	})
}

// behindGates commits a change for each gate, and returns how many gates let it pass and how many held it.
func (n *tenant) behindGates(i int, c jumpingClock, requested time.Time) (passed, held int) {
	n.Helper()
	value := fmt.Sprint("value ", i)
	files := map[string]string{}
	for name := range clockGates {
		files[name+"/app.yaml"] = configMap(name, value)
	}
	commit := n.git.Commit(n.repo, files)
	n.fetch()
	testenv.Eventually(n, "the commit is fetched", func() error {
		g := &sourcev1.GitRepository{}
		if err := n.client.Get(n.Context(), types.NamespacedName{Namespace: n.namespace, Name: "app"}, g); err != nil {
			return err
		}
		if !g.Status.Artifact.HasRevision("main@sha1:" + commit) {
			return errors.New("another artifact")
		}
		return nil
	})
	for name, g := range clockGates {
		isOpen := g.isOpen(c.Now(), requested)
		n.handled(&gatingv1.Gate{}, name) // timers do not notice that the clock was set
		n.handled(&kustomizev1.Kustomization{}, name)
		if isOpen {
			passed++
			testenv.Eventually(n, name+" lets the change pass", func() error { return n.applied(name, commit) })
			continue
		}
		held++
		if got, err := n.value(name); err == nil && got == value {
			n.Errorf("gate %s was wrongly open at %s, opened at %s", name, c.Now(), requested)
		}
	}
	return passed, held
}

// handled requests a reconcile and waits until it is done.
func (n *tenant) handled(o client.Object, name string) {
	n.Helper()
	at := n.request(o, name)
	testenv.Eventually(n, name+" was reconciled", func() error {
		if err := n.client.Get(n.Context(), types.NamespacedName{Namespace: n.namespace, Name: name}, o); err != nil {
			return err
		}
		b, err := json.Marshal(o)
		var has struct {
			Status struct{ LastHandledReconcileAt string }
		}
		if err == nil {
			err = json.Unmarshal(b, &has)
		}
		if err == nil && has.Status.LastHandledReconcileAt != at {
			err = fmt.Errorf("the last request is %s, want %s", has.Status.LastHandledReconcileAt, at)
		}
		return err
	})
}
