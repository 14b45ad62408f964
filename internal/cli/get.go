package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// getOptions of the get commands.
type getOptions struct {
	everywhere, watch, noHeader bool
	source                      bool
	output, labels              string
	status                      string
}

func (a *app) get() *cobra.Command {
	var o getOptions
	c := group("get", "Show objects and whether they are Ready", `  sluice get all -A
  sluice get sources git
  sluice get kustomizations -w
  sluice get ks app -o yaml`)
	f := c.PersistentFlags()
	f.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "in all namespaces")
	f.BoolVarP(&o.watch, "watch", "w", false, "go on showing changes")
	f.BoolVar(&o.noHeader, "no-header", false, "leave the header out")
	f.StringVarP(&o.output, "output", "o", "", "wide, name, json or yaml")
	f.StringVarP(&o.labels, "label-selector", "l", "", "only objects with these labels")
	f.StringVar(&o.status, "status-selector", "", "only objects with a condition of a status, such as ready=false")
	a.perKind(c, func(k *kind) *cobra.Command {
		sub := &cobra.Command{
			Use:     k.plural + " [NAME]",
			Aliases: slices.DeleteFunc(slices.Clone(k.words), func(w string) bool { return w == k.plural }),
			Short:   "Show " + k.title() + " objects",
			Example: "  " + k.get() + " -A\n  " + k.get() + " NAME -o yaml",
			Args:    atMostOne,
			RunE: func(cmd *cobra.Command,
				args []string) error {
				return a.show(cmd.Context(), []*kind{k}, args, o)
			},
		}
		if k.source != nil && !k.passive { // which shows it anyway
			sub.Flags().BoolVar(&o.source, "show-source", false, "show what each is built from")
		}
		return sub
	})
	a.all(c, kinds, &o)
	for _, sub := range c.Commands() {
		if parents[sub.Name()] != nil {
			a.all(sub, slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return k.parent != sub.Name() }), &o)
		}
	}
	return c
}

// all adds the command that shows the objects of several kinds.
func (a *app) all(to *cobra.Command, ks []*kind, o *getOptions) {
	to.AddCommand(&cobra.Command{
		Use: "all", Short: "Show the objects of all these kinds", Args: noArgs,
		Example: "  sluice " + strings.TrimPrefix(to.CommandPath()+" all -A --status-selector ready=false", "sluice "),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), ks, args, *o) },
	})
}

func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("one name at most, got %d. See %s --help", len(args), cmd.CommandPath())
	}
	return nil
}

// query is what to show.
type query struct {
	kinds     []*kind
	name      string // of the one object; empty for all
	namespace string // empty for all
	labels    labels.Selector
	condition string // of this type
	status    string // with this status
}

func (a *app) query(ks []*kind, args []string, o getOptions) (query, error) {
	q := query{kinds: ks, namespace: a.namespace()}
	if o.everywhere {
		q.namespace = ""
	}
	if len(args) > 0 {
		q.name = args[0]
	}
	if !slices.Contains([]string{"", "wide", "name", "json", "yaml"}, o.output) {
		return q, usagef("unknown output %q: choose wide, name, json or yaml", o.output)
	}
	if o.watch && len(ks) > 1 {
		return q, usagef("--watch shows one kind: name it, as in %s --watch", ks[0].get())
	}
	if o.status != "" {
		var ok bool
		if q.condition, q.status, ok = strings.Cut(o.status, "="); !ok {
			return q, usagef("--status-selector is %q, want a condition and its status, such as ready=false", o.status)
		}
	}
	var err error
	if q.labels, err = labels.Parse(o.labels); err != nil {
		return q, usagef("--label-selector %q: %w", o.labels, err)
	}
	return q, nil
}

func (q query) options() client.ListOptions {
	return client.ListOptions{Namespace: q.namespace, LabelSelector: q.labels}
}

// wants tells whether an object is asked for by name and status.
func (q query) wants(o reconcile.Object) bool {
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

// row is an object to show.
type row struct {
	kind   *kind
	object reconcile.Object
}

func (a *app) show(ctx context.Context, ks []*kind, args []string, o getOptions) error {
	q, err := a.query(ks, args, o)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.timeout)
	rows, err := q.run(bounded, c)
	cancel()
	if err != nil {
		return err
	}
	p := &printer{app: a, getOptions: o, tables: map[*kind]*table{}}
	if o.watch {
		return p.follow(ctx, c, q, rows)
	}
	if len(rows) == 0 && q.name != "" {
		return notFound(ks[0], a.namespace(), q.name)
	}
	if len(rows) == 0 {
		where := "any namespace"
		if q.namespace != "" {
			where = "namespace " + q.namespace + "; -A looks in all"
		}
		a.step("nothing found in %s", where)
	}
	return p.print(rows, q.name != "")
}

// run lists the objects. Of several kinds, those that the cluster does not have are left out.
func (q query) run(ctx context.Context, c client.Client) ([]row, error) {
	var rows []row
	var missing error
	absent := 0
	for _, k := range q.kinds {
		list, options := k.list(), q.options()
		if err := c.List(ctx, list, &options); err != nil {
			if missing = explain("cannot list "+k.title()+" objects", err); apimeta.IsNoMatchError(err) {
				absent++
				continue
			}
			return nil, missing
		}
		objects, err := items(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if q.wants(o) {
				rows = append(rows, row{k, o})
			}
		}
	}
	if absent == len(q.kinds) {
		return nil, missing
	}
	return rows, nil
}

