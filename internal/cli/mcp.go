package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/mcp"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// mcpCommand is `sluice mcp`.
type mcpCommand struct {
	*env
	clone      string
	allowWrite bool
}

func newMCPCommand(e *env) *cobra.Command {
	m := &mcpCommand{env: e}
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an agent over standard input and output (MCP), with your own rights",
		Long: `Serve the tools of the Model Context Protocol (MCP) over standard input and
output, with the rights of your kubeconfig, until the agent closes them. Agents
start this command themselves; see docs/mcp.md for their configuration.

The tools read. With --allow-write, an agent can also reconcile, suspend and
resume in your name, and open pull requests. No tool approves or opens a gate,
applies or deletes.

In a clone, or with --clone, there are tools that preview a change of it.`,
		Example: "  sluice mcp\n  sluice mcp --clone ~/fleet --allow-write",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return m.run(cmd.Context(), cmd) },
	}
	c.Flags().BoolVar(&m.allowWrite, "allow-write", false,
		"let the agent reconcile, suspend, resume and open pull requests, in your name")
	c.Flags().StringVar(&m.clone, "clone", "",
		"directory in a clone of the repository, for previews and pull requests (default: this directory, if it is in "+
			"one)")
	return c
}

func (m *mcpCommand) run(ctx context.Context, cmd *cobra.Command) error {
	changes, err := m.changes()
	if err != nil {
		return err
	}
	user, model, cfg, err := m.connect(ctx)
	if err != nil {
		return err
	}
	log := funcr.New(func(_, text string) { m.Step("%s", term.OneLine(text)) }, funcr.Options{})
	reader := &ui.Server{Model: model, Version: Version, Namespace: m.Namespace(), Cluster: m.ContextName(),
		Kubernetes: ui.KubernetesVersion(user.Cluster), Log: log, Now: time.Now, IsMCP: true}
	o := mcp.Options{UI: reader, AllowWrite: m.allowWrite, Local: user, Version: Version, Log: log}
	if changes != nil {
		changes.config = cfg
		o.Changes = changes
	}
	m.Step("serving an agent for %s until it closes standard input", user.Name)
	return mcp.New(o).Run(ctx, io.NopCloser(cmd.InOrStdin()), nopCloser{cmd.OutOrStdout()})
}

// nopCloser is a writer whose Close does nothing.
type nopCloser struct{ io.Writer }

// Close implements [io.Closer].
func (nopCloser) Close() error { return nil }

// connect returns the user of the kubeconfig, with clients that the policies of gates know as those of the MCP server,
// and a model that watches the cluster.
func (m *mcpCommand) connect(ctx context.Context) (*ui.User, *view.Model, *rest.Config, error) {
	cfg, err := m.Config()
	if err != nil {
		return nil, nil, nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = ui.MCPAgent
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		return nil, nil, nil, cluster.Explain("cannot reach the cluster", err)
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, nil, cluster.Explain("cannot reach the cluster", err)
	}
	bounded, cancel := m.WithTimeout(ctx)
	defer cancel()
	who, err := m.User(bounded)
	if err != nil {
		return nil, nil, nil, err
	}
	model := view.NewModel()
	model.Watch(ctx, c, m.Namespace())
	user := &ui.User{Name: who.Username, Groups: who.Groups, Client: c, Cluster: clients, See: ui.SeeAll}
	return user, model, cfg, nil
}

// changes returns the clone that changes are computed in; nil if there is none and none was asked for.
func (m *mcpCommand) changes() (*cloneChanges, error) {
	dir := m.clone
	if dir == "" {
		dir = "."
	}
	repo, err := preview.Open(dir)
	switch {
	case err == nil:
		return &cloneChanges{env: m.env, repo: repo}, nil
	case m.clone == "":
		return nil, nil
	}
	return nil, usageError{errors.Join(errors.New("--clone: no repository to preview changes of"), err)}
}
