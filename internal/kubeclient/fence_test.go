package kubeclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// fenced is a process that takes part in the leader election.
type fenced struct {
	*testing.T
	client    client.Client
	fence     *Fence
	lock      resourcelock.Interface
	clock     *testclock.FakeClock
	namespace string
}

func newFenced(t *testing.T) *fenced {
	t.Helper()
	f := &fenced{T: t, clock: testclock.NewFakeClock(time.Now()), namespace: testenv.Namespace(t)}
	o := options.Options{LeaderElection: true, RenewDeadline: 30 * time.Second, RuntimeNamespace: f.namespace,
		Controllers: options.AllControllers, Clock: f.clock}
	f.fence = NewFence(o)
	var err error
	if f.lock, err = newLock(testenv.Cluster(t), o, f.fence, nil); err != nil {
		t.Fatal(err)
	}
	cfg := testenv.Cluster(t)
	cfg.Wrap(f.fence.Wrap)
	if f.client, err = client.New(cfg, client.Options{Scheme: Scheme()}); err != nil {
		t.Fatal(err)
	}
	return f
}

// hold creates or renews the lease, or releases it.
func (f *fenced) hold(write func(context.Context, resourcelock.LeaderElectionRecord) error, holder string) {
	f.Helper()
	now := metav1.NewTime(f.clock.Now())
	if err := write(f.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 35,
		AcquireTime: now, RenewTime: now}); err != nil {
		f.Fatal(err)
	}
}

// writes checks whether the process may write a ConfigMap and an event. It may always read.
func (f *fenced) writes(when string, object, event bool) {
	f.Helper()
	metadata := metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "x-"}
	for _, w := range []struct {
		object client.Object
		wanted bool
	}{
		{object: &corev1.ConfigMap{ObjectMeta: metadata}, wanted: object},
		{object: &eventsv1.Event{ObjectMeta: metadata, EventTime: metav1.NowMicro(), ReportingController: "x",
			ReportingInstance: "x", Action: "x", Reason: "x", Type: "Normal",
			Regarding: corev1.ObjectReference{Namespace: f.namespace}}, wanted: event},
	} {
		err := f.client.Create(f.Context(), w.object)
		if w.wanted && err != nil || !w.wanted && !errors.Is(err, ErrLeaseLost) {
			f.Errorf("%s: creating a %T: %v, want it: %t", when, w.object, err, w.wanted)
		}
	}
	if err := f.client.List(f.Context(), &corev1.ConfigMapList{}, client.InNamespace(f.namespace)); err != nil {
		f.Errorf("%s: %v", when, err)
	}
}

func TestOnlyTheHolderOfTheLeaseWrites(t *testing.T) {
	f := newFenced(t)
	f.writes("before the election", true, true)
	f.hold(f.lock.Create, f.lock.Identity())
	f.clock.Step(29 * time.Second)
	f.writes("before the renew deadline", true, true)
	f.clock.Step(time.Second)
	f.writes("after the renew deadline", false, false)
	f.hold(f.lock.Update, f.lock.Identity())
	f.writes("after a renewal", true, true)

	f.hold(f.lock.Update, "")
	f.writes("after the lease was released", false, true)

	f.hold(f.lock.Update, f.lock.Identity())
	f.clock.Step(time.Minute)
	f.hold(f.lock.Update, "")
	f.writes("after the lease was released too late", false, false)
}

// TestLeaseIsCheckedWhenTheBodyIsSent has a process that is stopped between the first check and the request.
func TestLeaseIsCheckedWhenTheBodyIsSent(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	fence := NewFence(options.Options{LeaderElection: true, RenewDeadline: time.Second, Clock: clock})
	fence.renew(clock.Now())
	transport := fence.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		clock.Step(time.Minute)
		sent, err := io.ReadAll(r.Body)
		if len(sent) > 0 {
			t.Errorf("sent %q", sent)
		}
		return nil, err
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://cluster/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if !errors.Is(err, ErrLeaseLost) {
		t.Errorf("got %v", err)
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
