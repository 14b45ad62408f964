package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func returns(o reconcile.Outcome) func(context.Context, *pass) reconcile.Outcome {
	return func(context.Context, *pass) reconcile.Outcome { return o }
}

func TestOutcomesBecomeConditions(t *testing.T) {
	for name, c := range map[string]struct {
		outcome     reconcile.Outcome
		ready       metav1.ConditionStatus
		reason      string
		other       string // the other condition that is set
		otherReason string
	}{
		"ready": {outcome: reconcile.Ready("Succeeded", "fine"),
			ready: metav1.ConditionTrue, reason: "Succeeded"},
		"progressing": {outcome: reconcile.Progressing(time.Hour, "rolling out"),
			ready: metav1.ConditionUnknown, reason: "Progressing", other: "Reconciling", otherReason: "Progressing"},
		"waiting": {outcome: reconcile.Waiting("DependencyNotReady", "for x"),
			ready: metav1.ConditionFalse, reason: "DependencyNotReady", other: "Reconciling",
			otherReason: "ProgressingWithRetry"},
		"failed": {outcome: reconcile.Failed(errors.New("broken")),
			ready: metav1.ConditionFalse, reason: "Failed", other: "Reconciling", otherReason: "ProgressingWithRetry"},
		"failed with a reason": {outcome: reconcile.Failed(fault.New("BuildFailed", "broken")),
			ready: metav1.ConditionFalse, reason: "BuildFailed", other: "Reconciling",
			otherReason: "ProgressingWithRetry"},
		"terminal failure": {outcome: reconcile.Failed(fault.New("URLInvalid", "broken").Final()),
			ready: metav1.ConditionFalse, reason: "URLInvalid", other: "Stalled", otherReason: "URLInvalid"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, &step{reconcile: returns(c.outcome)})
			b.until("Ready is set", has("Ready", c.ready, c.reason))
			b.until("the other condition is set", func(o *sourcev1.GitRepository) error {
				for _, t := range []string{"Reconciling", "Stalled"} {
					found := apimeta.FindStatusCondition(o.Status.Conditions, t)
					if (found != nil) != (t == c.other) || found != nil && found.Reason != c.otherReason {
						return fmt.Errorf("%s: %+v", t, found)
					}
				}
				return nil
			})
		})
	}
}

func TestPanicIsReportedAndRetried(t *testing.T) {
	s := &step{reconcile: func(context.Context, *pass) reconcile.Outcome { panic("oh") }}
	b := newBench(t, s)
	b.until("the object is Stalled", has("Stalled", metav1.ConditionTrue, "Failed"))
	b.until("the hint says that it is retried", func(o *sourcev1.GitRepository) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, "Ready")
		if want := guard.Hint + ". The object is retried (SLU-1005)"; c == nil || !strings.HasSuffix(c.Message, want) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	testenv.Eventually(t, "the object is retried", func() error {
		if s.count() < 3 {
			return errors.New("not enough passes yet")
		}
		return nil
	})
	s.set(returns(reconcile.Ready("Succeeded", "recovered")))
	b.until("the object recovers", has("Ready", metav1.ConditionTrue, "Succeeded"))
}

