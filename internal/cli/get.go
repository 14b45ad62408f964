package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// getOptions of the get commands.
type getOptions struct {
	all, watch, noHeader bool
	output, selector     string
	status               string
}

func (a *app) get() *cobra.Command {
	var o getOptions
	c := &cobra.Command{
		Use:   "get",
		Short: "Show objects and whether they are Ready",
		Example: `  sluice get all -A
  sluice get sources git
  sluice get kustomizations -w
  sluice get ks app -o yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := c.PersistentFlags()
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "in all namespaces")
	f.BoolVarP(&o.watch, "watch", "w", false, "go on showing changes")
	f.BoolVar(&o.noHeader, "no-header", false, "leave the header out")
	f.StringVarP(&o.output, "output", "o", "", "wide, name, json or yaml")
	f.StringVarP(&o.selector, "label-selector", "l", "", "only objects with these labels")
	f.StringVar(&o.status, "status-selector", "", "only objects with a condition of a status, such as ready=false")
	a.perKind(c, func(k *kind) *cobra.Command {
		return &cobra.Command{
			Use:     plural(k) + " [NAME]",
			Aliases: k.words,
			Short:   "Show " + k.title() + " objects",
			Example: "  sluice get " + k.path(plural(k)) + " -A\n  sluice get " + k.path(plural(k)) + " NAME -o yaml",
			Args:    atMostOne,
			RunE:    func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), []*kind{k}, args, o) },
		}
	})
	everything := func(ks []*kind, of string) *cobra.Command {
		return &cobra.Command{
			Use: "all", Short: "Show all " + of, Example: "  sluice get all -A --status-selector ready=false", Args: noArgs,
			RunE: func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), ks, args, o) },
		}
	}
	c.AddCommand(everything(kinds, "objects"))
	for _, sub := range c.Commands() {
		if sub.Name() == "source" {
			sub.AddCommand(everything(slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return k.parent != "source" }), "sources"))
		}
	}
	return c
}

// perKind adds a command for each kind, below the word of its parent.
func (a *app) perKind(to *cobra.Command, make func(*kind) *cobra.Command) {
	under := map[string]*cobra.Command{}
	for _, k := range kinds {
		parent := to
		if k.parent != "" {
			parent = under[k.parent]
			if parent == nil {
				parent = &cobra.Command{
					Use: k.parent, Aliases: parents[k.parent], Short: "The same for sources: " + k.words[0] + " and others",
					Example: "  sluice " + to.Name() + " " + k.parent + " " + k.words[0], Args: noArgs,
					RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
				}
				under[k.parent] = parent
				to.AddCommand(parent)
			}
		}
		parent.AddCommand(make(k))
	}
}

func plural(k *kind) string {
	if k.parent != "" {
		return k.words[0]
	}
	return k.words[0] + "s"
}

// path is how the kind is named on the command line.
func (k *kind) path(word string) string {
	return strings.TrimSpace(k.parent + " " + word)
}

func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("one name at most, got %d", len(args))
	}
	return nil
}

func (a *app) show(ctx context.Context, ks []*kind, args []string, o getOptions) error {
	if !slices.Contains([]string{"", "wide", "name", "json", "yaml"}, o.output) {
		return usagef("unknown output %q: choose wide, name, json or yaml", o.output)
	}
	if o.watch && len(ks) > 1 {
		return usagef("--watch shows one kind: name it")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	options := &client.ListOptions{Namespace: a.namespace()}
	if o.all {
		options.Namespace = ""
	}
	selector, err := metav1.ParseToLabelSelector(o.selector)
	if err != nil {
		return usagef("--label-selector: %w", err)
	}
	if options.LabelSelector, err = metav1.LabelSelectorAsSelector(selector); err != nil {
		return usagef("--label-selector: %w", err)
	}
	var found []row
	for _, k := range ks {
		list := k.list()
		if err := c.List(ctx, list, options); err != nil {
			return listError(k, err)
		}
		objects, err := items(list)
		if err != nil {
			return err
		}
		for _, obj := range objects {
			if (len(args) == 0 || obj.GetName() == args[0]) && selected(obj, o.status) {
				found = append(found, row{k, obj})
			}
		}
		if o.watch {
			if err := a.print(found, o, false); err != nil {
				return err
			}
			return a.follow(ctx, c, k, list, options, args, o)
		}
	}
	if len(args) == 1 && len(found) == 0 {
		return fmt.Errorf("%s '%s/%s' not found. See sluice get %s -A", ks[0].title(), a.namespace(), args[0], ks[0].path(plural(ks[0])))
	}
	if len(found) == 0 {
		fmt.Fprintf(a.err, "nothing found in %s\n", where(options.Namespace))
		return nil
	}
	return a.print(found, o, len(args) == 1)
}

func where(namespace string) string {
	if namespace == "" {
		return "any namespace"
	}
	return "namespace " + namespace + " (-A looks in all)"
}

func listError(k *kind, err error) error {
	if apimeta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster has no kind %s. Run sluice install", k.title())
	}
	return fmt.Errorf("cannot list %s objects: %w", k.title(), err)
}

// selected tells whether an object has the condition that --status-selector asks for.
func selected(o reconcile.Object, selector string) bool {
	if selector == "" {
		return true
	}
	name, want, _ := strings.Cut(selector, "=")
	for _, c := range o.CommonStatus().Conditions {
		if strings.EqualFold(c.Type, name) {
			return strings.EqualFold(string(c.Status), want)
		}
	}
	return strings.EqualFold(want, "unknown")
}

// row is an object to show.
type row struct {
	kind   *kind
	object reconcile.Object
}

func (a *app) print(rows []row, o getOptions, single bool) error {
	switch o.output {
	case "json", "yaml":
		return a.printObjects(rows, o.output, single)
	case "name":
		for _, r := range rows {
			fmt.Fprintf(a.out, "%s/%s\n", strings.ToLower(r.kind.title()), r.object.GetName())
		}
		return nil
	}
	byKind := map[*kind][]row{}
	for _, r := range rows {
		byKind[r.kind] = append(byKind[r.kind], r)
	}
	first := true
	for _, k := range kinds {
		if len(byKind[k]) == 0 {
			continue
		}
		if !first {
			fmt.Fprintln(a.out)
		}
		first = false
		w := tabwriter.NewWriter(a.out, 0, 0, 3, ' ', 0)
		if !o.noHeader {
			fmt.Fprintln(w, strings.Join(header(o), "\t"))
		}
		for _, r := range byKind[k] {
			fmt.Fprintln(w, strings.Join(cells(r, o), "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func header(o getOptions) []string {
	h := []string{"NAME", "REVISION", "SUSPENDED", "READY", "MESSAGE"}
	if o.all {
		h = append([]string{"NAMESPACE"}, h...)
	}
	if o.output == "wide" {
		h = append(h, "AGE")
	}
	return h
}

func cells(r row, o getOptions) []string {
	ready, message := "Unknown", "waiting to be reconciled"
	if c := apimeta.FindStatusCondition(r.object.CommonStatus().Conditions, reconcile.TypeReady); c != nil {
		ready, message = string(c.Status), strings.ReplaceAll(c.Message, "\n", " ")
	}
	suspended := "False"
	if r.object.Schedule().Suspended {
		suspended = "True"
	}
	out := []string{r.object.GetName(), short(r.kind.revision(r.object)), suspended, ready, message}
	if o.all {
		out = append([]string{r.object.GetNamespace()}, out...)
	}
	if o.output == "wide" {
		out = append(out, time.Since(r.object.GetCreationTimestamp().Time).Round(time.Second).String())
	}
	return out
}

// short gives a revision as people read it: main@sha1:4f170ec8.
func short(revision string) string {
	i := strings.LastIndexByte(revision, ':')
	if i < 0 || len(revision)-i <= 9 {
		return revision
	}
	return revision[:i+9]
}

func (a *app) printObjects(rows []row, output string, single bool) error {
	var all []any
	for _, r := range rows {
		r.object.SetManagedFields(nil)
		gvk, err := apiutilGVK(r.object)
		if err != nil {
			return err
		}
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
	if output == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return err
		}
	}
	_, err = a.out.Write(b)
	return err
}

// follow prints a line for every change until the command is stopped.
func (a *app) follow(ctx context.Context, c client.WithWatch, k *kind, from client.ObjectList, options *client.ListOptions, args []string, o getOptions) error {
	o.noHeader = true
	options.Raw = &metav1.ListOptions{ResourceVersion: from.GetResourceVersion()}
	w, err := c.Watch(ctx, k.list(), options)
	if err != nil {
		return listError(k, err)
	}
	defer w.Stop()
	last := map[string]string{}
	for e := range w.ResultChan() {
		obj, ok := e.Object.(reconcile.Object)
		if !ok || e.Type == watch.Bookmark {
			continue
		}
		if len(args) == 1 && obj.GetName() != args[0] || !selected(obj, o.status) {
			continue
		}
		line := strings.Join(cells(row{k, obj}, o), " ")
		if key := obj.GetNamespace() + "/" + obj.GetName(); last[key] != line {
			last[key] = line
			if err := a.print([]row{{k, obj}}, o, true); err != nil {
				return err
			}
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil // stopped by the person
	}
	return errors.New("the watch ended. Run the command again")
}
