package kubeclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// restored is a process with a detector, and a cluster that seems to be restored.
type restored struct {
	*testing.T
	client    client.WithWatch
	detector  *restoreDetector
	namespace string

	mu    sync.Mutex
	older int  // how many lists still have an old resource version
	looks int  // of the detector
	isCut bool // requests get no response
	sent  int  // writes
}

var listVersion = regexp.MustCompile(`("metadata":\{"resourceVersion":)"\d+"`)

func newRestored(t *testing.T) *restored {
	t.Helper()
	r := &restored{T: t, namespace: testenv.Namespace(t)}
	cfg := testenv.Cluster(t)
	define(t, cfg)
	cfg.Wrap(r.cluster)
	var err error
	if r.detector, err = newRestoreDetector(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Wrap(r.detector.Wrap)
	if r.client, err = client.NewWithWatch(cfg, client.Options{Scheme: Scheme()}); err != nil {
		t.Fatal(err)
	}
	return r
}

// define installs the definitions of our kinds, and waits until sources are served.
func define(t *testing.T, cfg *rest.Config) {
	t.Helper()
	objects, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "sources are served", func() error {
		return c.List(t.Context(), &sourcev1.GitRepositoryList{})
	})
}

// cluster returns the transport of all requests.
func (r *restored) cluster(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.isCut {
			return nil, errors.New("connection refused")
		}
		if req.Method != http.MethodGet {
			r.sent++
		}
		resp, err := next.RoundTrip(req)
		if err != nil || req.URL.RawQuery != "limit=1" {
			return resp, err
		}
		r.looks++
		if r.older == 0 {
			return resp, nil
		}
		r.older--
		defer resp.Body.Close() // replaced
		body, err := io.ReadAll(resp.Body)
		old := listVersion.ReplaceAll(body, []byte(`$1"2"`))
		if bytes.Equal(old, body) {
			r.Errorf("no resource version in %s", body)
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(old)), int64(len(old))
		return resp, err
	})
}

// set changes the cluster.
func (r *restored) set(older int, isCut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.older, r.isCut = older, isCut
}

// watches begins a watch, and waits until the detector has looked n times because of it.
func (r *restored) watches(n int) {
	r.Helper()
	r.mu.Lock()
	before := r.looks
	r.mu.Unlock()
	w, err := r.client.Watch(r.Context(), &sourcev1.GitRepositoryList{}, client.InNamespace(r.namespace))
	if err != nil {
		r.Fatal(err)
	}
	w.Stop()
	testenv.Eventually(r, "the detector has looked", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.detector.mu.Lock()
		defer r.detector.mu.Unlock()
		if r.looks < before+n || r.detector.looking {
			return errors.New("it has not")
		}
		return nil
	})
}

// writes returns the error of a write, and whether the cluster got it.
func (r *restored) writes() (err error, isSent bool) {
	r.mu.Lock()
	before := r.sent
	r.mu.Unlock()
	err = r.client.Create(r.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace,
		GenerateName: "x-"}})
	r.mu.Lock()
	defer r.mu.Unlock()
	return err, r.sent > before
}

// mustWrite fails the test unless a write succeeds, or fails with a text and is not sent.
func (r *restored) mustWrite(when, failure string) {
	r.Helper()
	err, isSent := r.writes()
	isRefused := err != nil && failure != "" && strings.Contains(err.Error(), failure) && !isSent
	if failure == "" && err != nil || failure != "" && !isRefused {
		r.Errorf("%s: sent: %t, error %v, want '%s'", when, isSent, err, failure)
	}
}

// TestNothingIsWrittenAfterARestore has lists with an old resource version: once, and then always.
func TestNothingIsWrittenAfterARestore(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.mustWrite("before the first watch", "")
	r.watches(1)
	r.set(1, false)
	r.watches(2)
	r.mustWrite("after one old list", "")

	r.set(1, true)
	_, _ = r.writes()
	r.set(0, false)
	r.mustWrite("after an outage", "")

	r.set(0, true)
	_, _ = r.writes()
	r.set(1000, false)
	r.mustWrite("after an outage and a restore", "etcd was restored from a backup")
	r.set(0, false)
	r.mustWrite("after a restore was detected", "etcd was restored from a backup")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := r.detector.Start(ctx); !errors.Is(err, ErrRestored) {
		t.Errorf("the process goes on: %v", err)
	}
}

// TestARestoreIsDetectedByWatches has a process that writes nothing.
func TestARestoreIsDetectedByWatches(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.watches(1)
	r.set(1000, false)
	r.watches(2)
	select {
	case <-r.detector.found:
	default:
		t.Error("not detected")
	}
}
