package kubeclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/process/options"
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
	if f.lock, err = newLock(testenv.Cluster(t), o, f.fence, nil, &informers{}); err != nil {
		t.Fatal(err)
	}
	cfg := testenv.Cluster(t)
	cfg.Wrap(f.fence.Wrap)
	if f.client, err = client.New(cfg, client.Options{Scheme: Scheme()}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the namespace has its account", func() error {
		return f.client.Get(t.Context(), types.NamespacedName{Namespace: f.namespace, Name: "default"},
			&corev1.ServiceAccount{})
	})
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

// writes checks whether the process may write a ConfigMap for itself, and an event, an annotation and the token of an
// account for others. It may always read and review.
func (f *fenced) writes(when string, own, others bool) {
	f.Helper()
	metadata := metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "x-"}
	event := &eventsv1.Event{ObjectMeta: metadata, EventTime: metav1.NowMicro(), ReportingController: "x",
		ReportingInstance: "x", Action: "x", Reason: "x", Type: "Normal",
		Regarding: corev1.ObjectReference{Namespace: f.namespace}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "default"}}
	annotation := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"`+when+`"}}}`))
	patch := func(w client.Writer) error { return w.Patch(f.Context(), account, annotation) }
	for name, w := range map[string]struct {
		err    error
		wanted bool
	}{
		"an object":          {err: f.client.Create(f.Context(), &corev1.ConfigMap{ObjectMeta: metadata}), wanted: own},
		"a patch":            {err: patch(f.client), wanted: own},
		"a patch for others": {err: patch(StandbyWriter(f.client)), wanted: others},
		"an event":           {err: f.client.Create(f.Context(), event), wanted: others},
		"a token": {err: f.client.SubResource("token").Create(f.Context(), account,
			&authenticationv1.TokenRequest{}), wanted: others},
		"a review": {err: f.client.Create(f.Context(), &authenticationv1.SelfSubjectReview{}), wanted: true},
	} {
		refused := errors.Is(w.err, ErrLeaseLost) || errors.Is(w.err, ErrNoLease)
		if w.wanted && w.err != nil || !w.wanted && !refused {
			f.Errorf("%s: %s: %v, want it: %t", when, name, w.err, w.wanted)
		}
	}
	if err := f.client.List(f.Context(), &corev1.ConfigMapList{}, client.InNamespace(f.namespace)); err != nil {
		f.Errorf("%s: %v", when, err)
	}
}

func TestOnlyTheHolderOfTheLeaseWrites(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	f.writes("before the election", false, true)
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

// TestFormerLeaderKeepsTheLeaseOfTheNext has an election that releases a lease which another process has since.
func TestFormerLeaderKeepsTheLeaseOfTheNext(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	f.hold(f.lock.Create, f.lock.Identity())
	next, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, f.namespace,
		f.lock.(*fencedLock).Interface.(*resourcelock.LeaseLock).LeaseMeta.Name,
		resourcelock.ResourceLockConfig{Identity: "next"}, testenv.Cluster(t), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := next.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.hold(next.Update, "next")
	if _, _, err := f.lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.hold(f.lock.Update, "")
	r, _, err := next.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.HolderIdentity != "next" {
		t.Errorf("the lease is held by %q", r.HolderIdentity)
	}
	f.writes("after the lease was lost", false, true)
}

// TestLeaseIsCheckedWhenTheBodyIsSent has a process that is stopped between the first check and the request.
func TestLeaseIsCheckedWhenTheBodyIsSent(t *testing.T) {
	t.Parallel()
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

// TestLeaseIsRenewedNoMoreOftenThanWanted has an election that asks every moment.
func TestLeaseIsRenewedNoMoreOftenThanWanted(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	f.lock.(*fencedLock).renew = 5 * time.Second
	f.hold(f.lock.Create, f.lock.Identity())
	renewed := func() time.Time {
		t.Helper()
		r, _, err := f.lock.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r.RenewTime.Time
	}
	first := renewed()
	f.clock.Step(4 * time.Second)
	f.hold(f.lock.Update, f.lock.Identity())
	if got := renewed(); !got.Equal(first) {
		t.Errorf("the lease was renewed after 4s, at %s", got)
	}
	f.clock.Step(time.Second)
	f.hold(f.lock.Update, f.lock.Identity())
	if got := renewed(); !got.After(first) {
		t.Errorf("the lease was not renewed after 5s: %s", got)
	}
	f.hold(f.lock.Update, "")
	if r, _, err := f.lock.Get(t.Context()); err != nil || r.HolderIdentity != "" {
		t.Errorf("the lease was not released at once: %v %v", r, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
