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

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/review/preview"
)

// previewChange is `sluice preview`.
type previewChange struct {
	*env
	change                      changeFlags
	rules, failOn, output       string
	offline, listRules, comment bool
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
		Args:              onePullRequest,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	p.change.bind(e, f)
	f.StringVar(&p.rules, "rules", "", "file with rules, instead of .sluice/risk.yaml of the repository")
	f.StringVar(&p.failOn, "fail-on", "",
		"exit with 1 only for changes of this risk or a higher one: low, medium, high")
	f.BoolVar(&p.offline, "offline", false, "compare what is rendered before and after, without a cluster")
	f.BoolVar(&p.listRules, "list-rules", false, "list the rules, and preview nothing")
	f.BoolVar(&p.comment, "comment", false, "post the preview as a comment on the pull request, or update it")
	addOutput(c, f, &p.output, previewFormats...)
	completeFlag(c, "fail-on", cobra.FixedCompletions([]string{"low", "medium", "high"},
		cobra.ShellCompDirectiveNoFileComp))
	c.RunE = comparing(e.bounded(p.run))
	return c
}

func (p *previewChange) run(ctx context.Context, args []string) error {
	failOn, err := p.validate(args)
	if err != nil {
		return err
	}
	if p.listRules {
		return p.printRules()
	}
	o, done, err := p.change.options(ctx, args)
	defer done()
	if err != nil {
		return err
	}
	if o.Rules, err = p.readRules(o.From); err != nil {
		return err
	}
	if !p.offline {
		if o.Cluster, err = p.previewCluster(); err != nil {
			return err
		}
		defer o.Cluster.Close()
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
		if err := p.change.pull.comment(ctx, result); err != nil {
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
	if p.comment && len(args) == 0 {
		return risk.None, usagef("--comment needs the address of a pull request")
	}
	if err := p.change.validate(); err != nil {
		return risk.None, err
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
		p.Warn("%s", shown(n))
	}
	for _, o := range r.Owners {
		p.printOwner(o)
	}
	return nil
}

// shown makes a text of a repository safe for a terminal.
func shown(text string) string { return term.Printable(term.OneLine(text)) }

func (p *previewChange) printOwner(o *preview.Owner) {
	fmt.Fprintf(p.Out, "%s\n", shown(o.Owner.String()))
	if o.Note != "" {
		fmt.Fprintf(p.Out, "  %s\n", shown(o.Note))
	}
	if o.Error != "" {
		when := ""
		if o.Before {
			when = " (also before the change)"
		}
		fmt.Fprintln(p.Out, p.Out.Paint(term.Red, "  failed"+when+": "+shown(o.Error)))
	}
	p.printFindings("  ", o.Findings)
	for n := range o.Objects {
		object := &o.Objects[n]
		colour := map[risk.Action]string{risk.Created: term.Green, risk.Configured: term.Yellow}[object.Action]
		mark := map[risk.Action]string{risk.Created: "+", risk.Configured: "~", risk.Recreated: "±", risk.Deleted: "-",
			risk.Hidden: "?", risk.Unchanged: "="}[object.Action]
		fmt.Fprintln(p.Out, p.Out.Paint(cmp.Or(colour, term.Red), fmt.Sprintf("  %s %s %s", mark,
			shown(object.String()), object.Action)))
		p.printFindings("      ", object.Findings)
		for _, line := range strings.Split(object.Diff, "\n") {
			if line != "" {
				fmt.Fprintln(p.Out, p.Out.Paint(diffColours[line[0]], "      "+term.Printable(line)))
			}
		}
	}
}

func (p *previewChange) printFindings(indent string, found []risk.Finding) {
	isOrdinary := func(f risk.Finding) bool { return f.Rule == risk.Ordinary }
	for _, f := range slices.DeleteFunc(slices.Clone(found), isOrdinary) {
		colour := map[risk.Level]string{risk.Medium: term.Yellow, risk.High: term.Red}[f.Level]
		text := fmt.Sprintf("%s! %s: %s (%s)", indent, f.Level, shown(f.Message), f.Rule)
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
