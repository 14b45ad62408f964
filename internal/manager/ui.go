package manager

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/kubeclient"
	"github.com/sluice-gitops/sluice/internal/listen"
	"github.com/sluice-gitops/sluice/internal/storage"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/incluster"
	"github.com/sluice-gitops/sluice/internal/ui/view"
	"github.com/sluice-gitops/sluice/web"
)

// addUI adds the web UI. Every replica serves it: sessions are in cookies, and writes are made in the name of the user,
// so they need no lease.
func (p *process) addUI(ctx context.Context, cfg *rest.Config) error {
	if !p.UI.IsEnabled() {
		return nil
	}
	external, err := p.UI.External()
	if err != nil {
		return fmt.Errorf("--ui-external-url: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.UserAgent, cfg.WarningHandler = -1, "sluice-ui", rest.NoWarnings{}
	login, err := p.uiLogin(ctx, cfg, external)
	if err != nil {
		return err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: p.mgr.GetScheme(), Mapper: p.mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	listener, err := listen.TCP(p.UI.Addr)
	if err != nil {
		return fmt.Errorf("cannot serve the web UI on --ui-addr %s: %w", p.UI.Addr, err)
	}
	if listener, err = storage.TLS(p.mgr, listener, p.UI.Certificate()); err != nil {
		return err
	}
	model := view.NewModel()
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	server := &ui.Server{Model: model, Login: login, Pages: web.Pages(), Version: p.Version, Cluster: external.Host,
		Namespace:  p.RuntimeNamespace,
		Kubernetes: ui.KubernetesVersion(clients),
		TraceURL:   p.Traces.URL, Now: p.GetClock().Now,
		Log: log.Log.WithName("ui"), Hosts: []string{external.Host}}
	p.serve("serving the web UI", func(ctx context.Context) error {
		model.Watch(ctx, c, p.RuntimeNamespace)
		return server.Serve(ctx, listener)
	})
	return nil
}

// uiLogin returns who lets people in.
func (p *process) uiLogin(ctx context.Context, cfg *rest.Config, external *url.URL) (*incluster.Login, error) {
	key, err := p.sessionKey(ctx)
	if err != nil {
		return nil, err
	}
	o := incluster.Options{Config: cfg, Scheme: p.mgr.GetScheme(), Mapper: p.mgr.GetRESTMapper(), ExternalURL: external,
		SessionKey: key, Session: p.UI.Session, TokenLogin: p.UI.TokenLogin, Log: log.Log.WithName("ui"),
		Now: p.GetClock().Now}
	if u := p.UI; u.Issuer != "" {
		o.OIDC = &incluster.OIDC{Issuer: u.Issuer, ClientID: u.ClientID, ClientSecretFile: u.ClientSecretFile,
			CAFile: u.CAFile, Scopes: u.Scopes, UsernameClaim: u.UsernameClaim, UsernamePrefix: u.UsernamePrefix,
			GroupsClaim: u.GroupsClaim, GroupsPrefix: u.GroupsPrefix}
	}
	login, err := incluster.New(o)
	if err != nil {
		return nil, fmt.Errorf("cannot serve the web UI: %w", err)
	}
	return login, nil
}

// sessionKey returns the secret that protects sessions.
func (p *process) sessionKey(ctx context.Context) ([]byte, error) {
	if p.UI.SessionKeyFile == "" {
		return kubeclient.SessionKey(ctx, p.mgr, p.RuntimeNamespace)
	}
	key, err := os.ReadFile(p.UI.SessionKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--ui-session-key-file: %w", err)
	}
	return bytes.TrimSpace(key), nil
}
