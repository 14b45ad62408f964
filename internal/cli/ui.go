package cli

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/tracing"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/view"
	frontend "github.com/sluice-gitops/sluice/web"
)

// uiCommand is `sluice ui`.
type uiCommand struct {
	*env
	addr        string
	openBrowser bool
	traces      tracing.Options
	reviews     ui.Reviews // nil without any
}

func newUICommand(e *env) *cobra.Command {
	u := &uiCommand{env: e}
	c := &cobra.Command{
		Use:   "ui",
		Short: "Serve the web UI on this machine, with your own rights",
		Long: `Serve the web UI on this machine, with the rights of your kubeconfig, until
Ctrl-C. Nothing is installed in the cluster. Only the printed address, which
contains a random token, lets a browser in.

Kinds that you may not list in all namespaces are shown for --namespace.`,
		Example: "  sluice ui\n  sluice ui --addr 127.0.0.1:9090 --open=false",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return u.run(cmd.Context()) },
	}
	c.Flags().StringVar(&u.addr, "addr", "127.0.0.1:0", "loopback address to serve on; port 0 chooses a free one")
	c.Flags().BoolVar(&u.openBrowser, "open", true, "open the browser")
	c.Flags().StringVar(&u.traces.URL, "trace-url", "",
		"URL of a trace in your tracing system, with {traceID}, for links to traces")
	return c
}

func (u *uiCommand) run(ctx context.Context) error {
	host, _, err := net.SplitHostPort(u.addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return usagef("--addr must be a loopback address with a port, such as 127.0.0.1:9090")
	}
	if err := u.traces.Check(); err != nil {
		return usagef("%w", err)
	}
	user, model, err := u.connect(ctx)
	if err != nil {
		return err
	}
	l, err := listen.TCP(u.addr)
	if err != nil {
		return fmt.Errorf("cannot serve on %s: %w. Choose another address with --addr", u.addr, err)
	}
	login := ui.NewLocalLogin(user)
	address := "http://" + l.Addr().String() + login.Path()
	u.Step("serving the UI for %s until Ctrl-C", user.Name)
	fmt.Fprintln(u.Out, address)
	if u.openBrowser {
		openInBrowser(ctx, address)
	}
	cfg, err := u.Config()
	if err != nil {
		return err
	}
	artifacts, err := localrelease.NewFetcher(cfg)
	if err != nil {
		return err
	}
	templates := render.New(render.Options{Children: 1})
	defer templates.Close()
	log := funcr.New(func(_, text string) { u.Step("%s", term.OneLine(text)) }, funcr.Options{})
	server := &ui.Server{Model: model, Login: login, Pages: frontend.Pages(), Version: Version, Log: log,
		Now: time.Now, TraceURL: u.traces.URL, Namespace: u.Namespace(), Cluster: u.ContextName(),
		Kubernetes: ui.KubernetesVersion(user.Cluster), Reviews: u.reviews, Artifacts: artifacts,
		Templates: templates}
	return server.Serve(ctx, l)
}

// connect returns the user of the kubeconfig, and a model that watches the cluster with the rights of that user.
func (u *uiCommand) connect(ctx context.Context) (*ui.User, *view.Model, error) {
	c, err := u.Client()
	if err != nil {
		return nil, nil, err
	}
	cfg, err := u.Config()
	if err != nil {
		return nil, nil, err
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, cluster.Explain("cannot reach the cluster", err)
	}
	bounded, cancel := u.WithTimeout(ctx)
	defer cancel()
	who, err := u.User(bounded)
	if err != nil {
		return nil, nil, err
	}
	model := view.NewModel()
	model.Watch(ctx, c, u.Namespace())
	return &ui.User{Name: who.Username, Groups: who.Groups, Client: c, Cluster: clients, See: ui.SeeAll}, model, nil
}

// openInBrowser opens an address with the program of the desktop. Without one nothing happens: the address is printed.
func openInBrowser(ctx context.Context, address string) {
	program := map[string]string{"darwin": "open", "windows": "rundll32 url.dll,FileProtocolHandler"}[runtime.GOOS]
	if program == "" {
		program = "xdg-open"
	}
	words := append(strings.Fields(program), address)
	if path, err := exec.LookPath(words[0]); err == nil {
		_ = exec.CommandContext(ctx, path, words[1:]...).Start() // the address is printed
	}
}
