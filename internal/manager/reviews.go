package manager

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/review"
)

// reviewsKey decides which of several replicas writes comments and statuses.
const reviewsKey = "reviews"

// addReviews adds the review of pull requests; the service is nil without it. Every replica makes reviews for its
// pages; one writes comments and statuses.
func (p *process) addReviews(cfg *rest.Config) (*review.Service, error) {
	if !p.UI.ReviewsChanges() {
		return nil, nil
	}
	config, err := review.ReadConfig(p.UI.ReviewConfig, risk.None)
	if err != nil {
		return nil, fmt.Errorf("--review-config: %w", err)
	}
	o := review.Options{Config: config, Dir: filepath.Join(p.StoragePath, "reviews"), Kubernetes: review.ReadOnly(cfg),
		Posts: p.postsReviews, Log: log.Log.WithName("review"), Clock: p.GetClock(), Transport: p.transport}
	if p.UI.IsEnabled() {
		external, err := p.UI.External()
		if err != nil {
			return nil, fmt.Errorf("--ui-external-url: %w", err)
		}
		o.PageURL = external.String()
	}
	if o.Client, err = client.New(o.Kubernetes, client.Options{Scheme: p.mgr.GetScheme()}); err != nil {
		return nil, err
	}
	s, err := review.New(o)
	if err != nil {
		return nil, fmt.Errorf("cannot review pull requests: %w", err)
	}
	if err := p.listenHTTP("webhooks of reviews", "--review-addr", p.UI.ReviewAddr, s.HTTPServer()); err != nil {
		return nil, err
	}
	p.serve("reviewing pull requests", s.Run)
	return s, nil
}

// postsReviews reports whether this replica writes comments and statuses.
func (p *process) postsReviews() bool {
	return p.leads() && (p.kernel.Shards == nil || p.kernel.Shards.Owns(reviewsKey))
}