func TestRepeatedFailureWritesNothing(t *testing.T) {
	s := &step{reconcile: returns(reconcile.Failed(fault.New("BuildFailed", "the same each time")))}
	b := newBench(t, s)
	b.until("the object fails", has("Ready", metav1.ConditionFalse, "BuildFailed"))
	var version string
	b.until("the resource version is read", func(o *sourcev1.GitRepository) error {
		version = o.ResourceVersion
		return nil
	})
	from := s.count()
	testenv.Eventually(t, "the object is retried", func() error {
		if s.count() < from+5 {
			return errors.New("not enough passes yet")
		}
		return nil
	})
	b.until("the status was not written again", func(o *sourcev1.GitRepository) error {
		if o.ResourceVersion != version {
			t.Fatalf("the resource version changed from %s to %s", version, o.ResourceVersion)
		}
		return nil
	})
	if n := b.events.count(); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestUnchangedReadyObjectEmitsMinorEvent(t *testing.T) {
	s := &step{reconcile: returns(reconcile.Ready("Succeeded", "one").Unchanged())}
	b := newBench(t, s)
	b.until("the object is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	s.set(returns(reconcile.Ready("Succeeded", "two").Unchanged()))
	b.patch(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1"}}}`)
	testenv.Eventually(t, "both events are emitted", func() error {
		if n := b.events.count(); n != 2 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	first, second := b.events.events[0], b.events.events[1]
	if first.Minor || !second.Minor || second.Message != "two" {
		t.Errorf("want only the second event to be minor: %+v, %+v", first, second)
	}
}

func TestWithEventEmitsWhileReadyIsUnchanged(t *testing.T) {
	s := &step{reconcile: returns(reconcile.Ready("Succeeded", "stored").WithEvent("NewArtifact"))}
	b := newBench(t, s)
	b.until("the object is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	handled := func(request string) {
		b.patch(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"` + request + `"}}}`)
		b.until("the request is handled", func(o *sourcev1.GitRepository) error {
			if got := o.Status.LastHandledReconcileAt; got != request {
				return errors.New("the last handled request is " + got)
			}
			return nil
		})
	}
	s.set(returns(reconcile.Ready("Succeeded", "stored")))
	handled("1")
	s.set(returns(reconcile.Ready("Succeeded", "stored").WithEvent("NewArtifact")))
	handled("2")
	testenv.Eventually(t, "both events are emitted", func() error {
		if n := b.events.count(); n != 2 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	for _, e := range b.events.events {
		if e.Reason != "NewArtifact" || e.Message != "stored" {
			t.Errorf("%+v", e)
		}
	}
}

func TestRequestIsHandledOnce(t *testing.T) {
	requested := make(chan bool, 100)
	b := newBench(t, &step{reconcile: func(ctx context.Context, p *pass) reconcile.Outcome {
		if current := resourceversion.NeedsCurrent(ctx); current != p.Requested {
			t.Errorf("requested: %t, and reads current objects: %t", p.Requested, current)
		}
		requested <- p.Requested
		return reconcile.Ready("Succeeded", "fine")
	}})
	b.until("the object is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	if <-requested {
		t.Error("the first pass is marked as requested")
	}
	b.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"now"}}}`, meta.ReconcileRequestAnnotation))
	b.until("the request is handled", func(o *sourcev1.GitRepository) error {
		if o.Status.LastHandledReconcileAt != "now" {
			return errors.New(o.Status.LastHandledReconcileAt)
		}
		return nil
	})
	if !<-requested {
		t.Error("the second pass is not marked as requested")
	}
}

func TestSuspendedObjectIsNotReconciled(t *testing.T) {
	s := &step{reconcile: func(_ context.Context, p *pass) reconcile.Outcome {
		if p.Object.Spec.Suspend {
			t.Errorf("generation %d is reconciled while it is suspended", p.Object.Generation)
		}
		return reconcile.Ready("Succeeded", "fine")
	}}
	b := newBench(t, s)
	b.until("the object is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	b.patch(`{"spec":{"suspend":true}}`)
	b.patch(`{"spec":{"url":"https://example.com/y"}}`)
	b.patch(`{"spec":{"suspend":false}}`)
	b.until("the resumed object is reconciled", func(o *sourcev1.GitRepository) error {
		const resumed = 4 // the generation
		if o.Status.ObservedGeneration != resumed {
			return fmt.Errorf("generation %d is observed", o.Status.ObservedGeneration)
		}
		return nil
	})
}

func TestEdgesEnqueueDependents(t *testing.T) {
	other := reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, "ns", "s")
	s := &step{reconcile: returns(reconcile.Waiting("DependencyNotReady", "waiting for a secret")),
		references: []reconcile.Ref{other}}
	b := newBench(t, s)
	b.until("the object waits", has("Ready", metav1.ConditionFalse, "DependencyNotReady"))
	s.set(returns(reconcile.Ready("Succeeded", "the secret exists")))
	b.edges.NotifyDependents(other)
	b.until("the edge enqueued the object", has("Ready", metav1.ConditionTrue, "Succeeded"))
}

func TestFinalizerStaysUntilFinalizeSucceeds(t *testing.T) {
	blocked := make(chan struct{})
	s := &step{reconcile: returns(reconcile.Ready("Succeeded", "fine")), finalize: func() error {
		select {
		case <-blocked:
			return nil
		default:
			return fault.New("PruneFailed", "not deleted yet")
		}
	}}
	b := newBench(t, s)
	b.until("the object has the finalizer", func(o *sourcev1.GitRepository) error {
		if len(o.Finalizers) != 1 || o.Finalizers[0] != reconcile.Finalizer {
			return fmt.Errorf("%v", o.Finalizers)
		}
		return nil
	})
	b.delete()
	b.until("the failure is reported", has("Ready", metav1.ConditionFalse, "PruneFailed"))
	close(blocked)
	b.untilGone()
}

// TestSuccessIsEmittedBeforeItIsWritten checks what the cluster says about an object when its events are emitted. A
// process that is killed between the two must not lose the event of a success.
func TestSuccessIsEmittedBeforeItIsWritten(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := sourcev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	live, err := client.New(testenv.Cluster(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan bool, 10)
	s := &step{reconcile: returns(reconcile.Failed(errors.New("not yet")))}
	s.emits = func(obj reconcile.Object, e reconcile.Event) {
		var now sourcev1.GitRepository
		if err := live.Get(context.Background(), client.ObjectKeyFromObject(obj), &now); err != nil {
			t.Error(err)
		}
		ready := apimeta.FindStatusCondition(now.Status.Conditions, "Ready")
		written <- ready != nil && ready.Message == e.Message
	}
	b := newBench(t, s)
	b.until("the object has failed", has("Ready", metav1.ConditionFalse, "Failed"))
	if !<-written {
		t.Error("the failure was emitted before it was written")
	}
	s.set(returns(reconcile.Ready("Succeeded", "stored")))
	b.until("the object is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	if <-written {
		t.Error("the success was written before it was emitted")
	}
}
