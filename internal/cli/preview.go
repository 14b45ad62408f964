package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/preview"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/risk"
)

// previewChange is `sluice preview`.
type previewChange struct {
	*env
	from, to, fromDir, toDir, clone string
	sources                         []string
	rules, failOn, output           string
	offline, strict, listRules      bool
	comment                         bool
	pull                            *pullRequest // nil without the address of one
}

// previewFormats are the values of --output.
var previewFormats = []string{"json", "markdown", "sarif"}

func newPreviewCommand(e *env) *cobra.Command {
	p := &previewChange{env: e}
	c := &cobra.Command{
		Use: "preview [PULL-REQUEST-URL]", Short: "Show what a change would do to the cluster before it lands",
		Long: `Build every Kustomization and HelmRelease that a change of the repository
reaches, as the controllers would, compare the result with the cluster by dry
run, and print what would be created, configured, re-created and deleted.
Nothing is changed. Values of Secrets are never shown.

The change is the one between two branches of a clone, two directories, or a
pull request. Each object gets a risk, and the rule that says so. The file
.sluice/risk.yaml of the repository, as it is before the change, adds rules and
disables others.

Exit codes: 0 no change, 1 changes, 2 the preview failed. With --fail-on, the
exit code is 1 only for changes of that risk or a higher one.`,
		Example: `  sluice preview --from main --to my-branch
  sluice preview --from-dir ./before --to-dir ./after --offline
  sluice preview https://github.com/acme/fleet/pull/42 --comment
  sluice preview --from origin/main --to HEAD --fail-on high -o markdown
  sluice preview --list-rules`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("accepts the address of one pull request, received %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	f.StringVar(&p.from, "from", "main", "branch, tag or commit that the change lands on")
	f.StringVar(&p.to, "to", "HEAD", "branch, tag or commit with the change")
	f.StringVar(&p.clone, "clone", ".", "directory in a clone of the repository")
	f.StringVar(&p.fromDir, "from-dir", "", "directory with the files before the change, instead of a clone")
	f.StringVar(&p.toDir, "to-dir", "", "directory with the files after the change, instead of a clone")
	f.StringSliceVar(&p.sources, "source", nil, "sources of the repository, as KIND/NAMESPACE/NAME; "+
		"default: GitRepositories with its URL and branch")
	f.StringVar(&p.rules, "rules", "", "file with rules, instead of .sluice/risk.yaml of the repository")
	f.StringVar(&p.failOn, "fail-on", "",
		"exit with 1 only for changes of this risk or a higher one: low, medium, high")
	f.BoolVar(&p.offline, "offline", false, "compare what is rendered before and after, without a cluster")
	f.BoolVar(&p.strict, "strict-substitute", true, "fail if a variable is not set and has no default")
	f.BoolVar(&p.listRules, "list-rules", false, "list the rules, and preview nothing")
	f.BoolVar(&p.comment, "comment", false, "post the preview as a comment on the pull request, or update it")
	addOutput(c, f, &p.output, previewFormats...)
	completeFlag(c, "fail-on", cobra.FixedCompletions([]string{"low", "medium", "high"},
		cobra.ShellCompDirectiveNoFileComp))
	run := e.bounded(func(ctx context.Context, args []string) error { return p.run(ctx, f.Changed("to"), args) })
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if found := (differenceError{}); err == nil || errors.As(err, &found) || errors.As(err, &usageError{}) {
			return err
		}
		return comparisonError{err}
	}
	return c
}

func (p *previewChange) run(ctx context.Context, hasTo bool, args []string) error {
	failOn, err := p.validate(args)
	if err != nil {
		return err
	}
	if p.listRules {
		return p.printRules()
	}
	o := preview.Options{Sources: p.sources, Strict: p.strict}
	if len(args) == 1 {
		if p.pull, err = newPullRequest(args[0]); err != nil {
			return err
		}
	}
	done, err := p.snapshots(ctx, &o, hasTo)
	defer done()
	if err != nil {
		return err
	}
	if o.Rules, err = p.readRules(o.From); err != nil {
		return err
	}
	if !p.offline {
		if o.Cluster, err = p.connect(); err != nil {
			return err
		}
		defer o.Cluster.Target.Close()
	}
	p.Live("previewing %s", o.To.Name)
	result, err := preview.Run(ctx, o)
	p.Clear()
	if err != nil {
		return err
	}
	if err := p.print(result, o.Rules); err != nil {
		return err
	}
	if p.comment {
		if err := p.pull.comment(ctx, result); err != nil {
			return err
		}
		p.Done("the preview is a comment on the pull request")
	}
	return p.verdict(result, failOn)
}

func (p *previewChange) validate(args []string) (risk.Level, error) {
	if p.output != "" {
		if err := oneOf("output", p.output, previewFormats...); err != nil {
			return risk.None, err
		}
	}
	switch {
	case (p.fromDir == "") != (p.toDir == ""):
		return risk.None, usagef("--from-dir and --to-dir need each other")
	case p.comment && len(args) == 0:
		return risk.None, usagef("--comment needs the address of a pull request")
	}
	if p.failOn == "" {
		return risk.None, nil
	}
	level, err := risk.ParseLevel(p.failOn)
	if err != nil {
		return level, usagef("--fail-on: %v", err)
	}
	return level, nil
}

// snapshots sets the files before and after the change, and how their source is found.
func (p *previewChange) snapshots(ctx context.Context, o *preview.Options, hasTo bool) (done func(), err error) {
	done = func() {}
	if p.fromDir != "" {
		if o.From, err = preview.Directory(p.fromDir); err == nil {
			o.To, err = preview.Directory(p.toDir)
		}
		if repo, err := preview.Open(p.toDir); err == nil {
			o.URLs = repo.URLs()
		}
		return done, err
	}
	var repo *preview.Repository
	from, to := p.from, p.to
	if p.pull != nil && !hasTo {
		if repo, from, to, err = p.pull.fetch(ctx); err != nil {
			return done, err
		}
		done = repo.Close
		o.URLs = []string{p.pull.repository.CloneURL()}
	} else {
		if repo, err = preview.Open(p.clone); err != nil {
			return done, err
		}
		o.URLs = repo.URLs()
	}
	o.Branch = strings.TrimPrefix(strings.TrimPrefix(from, "refs/heads/"), "origin/")
	o.From, o.To, err = repo.Snapshots(from, to)
	return done, err
}

func (p *previewChange) readRules(from *preview.Snapshot) (*risk.Rules, error) {
	if p.rules == "" && from == nil {
		return risk.Default(), nil
	}
	if p.rules == "" {
		return from.Rules()
	}
	content, err := os.ReadFile(p.rules)
	if err != nil {
		return nil, err
	}
	r, err := risk.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.rules, err)
	}
	return r, nil
}

