package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// maxShownChains bounds the chains that are printed in full.
const maxShownChains = 5

// whyCommand is `sluice why`.
type whyCommand struct {
	*env
	namespaceSet bool
	output       string
	clusters     bool
	hub          hubOptions
}

func newWhyCommand(e *env) *cobra.Command {
	w := &whyCommand{env: e}
	c := &cobra.Command{
		Use:   "why NAME|COMMIT|IMAGE",
		Short: "Say why a change is not live: the step that blocks it, the cause and what to do",
		Long: `Say why a change is not live: the step that blocks it first, with its cause and
what to do next, then all steps from the push to healthy objects.

Ask for the name of an object, as NAME, NAMESPACE/NAME, ks/NAME or
Kind/NAMESPACE/NAME, also of what was applied, such as Deployment/shop/web or
cm/settings; for a commit, a revision, a pull request or an image. All
namespaces that you may list are searched; --namespace keeps only the objects
of one.

With --clusters, a hub says how far a commit has come in all clusters.`,
		Example: `  sluice why web
  sluice why 3f2a9c1
  sluice why registry.example/web:1.4.2
  sluice why Deployment/shop/web -o json
  sluice why 3f2a9c1 --clusters --hub https://hub.example.com`,
		Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.clusters {
				return w.whyClusters(cmd.Context(), args[0])
			}
			w.namespaceSet = cmd.Flags().Changed("namespace")
			return e.bounded(func(ctx context.Context, args []string) error { return w.run(ctx, args[0]) })(cmd, args)
		},
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	addOutput(c, c.Flags(), &w.output, machineFormats...)
	c.Flags().BoolVar(&w.clusters, "clusters", false, "say how far a commit has come in the clusters of --hub")
	w.hub.bind(c.Flags())
	return c
}

func (w *whyCommand) run(ctx context.Context, query string) error {
	if err := optionalOneOf("output", w.output, machineFormats...); err != nil {
		return err
	}
	if len(query) > view.MaxQuery {
		return usagef("the question has more than %d bytes", view.MaxQuery)
	}
	c, err := w.Client()
	if err != nil {
		return err
	}
	items, err := w.items(ctx, c)
	if err != nil {
		return err
	}
	answer, err := state.Why(ctx, c, items, strings.TrimSpace(query))
	if err != nil {
		return cluster.Explain("cannot read what runs", err)
	}
	if w.namespaceSet {
		answer.Chains = slices.DeleteFunc(answer.Chains, func(c view.Chain) bool {
			return c.Target.Namespace != w.Namespace()
		})
	}
	answer.Problems = state.Problems(ctx, c, cluster.DefaultNamespace, time.Now())
	if w.namespaceSet && w.Namespace() != cluster.DefaultNamespace {
		answer.Problems = append(answer.Problems, state.Problems(ctx, c, w.Namespace(), time.Now())...)
	}
	if w.output != "" {
		return w.printAs(w.output, answer)
	}
	if len(answer.Chains) == 0 && answer.Object == nil {
		for _, p := range answer.Problems {
			w.Warn("%s", p)
		}
		return fmt.Errorf("nothing matches %q. %s", query, answer.Note)
	}
	w.print(answer)
	return nil
}

// items reads all objects of ours: those of all namespaces, or of the namespace of the command where the user may not.
func (w *whyCommand) items(ctx context.Context, c client.Client) ([]*view.Item, error) {
	q := query{kinds: kind.All()}
	found, err := q.run(ctx, c)
	if err != nil && !errors.Is(err, cluster.ErrNotInstalled) {
		q.namespace = w.Namespace()
		if inNamespace, inErr := q.run(ctx, c); inErr == nil {
			w.Warn("only namespace '%s' is searched: %v", q.namespace, err)
			found, err = inNamespace, nil
		}
	}
	items := make([]*view.Item, 0, len(found))
	for _, f := range found {
		items = append(items, view.Of(f.kind, f.object))
	}
	slices.SortFunc(items, func(a, b *view.Item) int { return strings.Compare(a.ID, b.ID) })
	return items, err
}

