package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/ui/state"
)

// getFormats are the output formats of `sluice get`.
var getFormats = append([]string{"wide", "name"}, machineFormats...)

// getOptions are the flags of `sluice get`.
type getOptions struct {
	allNamespaces, watch, noHeader bool
	showSource                     bool
	overview                       bool // of several kinds, within the width of the screen
	output, labels, status         string
}

func newGetCommand(e *env) *cobra.Command {
	var o getOptions
	c := newGroup("get", "List objects and whether they are Ready", `  sluice get all -A
  sluice get sources git
  sluice get kustomizations -w
  sluice get ks/app -o yaml`)
	f := c.PersistentFlags()
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "objects in all namespaces")
	f.BoolVarP(&o.watch, "watch", "w", false, "watch for changes after listing the objects")
	f.BoolVar(&o.noHeader, "no-header", false, "do not print the table header")
	addOutput(c, f, &o.output, getFormats...)
	f.StringVarP(&o.labels, "label-selector", "l", "", "only objects with these labels")
	f.StringVar(&o.status, "status-selector", "", "only objects whose condition has a status, such as ready=false")
	e.addPerKind(c, func(k *kind.Kind) *cobra.Command { return newGetKindCommand(e, k, &o) })
	c.AddCommand(withClusters(e, newGetAllCommand(e, c.CommandPath(), kind.All(), &o), &o))
	for _, sub := range c.Commands() {
		if kind.ParentAliases(sub.Name()) != nil {
			sub.AddCommand(newGetAllCommand(e, sub.CommandPath(), kind.Under(sub.Name()), &o))
		}
	}
	return c
}

func newGetKindCommand(e *env, k *kind.Kind, o *getOptions) *cobra.Command {
	c := &cobra.Command{
		Use:     k.Plural + " [NAME]",
		Aliases: slices.DeleteFunc(slices.Clone(k.Words), func(w string) bool { return w == k.Plural }),
		Short:   "List " + k.Name() + " objects",
		Example: "  " + k.GetCommand() + " -A\n  " + k.GetCommand() + " NAME -o yaml",
		Args:    atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGet(cmd.Context(), e, []*kind.Kind{k}, args, *o)
		},
	}
	if k.HasSource && !k.ReadOnly { // ReadOnly kinds have a column for what made them
		c.Flags().BoolVar(&o.showSource, "show-source", false, "show the source of each object")
	}
	return c
}

// newGetAllCommand returns the command that lists the objects of several kinds, below the command with the given path.
func newGetAllCommand(e *env, parent string, ks []*kind.Kind, o *getOptions) *cobra.Command {
	var only []string
	c := &cobra.Command{
		Use: "all", Short: "List objects of all these kinds", Args: noArgs,
		Example: "  sluice " + strings.TrimPrefix(parent+" all -A --status-selector ready=false", "sluice "),
		RunE: func(cmd *cobra.Command, args []string) error {
			overview := *o
			overview.overview = true
			chosen := ks
			if len(only) > 0 {
				chosen = nil
			}
			for _, word := range only {
				k := kind.ByWord(word)
				if !slices.Contains(ks, k) {
					return usagef("unknown kind %q: use words such as ks, hr or gitrepo", word)
				}
				chosen = append(chosen, k)
			}
			return runGet(cmd.Context(), e, chosen, args, overview)
		},
	}
	c.Flags().StringSliceVar(&only, "kind", nil, "only objects of these kinds; 'get ks,hr' is short for --kind ks,hr")
	return c
}

// withClusters adds the list of clusters to the command that lists objects of all kinds.
func withClusters(e *env, c *cobra.Command, o *getOptions) *cobra.Command {
	var clusters clusterOptions
	clusters.bind(c)
	c.Example += "\n  sluice get all -A --clusters\n  sluice get all -A --clusters --by environment\n" +
		"  sluice get all --clusters --hub https://hub.example.com"
	listObjects := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if clusters.by != "" && !clusters.list {
			return usagef("--by needs --clusters")
		}
		if clusters.list {
			return runClusters(cmd.Context(), e, *o, clusters)
		}
		return listObjects(cmd, args)
	}
	return c
}

