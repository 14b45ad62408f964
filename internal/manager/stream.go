package manager

import (
	"context"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	fleetclient "github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/fleet/stream"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// hubClient returns the client of the hub that the process reports to.
func (p *process) hubClient() (*fleetclient.Client, error) {
	return fleetclient.New(fleetclient.Options{URL: p.Report.To, CAFile: p.Report.CAFile, Cluster: p.Report.As,
		Token: p.hubToken()})
}

// addStream lets users of the hub reach the web UI. Of several replicas, the one that reports has the stream.
func (p *process) addStream(ctx context.Context, cfg *rest.Config, server *ui.Server,
	watch func(context.Context)) error {

	if !p.Report.IsEnabled() || !p.Report.UI {
		return nil
	}
	external, err := url.Parse(p.Report.To)
	if err != nil {
		return fmt.Errorf("--report-to: %w", err)
	}
	if err := p.letIn(ctx, cfg, server, external.JoinPath(stream.Prefix(p.Report.As)), true); err != nil {
		return err
	}
	client, err := p.hubClient()
	if err != nil {
		return err
	}
	server.Cluster = p.Report.As
	s := &stream.Cluster{Client: client, Handler: server.ForHub(), Log: log.Log.WithName("stream")}
	p.stream = s
	if p.kernel.Shards != nil {
		s.IsActive = func() bool { return p.kernel.Shards.Owns(reportKey) }
	}
	serve := manager.RunnableFunc(func(ctx context.Context) error {
		watch(ctx)
		s.Run(ctx)
		return nil
	})
	return p.mgr.Add(guard.Runnable("serving the stream to the hub", serve))
}