func (w *whyCommand) print(a *view.Answer) {
	for _, p := range a.Problems {
		w.text("", w.Out.Paint(term.Red, "✗"), "controllers: "+p)
	}
	if o := a.Object; o != nil {
		w.text("", w.mark(o.State), strings.Replace(o.Object, "//", "/", 1)+" "+stateWord(*o)+": "+o.Text)
		w.next(*o)
	}
	for i, c := range a.Chains[:min(len(a.Chains), maxShownChains)] {
		if i > 0 || a.Object != nil || len(a.Problems) > 0 {
			fmt.Fprintln(w.Out)
		}
		w.chain(c)
	}
	if n := len(a.Chains) - maxShownChains; n > 0 || a.Omitted > 0 {
		fmt.Fprintf(w.Out, "\n%d more match: ask for something more exact, or use -o json.\n", max(n, 0)+a.Omitted)
	}
	if a.Note != "" {
		w.text("", w.Out.Paint(term.Yellow, "►"), a.Note)
	}
}

// chain prints a chain: what blocks it, then its steps.
func (w *whyCommand) chain(c view.Chain) {
	b := c.Blocking
	if b == nil {
		w.text("", w.Out.Paint(term.Green, "✔"), c.Target.ID+" is live: "+c.Steps[len(c.Steps)-1].Text)
	} else {
		since := ""
		if !b.From.IsZero() {
			since = " for " + formatAge(time.Since(b.From))
		}
		w.text("", w.mark(b.State), fmt.Sprintf("%s is not live: %s %s%s", c.Target.ID, b.Name, stateWord(*b), since))
		w.field("cause", b.Text)
		if !b.Until.IsZero() {
			w.field("until", b.Until.UTC().Format(time.RFC3339))
		}
		w.next(*b)
		if b.Object != "" && b.Object != c.Target.ID {
			w.field("look at", b.Object)
		}
	}
	width := 0
	for _, s := range c.Steps {
		width = max(width, len(s.Name))
	}
	if len(c.Steps) < 2 {
		return
	}
	for _, s := range c.Steps {
		text := s.Text
		if b != nil && s.State == b.State && s.Name == b.Name && s.State != view.Done {
			text = "see above"
		}
		w.line(fmt.Sprintf("  %s %-*s  ", w.mark(s.State), width, s.Name), width+6, text)
	}
}

// next prints what to do about a step.
func (w *whyCommand) next(s view.Step) {
	if s.Do != "" && s.State != view.Done {
		w.field("next", s.Do)
	}
}

// field prints what is known of the step that blocks.
func (w *whyCommand) field(name, value string) {
	w.line(fmt.Sprintf("  %-9s", name+":"), 11, kind.ShortRevisions(value))
}

func (w *whyCommand) text(indent, mark, text string) {
	w.line(indent+mark+" ", len(indent)+2, kind.ShortRevisions(text))
}

// line prints text behind a beginning of so many columns. On a terminal, it is wrapped at the width of the screen; the
// lines of a pipe are complete, so that they can be searched.
func (w *whyCommand) line(begin string, columns int, text string) {
	text = kind.ShortRevisions(term.OneLine(text))
	if w.Out.IsTerminal() {
		text = strings.TrimLeft(term.Wrap(text, strings.Repeat(" ", columns), w.Out.Width()), " ")
	} else {
		text = term.Printable(text)
	}
	fmt.Fprintln(w.Out, begin+text)
}

func (w *whyCommand) mark(s view.StepState) string {
	switch s {
	case view.Done:
		return w.Out.Paint(term.Green, "✔")
	case view.Blocked:
		return w.Out.Paint(term.Red, "✗")
	case view.Current:
		return w.Out.Paint(term.Yellow, "►")
	}
	return w.Out.Paint(term.Grey, "·")
}

func stateWord(s view.Step) string {
	switch s.State {
	case view.Blocked:
		return "is blocked"
	case view.Current:
		return "is in progress"
	}
	return "is " + string(s.State)
}
