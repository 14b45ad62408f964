package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// cutOff fills a cache of GitRepositories whose watch sends only what the test passes on.
func (f *fenced) cutOff() (caches *informers, events *watch.FakeWatcher) {
	f.Helper()
	caches, events = &informers{}, watch.NewFake()
	informer := caches.create(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all := &sourcev1.GitRepositoryList{}
			return all, f.client.List(ctx, all, client.InNamespace(f.namespace), &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("the test lists objects")
			}
			return events, nil
		},
	}, &sourcev1.GitRepository{}, 0, nil)
	go informer.RunWithContext(f.Context())
	if !cache.WaitForCacheSync(f.Context().Done(), informer.HasSynced) {
		f.Fatal("the cache is not filled")
	}
	return caches, events
}

// define installs the definition of GitRepositories.
func (f *fenced) define() {
	f.Helper()
	definitions, err := config.Definitions()
	if err != nil {
		f.Fatal(err)
	}
	for _, d := range definitions {
		if d.GetName() != "gitrepositories.source.toolkit.fluxcd.io" {
			continue
		}
		if err := f.client.Create(f.Context(), d); err != nil && !apierrors.IsAlreadyExists(err) {
			f.Fatal(err)
		}
	}
	testenv.Eventually(f, "the definition is served", func() error {
		return f.client.List(f.Context(), &sourcev1.GitRepositoryList{})
	})
}

// TestAStandbyThatIsBehindDoesNotTakeTheLease has a standby that was cut off, and gets events later than the lease.
func TestAStandbyThatIsBehindDoesNotTakeTheLease(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	f.hold(f.lock.Create, f.lock.Identity()) // to write as another leader
	f.define()
	repository := func(name string) *sourcev1.GitRepository {
		o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
			Spec: sourcev1.GitRepositorySpec{URL: "https://example.com/" + name,
				Interval: meta.Duration{Duration: time.Hour}}}
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	changed, deleted := repository("changed"), repository("deleted")
	caches, events := f.cutOff()
	o := options.Options{RuntimeNamespace: f.namespace}
	caught, err := newCatchUp(testenv.Cluster(t), o, caches)
	if err != nil {
		t.Fatal(err)
	}
	if err := caught.wait(t.Context()); err != nil {
		t.Fatalf("a cache that was just filled: %v", err)
	}

	changed.Spec.URL = "https://example.com/new"
	if err := f.client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	f.refused(caught, "GitRepository '"+f.namespace+"/changed' and 0 other objects")
	events.Modify(changed.DeepCopy())
	f.taken(caught)

	if err := f.client.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	f.refused(caught, "GitRepository '"+f.namespace+"/deleted' and 0 other objects")
	events.Delete(deleted)
	f.taken(caught)

	created := repository("created")
	f.refused(caught, "GitRepository '"+f.namespace+"/created' and 0 other objects; another replica may take the lease")
	events.Add(created)
	f.taken(caught)
}

// take tries to take the lease as a standby whose caches are compared.
func (f *fenced) take(caught *catchUp) error {
	lock := &fencedLock{Interface: f.lock.(*fencedLock).Interface, fence: NewFence(options.Options{LeaderElection: true,
		RenewDeadline: 1, Clock: f.clock}), catchUp: caught.wait}
	if _, _, err := lock.Get(f.Context()); err != nil {
		return err
	}
	lock.holder = "another process"
	now := metav1.NewTime(f.clock.Now())
	return lock.Update(f.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity(),
		LeaseDurationSeconds: 35, AcquireTime: now, RenewTime: now})
}

func (f *fenced) refused(caught *catchUp, says string) {
	f.Helper()
	if err := f.take(caught); err == nil || !strings.Contains(err.Error(), says) {
		f.Errorf("the error is %v, want %q", err, says)
	}
}

func (f *fenced) taken(caught *catchUp) {
	f.Helper()
	testenv.Eventually(f, "the lease", func() error {
		if err := f.take(caught); err != nil {
			return fmt.Errorf("not taken: %w", err)
		}
		return nil
	})
}
