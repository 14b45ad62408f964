package kubewatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	everything = Key{Resource: configMaps}
	one        = types.NamespacedName{Namespace: "ns", Name: "one"}
)

type (
	object    = metav1.PartialObjectMetadata
	testStore = Store[*object, string, string]
	testWatch = Watch[*object, string, string]
)

// server is a cluster of one resource.
type server struct {
	mu      sync.Mutex
	objects []object
	listErr error
	refuses int // how many lists are refused before
	lists   int
	options []metav1.ListOptions
	open    []*apiwatch.FakeWatcher
}

func (s *server) list(_ context.Context, _ Key, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	s.options = append(s.options, o)
	if s.refuses > 0 {
		s.refuses--
		return nil, errForbidden
	}
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "10"},
		Items: s.objects}, s.listErr
}

func (s *server) watch(context.Context, Key, metav1.ListOptions) (apiwatch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := apiwatch.NewFakeWithOptions(apiwatch.FakeOptions{ChannelSize: 10})
	s.open = append(s.open, w)
	return w, nil
}

// IsWatchListSemanticsUnSupported makes reflectors list before they watch.
func (s *server) IsWatchListSemanticsUnSupported() bool { return true }

func (s *server) set(err error, objects ...object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listErr, s.objects = err, objects
}

var errForbidden = apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("roles are not known yet"))

// refuse refuses some lists. Further ones fail otherwise.
func (s *server) refuse(lists int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses, s.listErr = lists, errors.New("connection refused")
}

// last returns the newest open watch; nil if there is none.
func (s *server) last() *apiwatch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == 0 {
		return nil
	}
	return s.open[len(s.open)-1]
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func object1(version string) object {
	return object{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", ResourceVersion: version}}
}

// fixture is a store with a log of what its handler received.
type fixture struct {
	*testStore
	server *server
	mu     sync.Mutex
	log    []string
	t      *testing.T
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, server: &server{}}
	client := Client[*object]{List: f.server.list, Watch: f.server.watch, origin: f.server}
	f.testStore = New(&f.mu, client, Handler[*object, string, string]{
		Object: func(_ *testWatch, o *object, deleted bool) {
			f.log = append(f.log, fmt.Sprintf("object %s deleted=%v", o.Name, deleted))
		},
		Changed:  func(_ *testWatch, s []string) { f.log = append(f.log, fmt.Sprint("changed ", s)) },
		Refused:  func(*testWatch) { f.log = append(f.log, "refused") },
		Unserved: func(*testWatch) { f.log = append(f.log, "unserved") },
		Unlocked: func() {
			f.mu.Lock() // it must be free
			defer f.mu.Unlock()
			f.log = append(f.log, "unlocked")
		},
	})
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.Close()
	})
	return f
}

// subscribe adds a subscriber to the object "one" of a watch of everything.
func (f *fixture) subscribe(subscriber string) *testWatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.Watch(everything, func(o *object) string { return "at " + o.ResourceVersion })
	w.Subscribe(one, subscriber)
	return w
}

// await waits until a condition holds; the lock is held while it is checked.
func (f *fixture) await(what string, holds func() bool) {
	f.t.Helper()
	testenv.Eventually(f.t, what, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !holds() {
			return fmt.Errorf("handler received %q", f.log)
		}
		return nil
	})
}

func (f *fixture) logged(line string) bool {
	for _, l := range f.log {
		if l == line {
			return true
		}
	}
	return false
}

// TestValuesAreComputedWithoutLock has a value that needs the lock: expressions over objects may take long, and other
// owners must not wait for them.
func TestValuesAreComputedWithoutLock(t *testing.T) {
	f := newFixture(t)
	f.mu.Lock()
	w := f.Watch(everything, func(o *object) string {
		f.mu.Lock() // it must be free
		defer f.mu.Unlock()
		return "at " + o.ResourceVersion
	})
	w.Subscribe(one, "a")
	f.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		first, second := object1("11"), object1("12")
		done <- errors.Join(w.Replace([]any{&first}, "11"), w.Update(&second))
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the value is computed while the lock is held")
	}
}

