package kubeclient

import (
	"context"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

const (
	// electionInterval is how often a process looks at the lease at most, or 2.2 times as long: another one takes over
	// within this time after a release, and within twice this time after the lease ended.
	electionInterval = 400 * time.Millisecond
	// electionPause is how long it waits after a failed request for the lease.
	electionPause = 2 * time.Second
)

// fencedLock is the lock of the leader election. It opens and closes the fence. The election asks it more often than
// the lease is renewed, so that a standby takes over soon.
type fencedLock struct {
	resourcelock.Interface
	fence  *Fence
	renew  time.Duration // between renewals
	holder string        // of the lease, when it was read or written last
	// catchUp waits until the caches are as new as the API server.
	catchUp func(context.Context) error
}

// newLock returns the lock of the leader election, which is not fenced itself.
func newLock(cfg *rest.Config, o options.Options, fence *Fence, recorder resourcelock.EventRecorder,
	caches *informers) (resourcelock.Interface, error) {
	if fence == nil || o.AutoShards {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot take part in the leader election: cannot get the host name: %w", err)
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.RuntimeNamespace, o.LeaseName(),
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: recorder},
		cfg, o.RenewDeadline)
	if err != nil {
		return nil, fmt.Errorf("cannot take part in the leader election: %w", err)
	}
	caught, err := newCatchUp(cfg, o, caches)
	if err != nil {
		return nil, err
	}
	return &fencedLock{Interface: lock, fence: fence, renew: o.RetryPeriod, catchUp: caught.wait}, nil
}

// Get implements [resourcelock.Interface].
func (l *fencedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = r.HolderIdentity
	}
	if err != nil && !apierrors.IsNotFound(err) { // the election logs it
		pause(ctx, electionPause)
	}
	return r, raw, err
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Create implements [resourcelock.Interface].
func (l *fencedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, func() error { return l.Interface.Create(ctx, r) })
}

// Update implements [resourcelock.Interface].
func (l *fencedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, func() error { return l.Interface.Update(ctx, r) })
}

// write writes the lease. A release is written only if the lease is still that of this process: the election of
// client-go reads the lease before it releases it, but does not look at the holder, and would end the lease of another
// process that has it since. The lease is taken only with current caches.
func (l *fencedLock) write(ctx context.Context, r resourcelock.LeaderElectionRecord, write func() error) error {
	if r.HolderIdentity != l.Identity() {
		l.fence.release()
		if l.holder != l.Identity() {
			return nil
		}
		return write()
	}
	if l.holder != l.Identity() {
		if err := l.catchUp(ctx); err != nil {
			return err
		}
	}
	at := l.fence.now()
	if l.fence.renewedAfter(at.Add(-l.renew)) {
		return nil
	}
	if err := write(); err != nil {
		return err
	}
	l.holder = l.Identity()
	l.fence.renew(at)
	return nil
}
