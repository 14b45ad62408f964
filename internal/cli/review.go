package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/review"
)

// reviewCommand is `sluice review`.
type reviewCommand struct {
	uiCommand
	config, webhookAddr, pageURL, failOn, dir string
	offline, once                             bool
}

func newReviewCommand(e *env) *cobra.Command {
	r := &reviewCommand{uiCommand: uiCommand{env: e}}
	c := &cobra.Command{
		Use:   "review",
		Short: "Review the open pull requests of repositories, for people and their git hosts",
		Long: `Preview each open pull request of the repositories in --config, as sluice
preview does, and say what was found: as a commit status and a comment on the
pull request, and on a page of the web UI. Changes are found by webhooks, or by
looking at intervals. It runs until Ctrl-C, or with --once until all pull
requests are reviewed.

Nothing is changed in the cluster. Pull requests of authors who are not allowed
are rendered without the cluster, without secrets and without credentials.

With --once, the exit code is 1 if a check fails, and 2 if a review failed.`,
		Example: `  sluice review --config review.yaml --webhook-addr :9097
  sluice review --config review.yaml --once --offline --fail-on high`,
		Args: noArgs,
	}
	f := c.Flags()
	f.StringVar(&r.config, "config", "", "file with the repositories; see docs/review.md")
	f.StringVar(&r.addr, "addr", "127.0.0.1:0", "loopback address of the web UI; port 0 chooses a free one")
	f.StringVar(&r.webhookAddr, "webhook-addr", "", "address to receive webhooks on, such as :9097; none if empty")
	f.StringVar(&r.pageURL, "page-url", "", "URL by which people reach the web UI, for links in comments")
	f.StringVar(&r.failOn, "fail-on", "",
		"the check of a pull request fails for this risk or a higher one, unless its repository says otherwise: low, "+
			"medium, high")
	f.StringVar(&r.dir, "storage-path", "", "directory for clones (default: a temporary one)")
	f.BoolVar(&r.offline, "offline", false,
		"compare what is rendered before and after, without a cluster and without the web UI")
	f.BoolVar(&r.once, "once", false, "review all open pull requests once, and end")
	f.BoolVar(&r.openBrowser, "open", false, "open the browser")
	completeFlag(c, "fail-on", cobra.FixedCompletions([]string{"low", "medium", "high"},
		cobra.ShellCompDirectiveNoFileComp))
	c.RunE = comparing(func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) })
	return c
}

func (r *reviewCommand) run(ctx context.Context) error {
	if r.config == "" {
		return usagef("--config is missing: name the file with the repositories to review")
	}
	failOn := risk.None
	if r.failOn != "" {
		var err error
		if failOn, err = risk.ParseLevel(r.failOn); err != nil {
			return usagef("--fail-on: %v", err)
		}
	}
	o := review.Options{PageURL: r.pageURL, Dir: r.dir, Log: r.log()}
	var err error
	if o.Config, err = review.ReadConfig(r.config, failOn); err != nil {
		return err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "sluice-review-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(o.Dir) }()
	}
	if !r.offline {
		if err := r.connectReviews(&o); err != nil {
			return err
		}
	}
	s, err := review.New(o)
	if err != nil {
		return err
	}
	if r.once {
		return r.runOnce(ctx, s)
	}
	return r.serveReviews(ctx, s)
}

func (r *reviewCommand) log() logr.Logger {
	return funcr.New(func(_, text string) { r.Step("%s", term.OneLine(text)) }, funcr.Options{})
}

// connectReviews adds the cluster.
func (r *reviewCommand) connectReviews(o *review.Options) error {
	cfg, err := r.Config()
	if err != nil {
		return err
	}
	o.Kubernetes = review.ReadOnly(cfg)
	if o.Client, err = client.New(o.Kubernetes, client.Options{Scheme: kubeclient.Scheme()}); err != nil {
		return cluster.Explain("cannot reach the cluster", err)
	}
	return nil
}

// runOnce reviews all pull requests and prints what was found.
func (r *reviewCommand) runOnce(ctx context.Context, s *review.Service) error {
	all, err := s.Once(ctx)
	if err != nil {
		return err
	}
	rows := [][]term.Cell{term.Row("REPOSITORY", "NUMBER", "AUTHOR", "RISK", "CHECK", "FOUND")}
	failed, refused := 0, 0
	for _, p := range all {
		check := term.Cell{Text: "passes", Colour: term.Green}
		found := p.Text
		switch {
		case p.State == review.Failed:
			failed++
			check, found = term.Cell{Text: "failed", Colour: term.Red}, p.Error
		case !p.Passes:
			refused++
			check = term.Cell{Text: "fails", Colour: term.Red}
		}
		rows = append(rows, []term.Cell{{Text: p.Repository}, {Text: strconv.Itoa(p.Number)}, {Text: shown(p.Author)},
			{Text: p.Risk.String()}, check, {Text: shown(found)}})
	}
	if len(all) == 0 {
		r.Done("no open pull requests")
		return nil
	}
	if err := term.NewTable(r.Out).Print(rows...); err != nil {
		return err
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d reviews failed", failed, len(all))
	case refused > 0:
		return differencef("the checks of %d of %d pull requests fail", refused, len(all))
	}
	return nil
}

// serveReviews reviews until Ctrl-C, and serves webhooks and the web UI.
func (r *reviewCommand) serveReviews(ctx context.Context, s *review.Service) error {
	running, ctx := guard.GroupWithContext(ctx, "reviewing")
	if r.webhookAddr != "" {
		l, err := listen.TCP(r.webhookAddr)
		if err != nil {
			return fmt.Errorf("cannot receive webhooks on %s: %w. Choose another address with --webhook-addr",
				r.webhookAddr, err)
		}
		fmt.Fprintf(r.Out, "webhooks: http://%s%sNAME\n", l.Addr(), review.HookPath)
		running.Go(func() error { return serveWebhooks(ctx, s, l) })
	}
	running.Go(func() error { return s.Run(ctx) })
	if !r.offline {
		r.reviews = s
		running.Go(func() error { return r.uiCommand.run(ctx) })
	}
	return running.Wait()
}

func serveWebhooks(ctx context.Context, s *review.Service, l net.Listener) error {
	server := s.HTTPServer()
	stop := guard.AfterDone(ctx, "end of webhooks", func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