// TestObjectsAreDroppedWhenTheyAreDecoded has an object with much more than its value: others decide how many of them a
// watch lists, and how large they are. A handler gets the whole objects of the watches that it selects.
func TestObjectsAreDroppedWhenTheyAreDecoded(t *testing.T) {
	f := newFixture(t)
	large := object1("7")
	large.Annotations = map[string]string{"note": strings.Repeat("x", 1<<20)}
	f.server.set(nil, large)
	for _, whole := range []bool{false, true} {
		f.handler.Whole = func(Key) bool { return whole }
		w := &testWatch{store: f.testStore, project: func(o *object) string { return "at " + o.ResourceVersion }}
		page, err := w.list(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events, err := w.connect(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.server.last().Modify(&large)
		f.server.last().Action(apiwatch.Bookmark, &large)
		list, err := meta.ExtractList(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range append(list, (<-events.ResultChan()).Object) {
			i, ok := o.(*item[*object, string])
			if !ok || nameOf(i) != one || i.ResourceVersion != "7" || i.value != "at 7" || len(i.Annotations) > 0 ||
				(i.object != nil) != whole {
				t.Errorf("whole %v: %+v is left", whole, o)
			}
		}
		// The reflector finds the end of a streamed list by an annotation.
		if i, ok := (<-events.ResultChan()).Object.(*item[*object, string]); !ok || len(i.Annotations) != 1 {
			t.Errorf("the bookmark is %+v", i)
		}
		if m, err := meta.ListAccessor(page); err != nil || m.GetResourceVersion() != "10" {
			t.Errorf("the list has version %s (%v)", m.GetResourceVersion(), err)
		}
	}
}

// TestBookmarksAreAboutAbsentObjects takes random events and expects that a bookmark tells the subscribers of exactly
// those objects that do not exist.
func TestBookmarksAreAboutAbsentObjects(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // not for keys
	f := newFixture(t)
	f.mu.Lock()
	w := f.Watch(Key{Resource: configMaps, Name: "none"}, func(o *object) string { return o.ResourceVersion })
	f.mu.Unlock()
	f.await("the list, after which the server says nothing", w.Live)
	exists, subscribed := map[string]bool{}, map[string]bool{}
	named := func(name string) *object {
		return &object{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: "1"}}
	}
	for round := range 500 {
		name := fmt.Sprint("o", random.IntN(6))
		key := types.NamespacedName{Namespace: "ns", Name: name}
		var err error
		switch random.IntN(6) {
		case 0:
			err, exists[name] = w.Add(named(name)), true
		case 1:
			err = w.Delete(named(name))
			delete(exists, name)
		case 2:
			exists = map[string]bool{name: true}
			err = w.Replace([]any{named(name)}, "2")
		default:
			f.mu.Lock()
			if subscribed[name] {
				w.Unsubscribe(key, name)
				delete(subscribed, name)
			} else {
				w.Subscribe(key, name)
				subscribed[name] = true
			}
			f.mu.Unlock()
		}
		f.mu.Lock()
		f.log = nil
		f.mu.Unlock()
		if err := errors.Join(err, w.Bookmark("3")); err != nil {
			t.Fatal(err)
		}
		var want []string
		for name := range subscribed {
			if !exists[name] {
				want = append(want, fmt.Sprint("changed ", []string{name}))
			}
		}
		f.mu.Lock()
		got := slices.DeleteFunc(slices.Clone(f.log), func(l string) bool { return !strings.HasPrefix(l, "changed") })
		f.mu.Unlock()
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Fatalf("round %d: the bookmark says %q, want %q", round, got, want)
		}
	}
}

func TestSubscribersShareAWatch(t *testing.T) {
	f := newFixture(t)
	f.server.set(nil, object1("7"))
	w := f.subscribe("a")
	if f.subscribe("b") != w {
		t.Error("the second subscriber has another watch")
	}
	f.await("list", w.Live)
	f.await("watch", func() bool { return f.server.last() != nil })
	f.mu.Lock()
	if value, ok := w.Value(one); !ok || value != "at 7" || w.ResourceVersion() != "10" || f.server.count() != 1 {
		t.Errorf("value %q, version %q, %d lists", value, w.ResourceVersion(), f.server.count())
	}
	if !f.logged("object one deleted=false") || !f.logged("changed [a b]") || f.log[len(f.log)-1] != "unlocked" {
		t.Errorf("handler received %q", f.log)
	}
	f.mu.Unlock()

	changed := object1("11")
	f.server.last().Modify(&changed)
	f.await("update", func() bool { v, _ := w.Value(one); return v == "at 11" })
	f.server.last().Delete(&changed)
	f.await("deletion", func() bool { _, ok := w.Value(one); return !ok && f.logged("object one deleted=true") })

	f.mu.Lock()
	defer f.mu.Unlock()
	w.Unsubscribe(one, "a")
	if !w.HasSubscribers() {
		t.Error("the last subscriber is gone")
	}
	for name, s := range w.Subscribers() {
		if name != one || s != "b" {
			t.Errorf("subscriber %s of %s", s, name)
		}
		w.Unsubscribe(name, s)
	}
	if w.HasSubscribers() {
		t.Error("a subscriber is left")
	}
	f.Remove(w)
	if f.Get(everything) != nil || w.Synced() {
		t.Error("the watch was not removed")
	}
}

func TestBrokenWatchReconnects(t *testing.T) {
	f := newFixture(t)
	f.server.set(nil, object1("7"))
	w := f.subscribe("a")
	f.await("watch", func() bool { return w.Live() && f.server.last() != nil })
	f.server.set(errors.New("connection refused"))
	f.server.last().Stop()
	f.await("break", func() bool { return !w.Live() })
	f.mu.Lock()
	if value, _ := w.Value(one); !w.Synced() || value != "at 7" {
		t.Errorf("the values of the broken watch are lost: synced %v, value %q", w.Synced(), value)
	}
	f.mu.Unlock()
	f.server.set(nil)
	f.await("reconnect", func() bool { _, ok := w.Value(one); return w.Live() && !ok })
}

func TestRefusedWatchResumes(t *testing.T) {
	f := newFixture(t)
	f.server.set(apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("no right")))
	w := f.subscribe("a")
	f.await("refusal", func() bool { return f.logged("refused") && w.Refusal() != nil && !w.Synced() })
	f.server.set(nil, object1("7"))
	f.mu.Lock()
	w.Resume()
	w.Resume() // the watch runs already
	f.mu.Unlock()
	f.await("list", func() bool { return w.Live() && w.Refusal() == nil })
	if n := f.server.count(); n != 2 {
		t.Errorf("%d lists, want 2", n)
	}
}

