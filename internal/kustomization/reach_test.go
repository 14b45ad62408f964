package kustomization

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func ask(t *testing.T, r *Reach, url string) error {
	t.Helper()
	cfg, err := r.by(&rest.Config{Host: url})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cfg.Transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestAClusterThatHangsHoldsUpNobody(t *testing.T) {
	var asked atomic.Int32
	var well atomic.Bool
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		if !well.Load() {
			<-release
		}
	}))
	defer server.Close()
	defer close(release)
	clock := testclock.NewFakePassiveClock(time.Now())
	r := NewReach(&net.Dialer{})
	r.Clock, r.Stranger = clock, 50*time.Millisecond

	err := ask(t, r, server.URL)
	if f := fault.As(err); f == nil || f.RetryAfter != 0 || f.Hint == "" {
		t.Fatalf("a cluster that hangs: %v", err)
	}
	err = ask(t, r, server.URL)
	if f := fault.As(err); f == nil || f.RetryAfter != firstPause {
		t.Fatalf("it is asked again at once: %v", err)
	}
	clock.SetTime(clock.Now().Add(firstPause))
	err = ask(t, r, server.URL)
	if f := fault.As(err); f == nil || f.RetryAfter != 0 {
		t.Fatalf("after the pause it is not asked: %v", err)
	}
	clock.SetTime(clock.Now().Add(firstPause))
	if f := fault.As(ask(t, r, server.URL)); f == nil || f.RetryAfter != firstPause {
		t.Errorf("the second pause is as long as the first: %v", f)
	}
	well.Store(true)
	r.Stranger, r.Known = 3*time.Minute, 3*time.Minute
	clock.SetTime(clock.Now().Add(2 * firstPause))
	for range 2 {
		if err := ask(t, r, server.URL); err != nil {
			t.Errorf("once it is well: %v", err)
		}
	}
	if n := asked.Load(); n > 4 { // twice in vain, of which it may not have heard, and twice when it was well
		t.Errorf("it was asked %d times", n)
	}
}

func TestWhoGaveUpSaysNothingOfTheCluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().
			Done()
	}))
	defer server.Close()
	r := NewReach(&net.Dialer{})
	cfg, err := r.by(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := cfg.Transport.RoundTrip(req); !errors.Is(err, context.Canceled) { //nolint:bodyclose // there is none
		t.Errorf("the error is %v", err)
	}
	if len(r.hosts) != 0 {
		t.Errorf("it is remembered: %v", r.hosts)
	}
}

func TestClustersAreNotAtLinkLocalAddresses(t *testing.T) {
	policy := &egress.Policy{RefuseLinkLocal: true}
	for _, url := range []string{"http://169.254.169.254", "http://[fe80::1]:80"} {
		if err := ask(t, NewReach(policy.Dialer()), url); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
