package resourceversion

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestAnUnreadableVersionIsListedAgain damages the resource version of the first list, or of the first event. The cache
// must get what is created afterwards. Without Relisting, it repeats requests with the damaged version.
func TestAnUnreadableVersionIsListedAgain(t *testing.T) {
	for damaged, first := range map[string]*damage{"list": {list: "not-a-number"}, "event": {event: "-1"}} {
		t.Run(damaged, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(testenv.Cluster(t))
			if err != nil {
				t.Fatal(err)
			}
			namespace := testenv.Namespace(t)
			first.configMaps = client.CoreV1().ConfigMaps(namespace)
			informer := cache.NewSharedIndexInformer(Relisting(&cache.ListWatch{
				ListWithContextFunc: first.listAll, WatchFuncWithContext: first.watchAll,
			}), &corev1.ConfigMap{}, 0, nil)
			go informer.RunWithContext(t.Context())
			for _, name := range []string{"first", "second"} {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
				if _, err := first.configMaps.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				testenv.Eventually(t, "the cache has what was created", func() error {
					_, found, err := informer.GetStore().GetByKey(namespace + "/" + name)
					if err == nil && !found {
						return errors.New("it is missing")
					}
					return err
				})
			}
		})
	}
}

// damage replaces a resource version once. A reflector sends one request at a time.
type damage struct {
	configMaps  corev1client.ConfigMapInterface
	list, event string // the wrong versions; empty for none
}

func (d *damage) listAll(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := d.configMaps.List(ctx, o)
	if d.list != "" && err == nil {
		list.ResourceVersion, d.list = d.list, ""
	}
	return list, err
}

func (d *damage) watchAll(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, errors.New("the test lists objects")
	}
	w, err := d.configMaps.Watch(ctx, o)
	if err != nil || d.event == "" {
		return w, err
	}
	version := d.event
	d.event = ""
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if o, ok := e.Object.(*corev1.ConfigMap); ok {
			o.ResourceVersion = version
			w.Stop() // the next request names this version
		}
		return e, true
	}), nil
}

// TestAWrongObjectOfACacheEnds changes the first event of an object, and ends the watch after an hour.
func TestAWrongObjectOfACacheEnds(t *testing.T) {
	client, err := kubernetes.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	namespace := testenv.Namespace(t)
	configMaps := client.CoreV1().ConfigMaps(namespace)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	var lies atomic.Bool
	lies.Store(true)
	watches := make(chan watch.Interface, 10)
	informer := cache.NewSharedIndexInformer(relistingAt(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return configMaps.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := configMaps.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			watches <- w
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if o, ok := e.Object.(*corev1.ConfigMap); ok && o.Name == "a" && lies.Load() {
					o.Data = map[string]string{"k": "wrong"}
				}
				return e, true
			}), nil
		},
	}, clock), &corev1.ConfigMap{}, 0, nil)
	go informer.RunWithContext(t.Context())
	cached := func(want string) {
		t.Helper()
		testenv.Eventually(t, "the cache has the value "+want, func() error {
			o, found, err := informer.GetStore().GetByKey(namespace + "/a")
			if err != nil || !found {
				return errors.New("the object is missing")
			}
			if got := o.(*corev1.ConfigMap).Data["k"]; got != want {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	testenv.Eventually(t, "the first list", func() error {
		if !informer.HasSynced() {
			return errors.New("it is missing")
		}
		return nil
	})
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "right"}}
	if _, err := configMaps.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cached("wrong")
	lies.Store(false)
	clock.SetTime(clock.Now().Add(maxAge))
	for len(watches) > 0 { // the API server ends a watch after some minutes
		(<-watches).Stop()
	}
	cached("right")
}