// printer writes rows in the form that was asked for.
type printer struct {
	*app
	getOptions
	tables map[*kind]*table
}

func (p *printer) print(rows []row, single bool) error {
	switch p.output {
	case "json", "yaml":
		return p.objects(rows, single)
	case "name":
		for _, r := range rows {
			gvk, err := apiutil.GVKForObject(r.object, manager.Scheme())
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s.%s/%s\n", strings.ToLower(gvk.Kind), gvk.Group, r.object.GetName())
		}
		return nil
	}
	for len(rows) > 0 { // rows of a kind stand together
		k := rows[0].kind
		n := slices.IndexFunc(rows, func(r row) bool { return r.kind != k })
		if n < 0 {
			n = len(rows)
		}
		if err := p.table(k, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// table prints rows of a kind, below those that it printed of this kind before.
func (p *printer) table(k *kind, rows []row) error {
	var lines [][]cell
	t := p.tables[k]
	if t == nil {
		t = &table{out: p.out}
		if len(p.tables) > 0 {
			fmt.Fprintln(p.out)
		}
		p.tables[k] = t
		if !p.noHeader {
			lines = append(lines, p.header(k))
		}
	}
	for _, r := range rows {
		lines = append(lines, p.cells(r))
	}
	return t.print(lines...)
}

func (p *printer) header(k *kind) []cell {
	var h []cell
	if p.everywhere {
		h = append(h, cell{text: "NAMESPACE"})
	}
	h = append(h, cell{text: "NAME"})
	for _, c := range p.columns(k) {
		h = append(h, cell{text: c.head})
	}
	return append(h, cell{text: "READY"}, cell{text: "MESSAGE"})
}

func (p *printer) columns(k *kind) []column {
	columns := slices.Clone(k.columns)
	if p.source && k.source != nil {
		columns = append(columns, column{"SOURCE", func(o reconcile.Object, _ bool) string {
			ref := k.source(o)
			return ref.Kind + "/" + cmp.Or(ref.Namespace, o.GetNamespace()) + "/" + ref.Name
		}})
	}
	if p.output == "wide" {
		columns = append(columns, column{"AGE", func(o reconcile.Object, _ bool) string {
			return time.Since(o.GetCreationTimestamp().Time).Round(time.Second).String()
		}})
	}
	return columns
}

func (p *printer) cells(r row) []cell {
	ready, message := string(metav1.ConditionUnknown), "waiting to be reconciled"
	if c := readyCondition(r.object); c != nil {
		ready, message = string(c.Status), oneLine(c.Message)
	}
	if c := apimeta.FindStatusCondition(r.object.CommonStatus().Conditions, r.kind.tells); c != nil &&
		ready == string(metav1.ConditionTrue) {
		message = oneLine(c.Message)
	}
	var out []cell
	if p.everywhere {
		out = append(out, cell{text: r.object.GetNamespace()})
	}
	out = append(out, cell{text: r.object.GetName()})
	for _, c := range p.columns(r.kind) {
		out = append(out, cell{text: c.value(r.object, p.output == "wide")})
	}
	colour := map[string]string{"True": green, "False": red}[ready]
	return append(out, cell{ready, colour}, cell{text: message})
}

func (p *printer) objects(rows []row, single bool) error {
	all := []any{}
	for _, r := range rows {
		gvk, err := apiutil.GVKForObject(r.object, manager.Scheme())
		if err != nil {
			return err
		}
		r.object.SetManagedFields(nil)
		r.object.GetObjectKind().SetGroupVersionKind(gvk)
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.object)
		if err != nil {
			return err
		}
		all = append(all, u)
	}
	var v any = map[string]any{"apiVersion": "v1", "kind": "List", "items": all}
	if single && len(all) == 1 {
		v = all[0]
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if p.output == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return err
		}
		if p.watch {
			b = append([]byte("---\n"), b...)
		}
	}
	_, err = p.out.Write(b)
	return err
}

// follow prints the rows, and then a line for every change until the command is stopped.
func (p *printer) follow(ctx context.Context, c client.WithWatch, q query, rows []row) error {
	shown := map[string]string{}
	fresh := func(o reconcile.Object) bool {
		key, now := client.ObjectKeyFromObject(o).String(), o.GetResourceVersion()
		if p.output == "" {
			now = fmt.Sprint(p.cells(row{q.kinds[0], o})) // changes that nobody can see are none
		}
		if shown[key] == now {
			return false
		}
		shown[key] = now
		return true
	}
	for _, r := range rows {
		fresh(r.object)
	}
	if len(rows) > 0 {
		if err := p.print(rows, true); err != nil {
			return err
		}
	}
	err := observe(ctx, c, q.kinds[0], q.options(), func(event watch.EventType, o reconcile.Object) (bool, error) {
		if event == watch.Deleted || !q.wants(o) || !fresh(o) {
			return false, nil
		}
		return false, p.print([]row{{q.kinds[0], o}}, true)
	})
	if errors.Is(err, context.Canceled) {
		return nil // stopped by the person
	}
	return err
}
