package cosign

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/theupdateframework/go-tuf/v2/metadata/fetcher"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// rootTTL is how long the public trust root is used before it is fetched again.
const rootTTL = 24 * time.Hour

// PublicRoot is the trust root of the public Sigstore instance. It is fetched by TUF at its first use, and again after
// a day.
type PublicRoot struct {
	Egress *egress.Policy
	Clock  clock.PassiveClock

	mu      sync.Mutex
	root    root.TrustedMaterial
	fetched time.Time
}

func (p *PublicRoot) get(ctx context.Context) (root.TrustedMaterial, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.root != nil && p.Clock.Since(p.fetched) < rootTTL {
		return p.root, nil
	}
	transport, err := p.Egress.Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	client := fetcher.NewDefaultFetcher()
	client.SetHTTPClient(&http.Client{Transport: transport, Timeout: time.Minute})
	material, err := root.FetchTrustedRootWithOptions(tuf.DefaultOptions().WithContext(ctx).WithFetcher(client).
		WithDisableLocalCache())
	if err != nil {
		return nil, err
	}
	p.root, p.fetched = material, p.Clock.Now()
	return material, nil
}