// TestWatchSurvivesRefusalsOfAStart breaks a watch, and refuses it for a while, as an API server that starts does.
func TestWatchSurvivesRefusalsOfAStart(t *testing.T) {
	f := newFixture(t)
	f.server.set(nil, object1("7"))
	w := f.subscribe("a")
	f.await("watch", func() bool { return w.Live() && f.server.last() != nil })
	f.server.refuse(2) // not more, as the right counts as revoked after some
	lists := f.server.count()
	f.server.last().Stop()
	f.await("refusals", func() bool { return f.server.count() >= lists+2 })
	f.mu.Lock()
	if w.Refusal() != nil || w.Live() || f.logged("refused") {
		t.Errorf("refusal %v, live %v, log %q", w.Refusal(), w.Live(), f.log)
	}
	f.mu.Unlock()
	f.server.set(nil, object1("8"))
	f.await("list", func() bool { v, _ := w.Value(one); return w.Live() && v == "at 8" })

	t.Log("the right was revoked")
	for i := range maxRefusals {
		if final := w.ended(errForbidden); final != (i == maxRefusals-1) {
			t.Fatalf("refusal %d is final: %v", i, final)
		}
	}
	f.await("refusal", func() bool { return f.logged("refused") && w.Refusal() != nil })
}

func TestUnservedWatchIsRemoved(t *testing.T) {
	f := newFixture(t)
	f.server.set(apierrors.NewNotFound(configMaps.GroupResource(), ""))
	w := f.subscribe("a")
	f.await("removal", func() bool { return f.logged("unserved") && f.Get(everything) == nil })
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.Resume(); w.cancel != nil {
		t.Error("a removed watch was resumed")
	}
}

func TestKeyRestrictsRequests(t *testing.T) {
	got := Key{Name: "one", LabelSelector: "a=b"}.restrict(metav1.ListOptions{Limit: 5})
	if got.FieldSelector != "metadata.name=one" || got.LabelSelector != "a=b" || got.Limit != 5 {
		t.Errorf("options %+v", got)
	}
}

func TestCloseStopsAllWatches(t *testing.T) {
	f := newFixture(t)
	w := f.subscribe("a")
	f.await("list", w.Live)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Close()
	for key := range f.All() {
		t.Errorf("watch %v is left", key)
	}
	if w.cancel != nil {
		t.Error("the watch runs")
	}
}

// TestAWatchGoesOnAfterAPanic has objects that a projection and a handler cannot read.
func TestAWatchGoesOnAfterAPanic(t *testing.T) {
	f := newFixture(t)
	f.handler.Object = func(_ *testWatch, o *object, _ bool) {
		if o.ResourceVersion == "11" {
			panic("oh")
		}
	}
	f.server.set(nil, object1("7"))
	f.mu.Lock()
	w := f.Watch(everything, func(o *object) string {
		if o.ResourceVersion == "7" || o.ResourceVersion == "12" {
			panic("oh")
		}
		return "at " + o.ResourceVersion
	})
	w.Subscribe(one, "a")
	f.mu.Unlock()
	f.await("list", w.Live)
	f.await("watch", func() bool { return f.server.last() != nil })
	for _, version := range []string{"11", "12", "13"} {
		changed := object1(version)
		f.server.last().Modify(&changed)
	}
	f.await("the last event", func() bool { v, _ := w.Value(one); return v == "at 13" })
	if n := f.server.count(); n != 1 {
		t.Errorf("%d lists", n)
	}
}