func (p *previewChange) connect() (*preview.Cluster, error) {
	c, err := p.Client()
	if err != nil {
		return nil, err
	}
	cfg, err := p.Config()
	if err != nil {
		return nil, err
	}
	target, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		return nil, cluster.WithHint(err)
	}
	return &preview.Cluster{Client: c, Config: cfg, Target: target}, nil
}

func (p *previewChange) printRules() error {
	rules, err := p.readRules(nil)
	if err != nil {
		return err
	}
	rows := [][]term.Cell{term.Row("RULE", "RISK", "MESSAGE", "EXPRESSION")}
	for _, r := range rules.List() {
		rows = append(rows, term.Row(r.Name, r.Level.String(), term.OneLine(r.Message), term.OneLine(r.Expression)))
	}
	if p.output == "json" {
		encoder := json.NewEncoder(p.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rules.List())
	}
	return term.NewTable(p.Out).Print(rows...)
}

const markdownMax = 60_000 // bytes

func (p *previewChange) print(r *preview.Result, rules *risk.Rules) error {
	switch p.output {
	case "json":
		encoder := json.NewEncoder(p.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case "markdown":
		_, err := fmt.Fprint(p.Out, r.Markdown(markdownMax))
		return err
	case "sarif":
		return r.SARIF(p.Out, fullVersion(), rules.List())
	}
	for _, n := range r.Notes {
		p.Warn("%s", term.OneLine(n))
	}
	for _, o := range r.Owners {
		p.printOwner(o)
	}
	return nil
}

func (p *previewChange) printOwner(o *preview.Owner) {
	fmt.Fprintf(p.Out, "%s\n", term.OneLine(o.Owner.String()))
	if o.Note != "" {
		fmt.Fprintf(p.Out, "  %s\n", term.OneLine(o.Note))
	}
	if o.Error != "" {
		when := ""
		if o.Before {
			when = " (also before the change)"
		}
		fmt.Fprintln(p.Out, p.Out.Paint(term.Red, "  failed"+when+": "+term.OneLine(o.Error)))
	}
	p.printFindings("  ", o.Findings)
	for n := range o.Objects {
		object := &o.Objects[n]
		colour := map[risk.Action]string{risk.Created: term.Green, risk.Configured: term.Yellow}[object.Action]
		mark := map[risk.Action]string{risk.Created: "+", risk.Configured: "~", risk.Recreated: "±", risk.Deleted: "-",
			risk.Hidden: "?"}[object.Action]
		fmt.Fprintln(p.Out, p.Out.Paint(cmp.Or(colour, term.Red), fmt.Sprintf("  %s %s %s", mark,
			term.OneLine(object.String()), object.Action)))
		p.printFindings("      ", object.Findings)
		for _, line := range strings.Split(object.Diff, "\n") {
			if line != "" {
				fmt.Fprintln(p.Out, p.Out.Paint(diffColours[line[0]], "      "+line))
			}
		}
	}
}

func (p *previewChange) printFindings(indent string, found []risk.Finding) {
	isOrdinary := func(f risk.Finding) bool { return f.Rule == risk.Ordinary }
	for _, f := range slices.DeleteFunc(slices.Clone(found), isOrdinary) {
		colour := map[risk.Level]string{risk.Medium: term.Yellow, risk.High: term.Red}[f.Level]
		text := fmt.Sprintf("%s! %s: %s (%s)", indent, f.Level, term.OneLine(f.Message), f.Rule)
		if colour != "" {
			text = p.Out.Paint(colour, text)
		}
		fmt.Fprintln(p.Out, text)
	}
}

// verdict returns the result as the exit code says it.
func (p *previewChange) verdict(r *preview.Result, failOn risk.Level) error {
	switch summary := strings.TrimSuffix(r.Summary(), "."); {
	case r.Failed() > 0:
		return errors.New(summary)
	case r.Changes() == 0:
		p.Done("no changes")
		return nil
	case r.Level < failOn:
		p.Done("%s", summary)
		return nil
	default:
		return differencef("%s", summary)
	}
}

// tokenLogin returns the login to fetch a repository with a token; nil without a token.
func tokenLogin(token string) transport.AuthMethod {
	if token == "" {
		return nil
	}
	return &githttp.BasicAuth{Username: "oauth2", Password: token}
}
