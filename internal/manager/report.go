package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/credentials/serviceaccount"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/report"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// reportKey is the key of the report among replicas that share all objects: one of them reports.
const reportKey = "report"

// addReport adds the report to a hub. Of several Deployments, the one with kustomize-controller reports; of several
// replicas, the leader.
func (p *process) addReport(ctx context.Context) error {
	if !p.Report.IsEnabled() || !p.Runs(options.KustomizeController) {
		return nil
	}
	c, err := p.hubClient()
	if err != nil {
		return err
	}
	r := report.New()
	r.Client, r.Cluster, r.Log, r.Now = c, p.Report.As, log.Log.WithName("report"), p.GetClock().Now
	r.Summarize = p.summarize
	if p.kernel.Shards != nil {
		r.IsActive = func() bool { return p.kernel.Shards.Owns(reportKey) }
	}
	if p.stream != nil {
		p.stream.OnChange = r.Changed
	}
	changed := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { r.Changed() },
		UpdateFunc: func(any, any) { r.Changed() }, DeleteFunc: func(any) { r.Changed() }}
	for _, k := range kind.All() {
		informer, err := p.mgr.GetCache().GetInformer(ctx, k.New())
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(guard.EventHandler("noticing a change for the report",
			changed)); err != nil {
			return err
		}
	}
	return p.mgr.Add(guard.Runnable("reporting to the hub", r))
}

// hubToken returns what reads the token for the hub from its file, or requests one without it.
func (p *process) hubToken() func(context.Context) (string, error) {
	tokens := &serviceaccount.Tokens{Accounts: p.accounts, Clock: p.GetClock(), Audience: p.Report.GetAudience()}
	return func(ctx context.Context) (string, error) {
		b, err := os.ReadFile(p.Report.TokenFile) // each time: the kubelet renews it
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("--report-token-file: %w", err)
		}
		token, err := tokens.Get(ctx)
		if err == nil && token == "" {
			err = errors.New("the process does not run as a service account: set --report-token-file")
		}
		return token, err
	}
}

// summarize returns the summary of the cluster, from the caches of the controllers.
func (p *process) summarize(ctx context.Context) (*fleet.Summary, error) {
	var items []*view.Item
	for _, k := range kind.All() {
		list := k.NewList()
		if err := p.mgr.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		err := apimeta.EachListItem(list, func(o runtime.Object) error {
			if obj, ok := o.(reconcile.Object); ok {
				items = append(items, view.Of(k, obj))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s := view.Summary(items)
	s.Labels, s.Time, s.Version = p.Report.Labels, p.GetClock().Now().UTC(), p.Version
	s.HasStream = p.stream != nil && p.stream.IsOpen()
	return s, nil
}