// query selects objects.
type query struct {
	kinds     []*kind.Kind
	name      string // of one object; "" for all
	namespace string // "" for all
	labels    labels.Selector
	condition string // type of the condition to compare; "" for no comparison
	status    string // of that condition
}

// newQuery returns the query that the arguments and flags describe, or a usage error.
func newQuery(namespace string, ks []*kind.Kind, args []string, o getOptions) (query, error) {
	q := query{kinds: ks, namespace: namespace}
	if o.allNamespaces {
		q.namespace = ""
	}
	if len(args) > 0 {
		q.name = args[0]
	}
	if err := optionalOneOf("output", o.output, getFormats...); err != nil {
		return q, err
	}
	if o.watch && len(ks) > 1 {
		return q, usagef("--watch needs a single kind, as in %s --watch", ks[0].GetCommand())
	}
	if o.status != "" {
		var ok bool
		if q.condition, q.status, ok = strings.Cut(o.status, "="); !ok {
			return q, usagef("invalid --status-selector %q: use CONDITION=STATUS, such as ready=false", o.status)
		}
		if !slices.Contains([]string{"true", "false", "unknown"}, strings.ToLower(q.status)) {
			return q, usagef("invalid status %q in --status-selector: choose from true, false, unknown", q.status)
		}
	}
	var err error
	if q.labels, err = labels.Parse(o.labels); err != nil {
		return q, usagef("invalid --label-selector %q: %w", o.labels, err)
	}
	return q, nil
}

func (q query) options() *client.ListOptions {
	return &client.ListOptions{Namespace: q.namespace, LabelSelector: q.labels}
}

// matches reports whether an object has the name and the status of the query.
func (q query) matches(o reconcile.Object) bool {
	if q.name != "" && o.GetName() != q.name {
		return false
	}
	if q.condition == "" {
		return true
	}
	i := slices.IndexFunc(o.CommonStatus().Conditions,
		func(c metav1.Condition) bool { return strings.EqualFold(c.Type, q.condition) })
	if i < 0 {
		return strings.EqualFold(q.status, string(metav1.ConditionUnknown))
	}
	return strings.EqualFold(q.status, string(o.CommonStatus().Conditions[i].Status))
}

// foundObject is an object and its kind.
type foundObject struct {
	kind   *kind.Kind
	object reconcile.Object
}

// run lists the objects, sorted by kind. Kinds that the cluster does not serve are skipped, unless it serves none.
func (q query) run(ctx context.Context, c client.Client) ([]foundObject, error) {
	var found []foundObject
	var missing error
	absent := 0
	for _, k := range q.kinds {
		objects, err := cluster.List(ctx, c, k, q.options())
		if errors.Is(err, cluster.ErrNotInstalled) {
			missing = err
			absent++
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if q.matches(o) {
				found = append(found, foundObject{k, o})
			}
		}
	}
	if absent == len(q.kinds) {
		return nil, missing
	}
	return found, nil
}

func runGet(ctx context.Context, e *env, ks []*kind.Kind, args []string, o getOptions) error {
	q, err := newQuery(e.Namespace(), ks, args, o)
	if err != nil {
		return err
	}
	c, err := e.Client()
	if err != nil {
		return err
	}
	bounded, cancel := e.WithTimeout(ctx)
	found, err := q.run(bounded, c)
	if err == nil && o.overview {
		for _, problem := range state.Problems(bounded, c, cluster.DefaultNamespace, time.Now()) {
			e.Warn("%s", problem)
		}
	}
	cancel()
	if err != nil {
		return err
	}
	p := newObjectPrinter(e.Out, o)
	if o.watch {
		return e.untilStopped(ctx, func(ctx context.Context) error { return p.watchObjects(ctx, c, q, found) })
	}
	if len(found) == 0 && q.name != "" {
		return cluster.NotFound(ks[0], e.key(q.name))
	}
	if len(found) == 0 && q.namespace != "" {
		e.Step("nothing found in namespace %s; use -A for all namespaces", q.namespace)
	} else if len(found) == 0 {
		e.Step("nothing found in any namespace")
	}
	return p.print(found, q.name != "")
}
