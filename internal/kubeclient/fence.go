package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sluice-gitops/sluice/internal/options"
)

// ErrLeaseLost is the error of requests that a process without the lease of the leader election does not send.
var ErrLeaseLost = errors.New("this process no longer holds the lease of the leader election and writes nothing; " +
	"another process continues its work")

// Fence refuses the writes of a process that lost the lease of the leader election. The election itself notices a loss
// late: a process that was stopped for a while first continues where it was, and a process that cannot reach the API
// server works until its last attempt to release the lease has failed.
//
// A renewal counts from the time before its request, and for the renew deadline, which is shorter than the lease: no
// other process has the lease before. A process that has not held the lease yet is not restricted.
type Fence struct {
	now      func() time.Time
	validFor time.Duration

	mu        sync.Mutex
	hasLease  bool // it was acquired, and not released
	hadLease  bool
	mayReport bool // the lease was valid when it was released
	renewed   time.Time
}

// NewFence returns a fence for a process with these options, or nil without leader election. Wrap of a nil fence
// changes nothing.
func NewFence(o options.Options) *Fence {
	if !o.LeaderElection {
		return nil
	}
	return &Fence{now: o.GetClock().Now, validFor: o.RenewDeadline}
}

// Wrap returns a transport that sends writes only while the fence is open.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return &fencedTransport{RoundTripper: next, fence: f}
}

// check returns an error if the lease is lost. Events of a process that released its lease are not refused: they
// report what it did before.
func (f *Fence) check(isEvent bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.hadLease, f.mayReport && isEvent, f.hasLease && f.isValid():
		return nil
	}
	return ErrLeaseLost
}

// isValid reports whether the last renewal counts. The caller holds the lock.
func (f *Fence) isValid() bool { return f.now().Sub(f.renewed) < f.validFor }

// renew records that the lease was held at a time.
func (f *Fence) renew(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hasLease, f.hadLease, f.mayReport, f.renewed = true, true, false, at
}

// release records that the lease is about to be released.
func (f *Fence) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mayReport = f.hasLease && f.isValid()
	f.hasLease = false
}

// fencedTransport is the transport of a [Fence].
type fencedTransport struct {
	http.RoundTripper
	fence *Fence
}

// RoundTrip implements [http.RoundTripper]. The lease is checked again when the body is sent, as the process may have
// been stopped in between.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return t.RoundTripper.RoundTrip(req)
	}
	isEvent := strings.HasPrefix(req.URL.Path, "/apis/events.k8s.io/")
	if err := t.fence.check(isEvent); err != nil {
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close())
		}
		return nil, err
	}
	if req.Body == nil || req.Body == http.NoBody {
		return t.RoundTripper.RoundTrip(req)
	}
	fenced := *req
	fenced.Body = &fencedBody{ReadCloser: req.Body, fence: t.fence, isEvent: isEvent}
	if get := req.GetBody; get != nil {
		fenced.GetBody = func() (io.ReadCloser, error) {
			body, err := get()
			return &fencedBody{ReadCloser: body, fence: t.fence, isEvent: isEvent}, err
		}
	}
	return t.RoundTripper.RoundTrip(&fenced)
}

// WrappedRoundTripper returns the transport that sends the requests.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// fencedBody is the body of a write. A server does nothing with a body that ends early.
type fencedBody struct {
	io.ReadCloser
	fence   *Fence
	isEvent bool
}

// Read implements [io.Reader].
func (b *fencedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if lost := b.fence.check(b.isEvent); lost != nil {
		return 0, lost
	}
	return n, err
}

// fencedLock is the lock of the leader election. It opens and closes the fence.
type fencedLock struct {
	resourcelock.Interface
	fence *Fence
}

// newLock returns the lock of the leader election, which is not fenced itself.
func newLock(cfg *rest.Config, o options.Options, fence *Fence, recorder resourcelock.EventRecorder,
) (resourcelock.Interface, error) {
	if fence == nil {
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
	return &fencedLock{Interface: lock, fence: fence}, nil
}

// Create implements [resourcelock.Interface].
func (l *fencedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r, func() error { return l.Interface.Create(ctx, r) })
}

// Update implements [resourcelock.Interface].
func (l *fencedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r, func() error { return l.Interface.Update(ctx, r) })
}

func (l *fencedLock) write(r resourcelock.LeaderElectionRecord, write func() error) error {
	if r.HolderIdentity != l.Identity() {
		l.fence.release()
		return write()
	}
	at := l.fence.now()
	if err := write(); err != nil {
		return err
	}
	l.fence.renew(at)
	return nil
}
