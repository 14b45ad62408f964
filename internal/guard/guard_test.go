package guard

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const secret = "password of the tenant"

// explode panics as code does that reads a value of an unexpected type.
func explode() {
	var value any = secret
	_ = value.([]any)
}

func checkPanic(t *testing.T, err error) {
	t.Helper()
	if !IsPanic(err) || fault.Reason(err, "") != ReasonInternalError {
		t.Fatalf("the error is %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "internal error while testing. This is a bug in Sluice: "+
		"report it with the controller's log") || !strings.Contains(text, Hint) ||
		strings.Contains(text, "interface conversion") || strings.Contains(text, secret) {
		t.Errorf("the text is %q", text)
	}
}

func TestAPanicBecomesAnError(t *testing.T) {
	checkPanic(t, Do("testing", func() error { explode(); return nil }))
	checkPanic(t, Do("testing", func() error { panic(errors.New(secret)) }))
	plain := errors.New("plain")
	if err := Do("testing", func() error { return plain }); !errors.Is(err, plain) || IsPanic(err) {
		t.Errorf("the error is %v", err)
	}
	if Run("testing", explode) || !Run("testing", func() {}) {
		t.Error("Run does not report whether the function returned")
	}
}

// TestGoroutinesSurvivePanics ends the test process if any of them does not.
func TestGoroutinesSurvivePanics(*testing.T) {
	done := make(chan struct{}, 4)
	bad := func() {
		defer func() { done <- struct{}{} }()
		explode()
	}
	Go("testing", bad)
	AfterFunc("testing", 0, bad)
	ctx, cancel := context.WithCancel(context.Background())
	AfterDone(ctx, "testing", bad)
	cancel()
	var group WaitGroup
	group.Go("testing", bad)
	group.Wait()
	for range cap(done) {
		<-done
	}
}

func TestAPanicIsTheErrorOfItsGroup(t *testing.T) {
	group, ctx := GroupWithContext(context.Background(), "testing")
	group.SetLimit(2)
	group.Go(func() error { explode(); return nil })
	<-ctx.Done()
	checkPanic(t, group.Wait())
	group = NewGroup("testing")
	group.Go(func() error { return nil })
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAPanicIsTheErrorOfAllSharedCalls(t *testing.T) {
	var f Flight[string]
	_, err := f.Do("testing", "key", func() (string, error) { explode(); return "", nil })
	checkPanic(t, err)
	_, err = f.DoContext(context.Background(), "testing", "key", func() (string, error) { explode(); return "", nil })
	checkPanic(t, err)
	v, err := f.DoContext(context.Background(), "testing", "key", func() (string, error) { return "value", nil })
	if v != "value" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	blocked := make(chan struct{})
	defer close(blocked)
	cancel()
	_, err = f.DoContext(ctx, "testing", "other", func() (string, error) { <-blocked; return "", nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error of a canceled call is %v", err)
	}
}

func TestAHandlerThatPanicsAnswers500(t *testing.T) {
	server := httptest.NewServer(Handler("testing", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "begun")
		}
		explode()
	})))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusInternalServerError || strings.Contains(string(body), secret) ||
		!strings.Contains(string(body), Hint) {
		t.Errorf("status %d, body %q, error %v", resp.StatusCode, body, err)
	}
	resp, err = http.Get(server.URL + "/late")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("an answer that was cut off looks complete")
	}
}

func TestInformersGoOnAfterAPanic(t *testing.T) {
	var calls atomic.Int32
	count := func(any) { calls.Add(1); explode() }
	h := EventHandler("testing", cache.ResourceEventHandlerFuncs{AddFunc: count, DeleteFunc: count,
		UpdateFunc: func(_, o any) { count(o) }})
	h.OnAdd(nil, true)
	h.OnUpdate(nil, nil)
	h.OnDelete(nil)
	if calls.Load() != 3 {
		t.Errorf("%d of 3 events were handled", calls.Load())
	}
	if keys := Indexer("testing", func(client.Object) []string { explode(); return nil })(nil); keys != nil {
		t.Errorf("the keys are %q", keys)
	}
	p := Predicate("testing", predicate.NewPredicateFuncs(func(client.Object) bool { explode(); return false }))
	if !p.Create(event.CreateEvent{}) {
		t.Error("an event that cannot be judged is lost")
	}
	if Predicate("testing", predicate.NewPredicateFuncs(func(client.Object) bool { return false })).
		Create(event.CreateEvent{}) {
		t.Error("an event passes that the predicate refuses")
	}
}

func TestARunnableStartsAgainAfterAPanic(t *testing.T) {
	defer func(d time.Duration) { restartDelay = d }(restartDelay)
	restartDelay = time.Nanosecond
	starts := 0
	stopped := errors.New("stopped")
	r := Runnable("testing", manager.RunnableFunc(func(context.Context) error {
		if starts++; starts == 1 {
			explode()
		}
		return stopped
	}))
	if err := r.Start(context.Background()); !errors.Is(err, stopped) || starts != 2 {
		t.Errorf("started %d times, error %v", starts, err)
	}
	if elected, ok := r.(manager.LeaderElectionRunnable); !ok || !elected.NeedLeaderElection() {
		t.Error("a runnable runs on replicas that are not the leader")
	}
}

func TestLibrariesGoOnAfterAPanic(t *testing.T) {
	Libraries()
	calls := 0
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	wait.UntilWithContext(ctx, func(context.Context) {
		if calls++; calls == 1 {
			explode()
		}
		cancel()
	}, 0)
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// TestMissedDeletion has a deletion that an informer missed while it was not connected.
func TestMissedDeletion(t *testing.T) {
	var deleted []any
	h := EventHandler("test", cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) { deleted = append(deleted, o) }})
	h.OnDelete("seen")
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "namespace/name", Obj: "missed"})
	if len(deleted) != 2 || deleted[0] != "seen" || deleted[1] != "missed" {
		t.Errorf("the handler got %v", deleted)
	}
}
