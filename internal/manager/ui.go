package manager

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/storage"
	"github.com/sluice-gitops/sluice/internal/review"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/incluster"
	"github.com/sluice-gitops/sluice/internal/ui/mcp"
	"github.com/sluice-gitops/sluice/internal/ui/view"
	"github.com/sluice-gitops/sluice/web"
)

// addUI adds the web UI and the MCP server. Every replica serves them: sessions are in cookies, and writes are made in
// the name of the user, so they need no lease. Both show one model.
func (p *process) addUI(ctx context.Context, cfg *rest.Config) error {
	reviews, err := p.addReviews(cfg)
	if err != nil || !p.UI.IsEnabled() && !p.UI.ServesMCP() {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.UserAgent, cfg.WarningHandler = -1, "sluice-ui", rest.NoWarnings{}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: p.mgr.GetScheme(), Mapper: p.mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	model := view.NewModel()
	newServer := func() *ui.Server {
		return &ui.Server{Model: model, Version: p.Version, Namespace: p.RuntimeNamespace, TraceURL: p.Traces.URL,
			Kubernetes: ui.KubernetesVersion(clients), Now: p.GetClock().Now, Artifacts: p.storage.Fetcher,
			Templates: render.New(render.Options{Children: 1})}
	}
	var once sync.Once
	watch := func(ctx context.Context) { once.Do(func() { model.Watch(ctx, c, p.RuntimeNamespace) }) }
	if p.UI.IsEnabled() {
		pages := func() *ui.Server {
			server := newServer()
			if reviews != nil {
				server.Reviews = reviews
			}
			return server
		}
		if err := p.addPages(ctx, cfg, pages(), watch); err != nil {
			return err
		}
		if err := p.addStream(ctx, cfg, pages(), watch); err != nil {
			return err
		}
	}
	if p.UI.ServesMCP() {
		return p.addMCP(cfg, newServer(), reviews, watch)
	}
	return nil
}

// addPages adds the web UI.
func (p *process) addPages(ctx context.Context, cfg *rest.Config, server *ui.Server,
	watch func(context.Context)) error {

	external, err := p.UI.External()
	if err != nil {
		return fmt.Errorf("--ui-external-url: %w", err)
	}
	if err := p.letIn(ctx, cfg, server, external, false); err != nil {
		return err
	}
	listener, err := p.listenUI("--ui-addr", p.UI.Addr)
	if err != nil {
		return err
	}
	server.Pages, server.Cluster, server.Hosts = web.Pages(), external.Host, []string{external.Host}
	p.serve("serving the web UI", func(ctx context.Context) error {
		watch(ctx)
		return server.Serve(ctx, listener)
	})
	return nil
}

// letIn sets who may use the web UI that browsers reach by a URL, of a hub or of the UI itself.
func (p *process) letIn(ctx context.Context, cfg *rest.Config, server *ui.Server, external *url.URL, byHub bool) error {
	key, err := p.sessionKey(ctx)
	if err != nil {
		return err
	}
	server.Log = log.Log.WithName("ui")
	if server.Login, err = p.uiLogin(cfg, external, key, byHub, server.Log); err != nil {
		return fmt.Errorf("cannot serve the web UI: %w", err)
	}
	return nil
}

// addMCP adds the MCP server. Its requests have a user agent of their own, which the policies of gates refuse.
func (p *process) addMCP(cfg *rest.Config, reader *ui.Server, reviews *review.Service,
	watch func(context.Context)) error {

	external, err := p.UI.MCPExternal()
	if err != nil {
		return fmt.Errorf("--mcp-external-url: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = ui.MCPAgent
	reader.Log, reader.IsMCP, reader.Cluster = log.Log.WithName("mcp"), true, external.Host
	unused := []byte(rand.Text() + rand.Text()) // as nothing is stored in cookies
	agents, err := p.uiLogin(cfg, external, unused, false, reader.Log)
	if err != nil {
		return fmt.Errorf("cannot serve the MCP server: %w", err)
	}
	listener, err := p.listenUI("--mcp-addr", p.UI.MCPAddr)
	if err != nil {
		return err
	}
	tools := mcp.Options{UI: reader, AllowWrite: p.UI.MCPAllowWrite, Version: p.Version, Log: reader.Log}
	if reviews != nil {
		tools.Changes = mcp.NewReviewed(reviews)
	}
	server := mcp.New(tools)
	o := mcp.HTTPOptions{Login: agents, External: external, Issuer: p.UI.Issuer}
	p.serve("serving the MCP server", func(ctx context.Context) error {
		watch(ctx)
		return server.Serve(ctx, listener, o)
	})
	return nil
}

// listenUI listens on an address, with the certificate of the web UI if there is one.
func (p *process) listenUI(flag, addr string) (net.Listener, error) {
	listener, err := listen.TCP(addr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve on %s %s: %w", flag, addr, err)
	}
	return storage.TLS(p.mgr.Add, listener, p.UI.Certificate())
}

// uiLogin returns who lets people or agents in.
func (p *process) uiLogin(cfg *rest.Config, external *url.URL, key []byte, byHub bool, log logr.Logger) (
	*incluster.Login, error) {

	o := incluster.Options{Config: cfg, Scheme: p.mgr.GetScheme(), Mapper: p.mgr.GetRESTMapper(), ByHub: byHub,
		TokenLogin: p.UI.TokenLogin, Options: login.Options{ExternalURL: external, Key: key, TTL: p.UI.Session,
			OIDC: p.UI.OIDC(), Log: log, Now: p.GetClock().Now}}
	return incluster.New(o)
}

// sessionKey returns the secret that protects sessions.
func (p *process) sessionKey(ctx context.Context) ([]byte, error) {
	if p.UI.SessionKeyFile == "" {
		return kubeclient.SessionKey(ctx, p.mgr, p.RuntimeNamespace)
	}
	return sessionKeyFile(p.UI.SessionKeyFile)
}

func sessionKeyFile(file string) ([]byte, error) {
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--ui-session-key-file: %w", err)
	}
	return bytes.TrimSpace(key), nil
}
