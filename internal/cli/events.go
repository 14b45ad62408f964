package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
)

// eventsCommand is `sluice events`.
type eventsCommand struct {
	*env
	allNamespaces, watch bool
	object               string
	types                []string
	output               string
}

func newEventsCommand(e *env) *cobra.Command {
	o := &eventsCommand{env: e}
	c := &cobra.Command{
		Use:   "events [KIND/NAME]",
		Short: "Show the events of objects, newest last",
		Example: `  sluice events -A
  sluice events ks/app --watch
  sluice events --for Kustomization/app -o json
  sluice events --types Warning -n apps`,
		Args: atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && o.object != "" {
				return usagef("--for %q and %q exclude each other", o.object, args[0])
			}
			if len(args) == 1 {
				o.object = args[0]
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "events in all namespaces")
	f.StringVar(&o.object, "for", "", "only events of this object, as KIND/NAME")
	f.StringSliceVar(&o.types, "types", nil, "only events of these types: Normal, Warning")
	f.BoolVarP(&o.watch, "watch", "w", false, "keep printing new events")
	addOutput(c, f, &o.output, machineFormats...)
	return c
}

func (o *eventsCommand) validate() error {
	for _, t := range o.types {
		if err := oneOf("types", t, corev1.EventTypeNormal, corev1.EventTypeWarning); err != nil {
			return err
		}
	}
	if o.object != "" && strings.Count(o.object, "/") != 1 {
		return usagef("invalid object %q: use KIND/NAME, such as Kustomization/app", o.object)
	}
	return optionalOneOf("output", o.output, machineFormats...)
}

func (o *eventsCommand) run(ctx context.Context) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	options := client.ListOptions{Namespace: o.NamespaceOr(o.allNamespaces)}
	p := &eventPrinter{env: o.env, types: o.types, showNamespace: o.allNamespaces, printed: map[types.UID]int32{},
		table: term.NewTable(o.Out), output: o.output}
	bounded, cancel := o.WithTimeout(ctx)
	defer cancel()
	if o.object != "" {
		ref := o.ref()
		p.object = &ref
		options.Namespace = ref.Namespace
	}
	var list corev1.EventList
	if err := c.List(bounded, &list, &options); err != nil {
		return cluster.Explain("cannot list events", err)
	}
	if err := p.printFirst(list.Items); err != nil || !o.watch {
		return err
	}
	return o.untilStopped(ctx, func(ctx context.Context) error {
		return cluster.WatchList(ctx, c, func() client.ObjectList { return &corev1.EventList{} }, "events", options,
			func(event watch.EventType, o runtime.Object) (bool, error) {
				e, ok := o.(*corev1.Event)
				if !ok || event == watch.Deleted || !p.isNew(e) {
					return false, nil
				}
				return false, p.printOne(e)
			})
	})
}

// ref returns the object of --for.
func (o *eventsCommand) ref() meta.ObjectReference {
	word, name, _ := strings.Cut(o.object, "/")
	if k := kind.ByWord(word); k != nil {
		word = k.Name()
	}
	return meta.ObjectReference{Kind: word, Namespace: o.Namespace(), Name: name}
}

// eventPrinter prints events as they arrive. An event that repeats is printed again.
type eventPrinter struct {
	*env
	types         []string
	object        *meta.ObjectReference // nil for all objects of the toolkit's API groups
	showNamespace bool
	printed       map[types.UID]int32 // count of each event when it was printed
	table         *term.Table
	output        string
}

func (p *eventPrinter) printFirst(all []corev1.Event) error {
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	if p.output != "" {
		return p.printList(all)
	}
	header := []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}
	if p.showNamespace {
		header = append([]string{"NAMESPACE"}, header...)
	}
	rows := [][]term.Cell{term.Row(header...)}
	for i := range all {
		if p.isNew(&all[i]) {
			rows = append(rows, p.row(&all[i]))
		}
	}
	if len(rows) == 1 {
		p.Step("no events found; clusters usually keep events for one hour")
		return nil
	}
	return p.table.PrintMessages(rows...)
}

// printList prints events as a List for programs.
func (p *eventPrinter) printList(all []corev1.Event) error {
	list := corev1.EventList{Items: []corev1.Event{}}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("EventList"))
	for i := range all {
		if p.isNew(&all[i]) {
			list.Items = append(list.Items, *forPrograms(&all[i]))
		}
	}
	return p.printAs(p.output, &list)
}

// printOne prints an event of a watch.
func (p *eventPrinter) printOne(e *corev1.Event) error {
	if p.output == "" {
		return p.table.PrintMessages(p.row(e))
	}
	if p.output == "yaml" {
		fmt.Fprintln(p.Out, "---")
	}
	return p.printAs(p.output, forPrograms(e))
}

// forPrograms sets the kind of an event, which clients leave out, and removes its managed fields.
func forPrograms(e *corev1.Event) *corev1.Event {
	e.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	e.SetManagedFields(nil)
	return e
}

// isNew reports whether an event matches the filters and was not printed with its current count.
func (p *eventPrinter) isNew(e *corev1.Event) bool {
	if len(p.types) > 0 && !slices.Contains(p.types, e.Type) || !p.matches(e.InvolvedObject) {
		return false
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		count = e.Series.Count
	}
	if p.printed[e.UID] == count {
		return false
	}
	p.printed[e.UID] = count
	return true
}

func (p *eventPrinter) matches(o corev1.ObjectReference) bool {
	if p.object == nil {
		gv, err := schema.ParseGroupVersion(o.APIVersion)
		return err == nil && lineage.IsToolkitGroup(gv.Group)
	}
	return strings.EqualFold(p.object.Kind, o.Kind) && p.object.Name == o.Name && p.object.Namespace == o.Namespace
}

// lastSeen returns when an event last happened. The two APIs for events store that in different fields.
func lastSeen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return cmp.Or(e.EventTime.Time, e.CreationTimestamp.Time)
}

func (p *eventPrinter) row(e *corev1.Event) []term.Cell {
	row := term.Row(formatAge(time.Since(lastSeen(e))), e.Type, e.Reason,
		fmt.Sprintf("%s/%s", e.InvolvedObject.Kind, e.InvolvedObject.Name), e.Message)
	if e.Type == corev1.EventTypeWarning {
		row[1].Colour = term.Red
	}
	if p.showNamespace {
		row = append(term.Row(e.Namespace), row...)
	}
	return row
}

// formatAge formats a duration in its largest unit, and hours with minutes.
func formatAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	default:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
}
