package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/gate/promotion"
)

// Hub answers how far revisions have come in the clusters that report to it.
type Hub interface {
	Rollout(ctx context.Context, q fleet.Question) (*fleet.Rollout, error)
}

// Clusters implements [Prober].
func (p *Probes) Clusters(ctx context.Context, g *gatingv1.Gate, c *gatingv1.ClustersCheck, at string) (*fleet.Rollout,
	error) {
	if p.Hub == nil {
		return nil, errors.New("the cluster reports to no hub: set --report-to and --report-as")
	}
	namespace := cmp.Or(c.Source.Namespace, g.Namespace)
	if err := p.checkNamespace(g, namespace); err != nil {
		return nil, err
	}
	share, err := strconv.Atoi(strings.TrimSuffix(cmp.Or(c.Share, "100%"), "%"))
	if err != nil || share < 1 || share > 100 {
		return nil, fmt.Errorf("clusters.share is '%s': write a percentage such as 80%%", c.Share)
	}
	return p.Hub.Rollout(ctx, fleet.Question{Labels: c.Labels, Share: share, At: at,
		Source: c.Source.Kind + "/" + namespace + "/" + c.Source.Name})
}

// probeClusters asks the hub, and returns what is known after that.
func (k *Checks) probeClusters(ctx context.Context, g *gatingv1.Gate, c gatingv1.Check, last gatingv1.CheckResult) (
	*gatingv1.ObservedRevision, string, error) {
	at := ""
	if last.Revision != nil {
		at = last.Revision.Promoted
	}
	r, err := k.Prober.Clusters(ctx, g, c.Clusters, at)
	if err != nil {
		message, err := withoutHub(c, last, err, k.Clock.Now())
		return nil, message, err
	}
	now := k.Clock.Now()
	asked, members := promotion.CheckOfClusters(c.Clusters, stale(c)), promotion.ClusterMembers(r, at, now)
	next := asked.Advance(last.Revision, members, now)
	message := asked.Describe(next, members)
	if len(members) == 0 {
		message = "no other cluster of the hub has these labels"
	}
	if next.Promoted == "" {
		return &next, "", errors.New(message)
	}
	return &next, message, nil
}

// withoutHub returns what a check finds without an answer of the hub. A check that passes without the hub allows each
// revision, so it does only after the hub was away for longer than a result is used. A hub that refuses is not away.
func withoutHub(c gatingv1.Check, last gatingv1.CheckResult, cause error, now time.Time) (string, error) {
	err := fmt.Errorf("the hub cannot be asked: %w", cause)
	refused := (*client.RefusedError)(nil)
	isAway := !errors.As(cause, &refused) || refused.Status >= http.StatusInternalServerError
	if c.Clusters.OnHubLost != gatingv1.OpenWithoutHub || !isAway {
		return "", err
	}
	since := now
	switch o := last.Revision; {
	case o != nil && o.ObservedAt != nil:
		since = o.ObservedAt.Time
	case last.Passed: // it passed without the hub before
		since = time.Time{}
	case !last.CheckedAt.IsZero():
		since = last.Since.Time
	}
	if opens := since.Add(stale(c)); opens.After(now) {
		return "", fmt.Errorf("%w. As onHubLost is open, the check passes at %s if this stays", err,
			opens.UTC().Format(time.RFC3339))
	}
	return "passes as onHubLost is open: " + err.Error(), nil
}

// passesWithoutHub reports whether the last result of a check is that it passes because the hub is away.
func passesWithoutHub(c gatingv1.Check, r gatingv1.CheckResult) bool {
	return c.Clusters != nil && r.Passed &&
		(r.Revision == nil || r.Revision.ObservedAt == nil || r.Revision.ObservedAt.Unix() != r.CheckedAt.Unix())
}
