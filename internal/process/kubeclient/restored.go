package kubeclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// ErrRestored is the error of a process that runs while etcd is restored from a backup. What its caches hold is newer
// than what the API server sends since, so that it would decide by objects that no longer exist.
var ErrRestored = errors.New("etcd was restored from a backup: the API server has older objects than this process " +
	"has seen. The process writes nothing more and ends, so that it starts again with the objects of the cluster")

const (
	lookTimeout  = 10 * time.Second // for one request
	lookInterval = time.Second      // between two that must agree
)

// restoreDetector compares the resource version of a cluster with those that it had before. It looks when a watch of
// our kinds begins, and before the first write after a request got no response: the API server does not run while etcd
// is restored. An informer alone does not notice it: a watch from a resource version that the API server does not have
// yet sends nothing.
type restoreDetector struct {
	client *http.Client
	host   string        // of the cluster; others are not looked at
	found  chan struct{} // closed when a restore was detected

	mu      sync.Mutex
	list    string    // URL of a list of one of our kinds, empty until a watch has begun
	seen    [2]string // by the last two looks, so that one wrong answer does not end the process
	doubt   bool      // a request got no response since the last look
	looking bool      // for a watch
}

// newRestoreDetector returns a detector for a cluster.
func newRestoreDetector(cfg *rest.Config) (*restoreDetector, error) {
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	return &restoreDetector{client: c, host: server.Host, found: make(chan struct{})}, nil
}

// Wrap returns a transport that sends no writes after a restore.
func (d *restoreDetector) Wrap(next http.RoundTripper) http.RoundTripper {
	return &restoreTransport{RoundTripper: next, detector: d}
}

// Start implements [ctrlmanager.Runnable]. It fails when etcd was restored.
func (d *restoreDetector) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.found:
		return ErrRestored
	}
}

// NeedLeaderElection implements [ctrlmanager.LeaderElectionRunnable].
func (d *restoreDetector) NeedLeaderElection() bool { return false }

// fails records that a request got no response.
func (d *restoreDetector) fails() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doubt = true
}

// beforeWrite returns an error if etcd was restored, or if that is in doubt and the API server does not say. Writes to
// other clusters do not wait in doubt.
func (d *restoreDetector) beforeWrite(ctx context.Context, isOwn bool) error {
	select {
	case <-d.found:
		return ErrRestored
	default:
	}
	d.mu.Lock()
	isKnown := !d.doubt || d.list == "" || !isOwn
	d.mu.Unlock()
	if isKnown {
		return nil
	}
	return d.look(ctx)
}

// observe looks at the resource version of the API server if a request begins a watch of our kinds.
func (d *restoreDetector) observe(u *url.URL) {
	if !strings.Contains(u.RawQuery, "watch=") || !strings.Contains(u.Path, ".toolkit.fluxcd.io/") {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawQuery: "limit=1"}).String()
	if d.looking {
		return
	}
	d.looking = true
	guard.Go("comparing resource versions", func() {
		_ = d.look(context.Background()) // after a failure, writes and the next watch look again
		d.mu.Lock()
		defer d.mu.Unlock()
		d.looking = false
	})
}

// look compares the resource version of the API server with those that it had before. A lower one must be seen twice.
func (d *restoreDetector) look(ctx context.Context) error {
	for isAgain := false; ; isAgain = true {
		version, err := d.current(ctx)
		if err != nil {
			d.fails()
			return fmt.Errorf("cannot find out whether the API server has older objects than before: %w", err)
		}
		before := d.compare(version)
		if before == "" {
			return nil
		}
		if isAgain {
			d.mu.Lock()
			defer d.mu.Unlock()
			select {
			case <-d.found:
			default:
				close(d.found)
			}
			return fmt.Errorf("%w (resource version %s, before %s)", ErrRestored, version, before)
		}
		d.fails() // writes wait for the second look
		if pause(ctx, lookInterval); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// compare records a resource version, or returns one that the API server had before and that is newer.
func (d *restoreDetector) compare(version string) (before string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if resourceversion.Newer(d.seen[0], version) && resourceversion.Newer(d.seen[1], version) {
		return d.seen[1]
	}
	if d.seen[1] == "" {
		d.seen[1] = version
	}
	d.seen[0], d.seen[1], d.doubt = d.seen[1], version, false
	return ""
}

// current returns the resource version that the API server has now. A list of no resource version is answered from what
// etcd has.
func (d *restoreDetector) current(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	d.mu.Lock()
	list := d.list
	d.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, list, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	resp, err := d.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() // read, or given up
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the list answers %s", resp.Status)
	}
	var answer struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	if !resourceversion.Newer(answer.Metadata.ResourceVersion, "1") {
		return "", fmt.Errorf("the list has the resource version '%s'", answer.Metadata.ResourceVersion)
	}
	return answer.Metadata.ResourceVersion, nil
}

// restoreTransport is the transport of a [restoreDetector].
type restoreTransport struct {
	http.RoundTripper
	detector *restoreDetector
}

// RoundTrip implements [http.RoundTripper].
func (t *restoreTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	isOwn := req.URL.Host == t.detector.host
	isRead := req.Method == http.MethodGet || req.Method == http.MethodHead
	if !isRead {
		if err := t.detector.beforeWrite(req.Context(), isOwn); err != nil {
			if req.Body != nil {
				err = errors.Join(err, req.Body.Close())
			}
			return nil, err
		}
	}
	resp, err := t.RoundTripper.RoundTrip(req)
	switch {
	case !isOwn:
	case err != nil && req.Context().Err() == nil:
		t.detector.fails()
	case err == nil && isRead:
		t.detector.observe(req.URL)
	}
	return resp, err
}

// WrappedRoundTripper returns the transport that sends the requests.
func (t *restoreTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
