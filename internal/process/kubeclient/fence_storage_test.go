package kubeclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// storing is a process that stores files in a bucket, and takes part in the leader election.
type storing struct {
	*testing.T
	clock   *testclock.FakeClock
	fence   *Fence
	backend artifact.Backend
	losesAt int // bytes of a body after which the process is stopped until its lease has ended; 0: never
}

func newStoring(t *testing.T) *storing {
	t.Helper()
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	s := &storing{T: t, clock: testclock.NewFakeClock(time.Now())}
	s.fence = NewFence(options.Options{LeaderElection: true, RenewDeadline: 30 * time.Second, Clock: s.clock})
	var err error
	s.backend, err = artifact.NewS3Backend(artifact.S3Options{Endpoint: server.URL, Bucket: "artifacts"},
		func(next http.RoundTripper) http.RoundTripper {
			return s.fence.WrapStorage(roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Body != nil && s.losesAt > 0 {
					r = r.Clone(r.Context())
					r.Body = &stopped{ReadCloser: r.Body, s: s, left: s.losesAt}
				}
				return next.RoundTrip(r)
			}))
		})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stopped is a body of a process that is stopped when a part of it was sent.
type stopped struct {
	io.ReadCloser
	s    *storing
	left int
}

// Read implements [io.Reader].
func (b *stopped) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), max(b.left, 1))])
	if b.left -= n; b.left <= 0 {
		b.s.clock.Step(time.Minute)
	}
	return n, err
}

// mustHold fails the test unless a file of the bucket has a size. Size 0 is that of one that does not exist.
func (s *storing) mustHold(when, name string, size int64) {
	s.Helper()
	files, err := s.backend.List(s.Context(), "")
	if err != nil {
		s.Fatalf("%s: a read was refused: %v", when, err)
	}
	got := int64(0)
	for _, f := range files {
		if f.Name == name {
			got = f.Size
		}
	}
	if got != size {
		s.Errorf("%s: '%s' has %d bytes, want %d", when, name, got, size)
	}
}

// put stores a file. It fails the test unless the error is the wanted one.
func (s *storing) put(when, name string, size int, want error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
	defer cancel()
	err := s.backend.Put(ctx, name, bytes.NewReader(make([]byte, size)), int64(size))
	if !errors.Is(err, want) || want == nil && err != nil {
		s.Errorf("%s: got %v, want %v", when, err, want)
	}
}

// delete removes the file. It fails the test unless the error is the wanted one.
func (s *storing) delete(when, name string, want error) {
	s.Helper()
	if err := s.backend.Delete(s.Context(), name); !errors.Is(err, want) || want == nil && err != nil {
		s.Errorf("%s: got %v, want %v", when, err, want)
	}
}

// TestOnlyTheHolderOfTheLeaseWritesToTheBucket stores files in one request, and one in several parts.
func TestOnlyTheHolderOfTheLeaseWritesToTheBucket(t *testing.T) {
	t.Parallel()
	const small, large = 1 << 20, 40 << 20
	s := newStoring(t)
	s.put("before the election", "a", small, ErrNoLease)
	s.mustHold("before the election", "a", 0)
	s.fence.renew(s.clock.Now())
	s.put("with the lease", "a", small, nil)
	s.put("with the lease", "b", large, nil)
	s.mustHold("with the lease", "a", small)
	s.mustHold("with the lease", "b", large)

	s.clock.Step(30 * time.Second)
	s.put("after the renew deadline", "c", small, ErrLeaseLost)
	s.delete("after the renew deadline", "a", ErrLeaseLost)
	s.mustHold("after the renew deadline", "c", 0)
	s.mustHold("after the renew deadline", "a", small)

	for name, size := range map[string]int{"d": small, "e": large, "a": small + 1} {
		s.losesAt = min(size/2, 8<<20) // a part has 16 MiB
		s.fence.renew(s.clock.Now())
		s.put("in the middle of a body", name, size, ErrLeaseLost)
	}
	s.mustHold("in the middle of a body", "d", 0)
	s.mustHold("in the middle of a body", "e", 0)
	s.mustHold("in the middle of a body", "a", small)

	s.losesAt = 0
	s.fence.renew(s.clock.Now())
	s.fence.release()
	s.delete("after the lease was released", "a", ErrLeaseLost)
	s.mustHold("after the lease was released", "a", small)
	s.fence.renew(s.clock.Now())
	s.delete("with the lease again", "a", nil)
	s.mustHold("with the lease again", "a", 0)
}
