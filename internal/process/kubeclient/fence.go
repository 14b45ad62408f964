package kubeclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// Errors of requests that a process without the lease of the leader election does not send.
var (
	ErrLeaseLost = errors.New("this process no longer holds its lease and writes nothing; another process " +
		"continues its work")
	ErrNoLease = errors.New("this process does not hold a lease and writes nothing; another process does the work")
)

// Fence refuses the writes of a process that does not hold its lease: that of the leader election, or its own among
// replicas that share all objects (see [Membership]). The election itself notices a loss late: a process that was
// stopped for a while first continues where it was, and a process that cannot reach the API server works until its last
// attempt to release the lease has failed.
//
// A renewal counts from the time before its request, and for the renew deadline, which is shorter than the lease: no
// other process has the lease before. A process that waits for the lease, or released it in time, writes Events and
// what [OnStandby] allows.
type Fence struct {
	now      func() time.Time
	validFor time.Duration

	mu        sync.Mutex
	hasLease  bool // it was acquired, and not released
	hadLease  bool
	mayReport bool // the lease was valid when it was released
	renewed   time.Time
}

// NewFence returns a fence for a process with these options, or nil if it uses no leases. Wrap of a nil fence
// changes nothing.
func NewFence(o options.Options) *Fence {
	if !o.UsesLeases() {
		return nil
	}
	return &Fence{now: o.GetClock().Now, validFor: o.RenewDeadline}
}

// Wrap returns a transport that sends writes only while the fence is open.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return &fencedTransport{RoundTripper: next, fence: f, kindOf: kindOf}
}

// WrapStorage returns a transport to storage that replicas share, such as a bucket. All writes to it are work of the
// leader.
func (f *Fence) WrapStorage(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return &fencedTransport{RoundTripper: next, fence: f, kindOf: func(*http.Request) write { return work }}
}

// write is a kind of request that is not a read.
type write int

const (
	work    write = iota // needs the lease
	request              // an event, or a request that OnStandby allows: not of a process that lost its lease
	review               // stores nothing in the cluster
)

type standbyKey struct{}

// OnStandby returns a context whose writes a standby sends as well. They must be requests of others that it serves, or
// what it needs to serve them, and must not decide anything.
func OnStandby(ctx context.Context) context.Context {
	return context.WithValue(ctx, standbyKey{}, true)
}

// StandbyWriter returns a writer whose patches a standby sends as well; see [OnStandby].
func StandbyWriter(w client.Writer) client.Writer { return standbyWriter{w} }

type standbyWriter struct{ client.Writer }

// Patch implements [client.Writer].
func (w standbyWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return w.Writer.Patch(OnStandby(ctx), o, p, opts...)
}

// kindOf returns the kind of a request that is not a read.
func kindOf(r *http.Request) write {
	switch p := r.URL.Path; {
	case strings.HasPrefix(p, "/apis/authentication.k8s.io/"), strings.HasPrefix(p, "/apis/authorization.k8s.io/"):
		return review
	case strings.HasPrefix(p, "/apis/events.k8s.io/"), strings.HasSuffix(p, "/token") &&
		strings.Contains(p, "/serviceaccounts/"), r.Context().Value(standbyKey{}) != nil:
		return request
	}
	return work
}

// check returns an error if the process may not send a write.
func (f *Fence) check(kind write) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case kind == review, f.hasLease && f.isValid(), kind == request && (!f.hadLease || f.mayReport):
		return nil
	case !f.hadLease:
		return ErrNoLease
	}
	return ErrLeaseLost
}

// isValid reports whether the last renewal counts. The caller holds the lock.
func (f *Fence) isValid() bool { return f.now().Sub(f.renewed) < f.validFor }

// renewedAfter reports whether the lease is held and was renewed after a time.
func (f *Fence) renewedAfter(at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hasLease && f.renewed.After(at)
}

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
	fence  *Fence
	kindOf func(*http.Request) write
}

// RoundTrip implements [http.RoundTripper]. The lease is checked again when the body is sent, as the process may have
// been stopped in between.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return t.RoundTripper.RoundTrip(req)
	}
	kind := t.kindOf(req)
	if err := t.fence.check(kind); err != nil {
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close())
		}
		return nil, err
	}
	if req.Body == nil || req.Body == http.NoBody {
		return t.RoundTripper.RoundTrip(req)
	}
	fenced := *req
	fenced.Body = &fencedBody{ReadCloser: req.Body, fence: t.fence, kind: kind}
	if get := req.GetBody; get != nil {
		fenced.GetBody = func() (io.ReadCloser, error) {
			body, err := get()
			return &fencedBody{ReadCloser: body, fence: t.fence, kind: kind}, err
		}
	}
	return t.RoundTripper.RoundTrip(&fenced)
}

// WrappedRoundTripper returns the transport that sends the requests.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// fencedBody is the body of a write. A server does nothing with a body that ends early.
type fencedBody struct {
	io.ReadCloser
	fence *Fence
	kind  write
}

// Read implements [io.Reader].
func (b *fencedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if lost := b.fence.check(b.kind); lost != nil {
		return 0, lost
	}
	return n, err
}
