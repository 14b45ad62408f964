package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// objectPrinter prints objects in the requested format.
type objectPrinter struct {
	getOptions
	out    *term.Screen
	tables map[*kind.Kind]*term.Table
}

func newObjectPrinter(out *term.Screen, o getOptions) *objectPrinter {
	return &objectPrinter{getOptions: o, out: out, tables: map[*kind.Kind]*term.Table{}}
}

// print prints objects, which are sorted by kind. If single is set, JSON and YAML are not wrapped in a List.
func (p *objectPrinter) print(found []foundObject, single bool) error {
	switch p.output {
	case "json", "yaml":
		return p.printObjects(found, single)
	case "name":
		return p.printNames(found)
	}
	if p.output == "" && !p.watch {
		return p.printSections(found)
	}
	for len(found) > 0 {
		k := found[0].kind
		n := slices.IndexFunc(found, func(f foundObject) bool { return f.kind != k })
		if n < 0 {
			n = len(found)
		}
		if err := p.printTable(k, found[:n]); err != nil {
			return err
		}
		found = found[n:]
	}
	return nil
}

func (p *objectPrinter) printNames(found []foundObject) error {
	for _, f := range found {
		gvk, err := apiutil.GVKForObject(f.object, kubeclient.Scheme())
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "%s.%s/%s\n", strings.ToLower(gvk.Kind), gvk.Group, f.object.GetName())
	}
	return nil
}

// printTable appends rows to the table of a kind.
func (p *objectPrinter) printTable(k *kind.Kind, found []foundObject) error {
	var rows [][]term.Cell
	t := p.tables[k]
	if t == nil {
		t = term.NewTable(p.out)
		if len(p.tables) > 0 {
			fmt.Fprintln(p.out)
		}
		p.tables[k] = t
		if !p.noHeader {
			rows = append(rows, p.header(k))
		}
	}
	for _, f := range found {
		rows = append(rows, p.row(f))
	}
	if p.output == "" {
		return p.printFitted(t, rows, found)
	}
	return t.Print(rows...)
}

func (p *objectPrinter) header(k *kind.Kind) []term.Cell {
	var names []string
	if p.allNamespaces {
		names = append(names, "NAMESPACE")
	}
	names = append(names, "NAME")
	for _, c := range p.columns(k) {
		names = append(names, c.Header)
	}
	return term.Row(append(names, "READY", "MESSAGE")...)
}

func (p *objectPrinter) columns(k *kind.Kind) []kind.Column {
	columns := slices.Clone(k.Columns)
	if p.showSource && k.HasSource {
		columns = append(columns, kind.Column{Header: "SOURCE", Value: sourceName})
	}
	if p.output == "wide" {
		columns = append(columns, kind.Column{Header: "AGE", Value: func(o reconcile.Object, _ bool) string {
			return time.Since(o.GetCreationTimestamp().Time).Round(time.Second).String()
		}})
	}
	return columns
}

func sourceName(o reconcile.Object, _ bool) string {
	for _, ref := range lineage.Sources(o) {
		return ref.Kind + "/" + cmp.Or(ref.Namespace, o.GetNamespace()) + "/" + ref.Name
	}
	return ""
}

func (p *objectPrinter) row(f foundObject) []term.Cell {
	ready, message := string(metav1.ConditionUnknown), "waiting to be reconciled"
	if c := cluster.ReadyCondition(f.object); c != nil {
		ready, message = string(c.Status), c.Message
	}
	c := apimeta.FindStatusCondition(f.object.CommonStatus().Conditions, f.kind.StatusCondition)
	if c != nil && ready == string(metav1.ConditionTrue) {
		message = c.Message
	}
	if at := f.object.GetDeletionTimestamp(); at != nil {
		ready, message = "Terminating", "being deleted for "+formatAge(time.Since(at.Time))+", held by finalizers: "+
			strings.Join(f.object.GetFinalizers(), ", ")+". "+message
	}
	var texts []string
	if p.allNamespaces {
		texts = append(texts, f.object.GetNamespace())
	}
	texts = append(texts, p.name(f))
	for _, c := range p.columns(f.kind) {
		texts = append(texts, c.Value(f.object, p.output == "wide"))
	}
	message = term.OneLine(message)
	if p.output != "wide" {
		message = kind.ShortRevisions(message)
	}
	row := term.Row(append(texts, ready, message)...)
	row[len(row)-2].Colour = map[string]string{"True": term.Green, "False": term.Red, "Terminating": term.Yellow}[ready]
	return row
}

// name returns the name of an object, with its kind where a table lists several kinds.
func (p *objectPrinter) name(f foundObject) string {
	if p.overview {
		return strings.ToLower(f.kind.Name()) + "/" + f.object.GetName()
	}
	return f.object.GetName()
}

func (p *objectPrinter) printObjects(found []foundObject, single bool) error {
	items := []any{}
	for _, f := range found {
		gvk, err := apiutil.GVKForObject(f.object, kubeclient.Scheme())
		if err != nil {
			return err
		}
		f.object.SetManagedFields(nil)
		f.object.GetObjectKind().SetGroupVersionKind(gvk)
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(f.object)
		if err != nil {
			return err
		}
		items = append(items, u)
	}
	var v any = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	if single && len(items) == 1 {
		v = items[0]
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

// watchObjects prints objects, and then one row for each change until ctx ends.
func (p *objectPrinter) watchObjects(ctx context.Context, c client.WithWatch, q query, found []foundObject) error {
	printed := map[string]string{} // what was last printed of each object, by key
	isNew := func(o reconcile.Object) bool {
		key, now := client.ObjectKeyFromObject(o).String(), o.GetResourceVersion()
		if p.output == "" {
			now = fmt.Sprint(p.row(foundObject{q.kinds[0], o})) // other changes do not show in the table
		}
		if printed[key] == now {
			return false
		}
		printed[key] = now
		return true
	}
	for _, f := range found {
		isNew(f.object)
	}
	if len(found) > 0 {
		if err := p.print(found, true); err != nil {
			return err
		}
	}
	handle := func(event watch.EventType, o reconcile.Object) (bool, error) {
		if event == watch.Deleted || !q.matches(o) || !isNew(o) {
			return false, nil
		}
		return false, p.print([]foundObject{{kind: q.kinds[0], object: o}}, true)
	}
	return cluster.Watch(ctx, c, q.kinds[0], *q.options(), handle)
}
