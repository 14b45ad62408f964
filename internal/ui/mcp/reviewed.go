package mcp

import (
	"context"
	"errors"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/review"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// Reviewed computes changes of the repositories that are reviewed, with the rights of the user in the cluster. It
// proposes them with the login of the repository. It implements [Changes].
type Reviewed struct {
	service *review.Service
	turn    chan struct{} // held while a change is computed: each needs much memory
}

var _ Changes = (*Reviewed)(nil)

// NewReviewed returns the changes of a service, which must have a cluster.
func NewReviewed(s *review.Service) *Reviewed {
	return &Reviewed{service: s, turn: make(chan struct{}, 1)}
}

// Preview implements [Changes].
func (r *Reviewed) Preview(ctx context.Context, u *ui.User, c Change) (any, error) {
	return r.compute(ctx, u, c, func(result *preview.Result, _ *preview.Cluster) (any, error) { return result, nil })
}

// SimulateGates implements [Changes].
func (r *Reviewed) SimulateGates(ctx context.Context, u *ui.User, c Change) (any, error) {
	return r.compute(ctx, u, c, func(result *preview.Result, in *preview.Cluster) (any, error) {
		return preview.DecisionsAbout(ctx, in.Client, result, r.service.Clock.Now())
	})
}

// Propose implements [Changes].
func (r *Reviewed) Propose(ctx context.Context, u *ui.User, p Proposal) (string, error) {
	if err := ui.CheckReviews(ctx, u, "create"); err != nil {
		return "", err
	}
	return r.service.Propose(ctx, p.Repository, p.For(u))
}

// compute previews a change, and passes the result on while its cluster is open.
func (r *Reviewed) compute(ctx context.Context, u *ui.User, c Change,
	then func(*preview.Result, *preview.Cluster) (any, error)) (any, error) {

	if err := ui.CheckReviews(ctx, u, "get"); err != nil {
		return nil, err
	}
	if u.Config == nil {
		return nil, errors.New("the login has no clients to compare a change with")
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.turn }()
	cfg := review.ReadOnly(u.Config)
	cfg.UserAgent, cfg.QPS, cfg.Burst = u.Config.UserAgent, u.Config.QPS, u.Config.Burst
	target, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		return nil, err
	}
	cluster := &preview.Cluster{Client: u.Client, Config: cfg, Target: target}
	defer cluster.Close()
	result, err := r.service.Preview(ctx, review.Change{Repository: c.Repository, Namespace: c.Namespace,
		Base: c.Base, Branch: c.Branch, Files: ContentsOf(c.Files)}, cluster)
	if err != nil {
		return nil, err
	}
	return then(result, cluster)
}
