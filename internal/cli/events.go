package cli

import (
	"cmp"
	"context"
	"errors"
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
)

// eventOptions of the events command.
type eventOptions struct {
	everywhere, watch bool
	about             string
	types             []string
}

func (a *app) events() *cobra.Command {
	var o eventOptions
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to objects, the newest last",
		Example: `  sluice events -A
  sluice events --for Kustomization/app --watch
  sluice events --types Warning -n apps`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showEvents(cmd.Context(), o) },
	}
	f := c.Flags()
	f.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "in all namespaces")
	f.StringVar(&o.about, "for", "", "only those of this object, as KIND/NAME, and of what it is built from")
	f.StringSliceVar(&o.types, "types", nil, "only those of these types: Normal, Warning")
	f.BoolVarP(&o.watch, "watch", "w", false, "go on showing new ones")
	return c
}

func (a *app) showEvents(ctx context.Context, o eventOptions) error {
	for _, t := range o.types {
		if err := oneOf("types", t, corev1.EventTypeNormal, corev1.EventTypeWarning); err != nil {
			return err
		}
	}
	if o.about != "" && strings.Count(o.about, "/") != 1 {
		return usagef("--for %q: write it as KIND/NAME, such as Kustomization/app", o.about)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	options := client.ListOptions{Namespace: a.namespace()}
	if o.everywhere {
		options.Namespace = ""
	}
	v := &eventView{app: a, types: o.types, namespaces: o.everywhere, shown: map[types.UID]int32{},
		table: table{out: a.out}}
	bounded, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if o.about != "" {
		if v.about, err = a.related(bounded, c, o.about); err != nil {
			return err
		}
		if slices.ContainsFunc(v.about, func(r meta.ObjectReference) bool { return r.Namespace != a.namespace() }) {
			options.Namespace = "" // its source is elsewhere
		}
	}
	var list corev1.EventList
	if err := c.List(bounded, &list, &options); err != nil {
		return explain("cannot list events", err)
	}
	if err := v.first(list.Items); err != nil || !o.watch {
		return err
	}
	err = observeList(ctx, c, func() client.ObjectList { return &corev1.EventList{} }, "events", options,
		func(event watch.EventType, o runtime.Object) (bool, error) {
			e, ok := o.(*corev1.Event)
			if !ok || event == watch.Deleted || !v.fresh(e) {
				return false, nil
			}
			return false, v.table.print(v.row(e))
		})
	if errors.Is(err, context.Canceled) {
		return nil // stopped by the person
	}
	return err
}

// related lists an object and all that it is built from.
func (a *app) related(ctx context.Context, c client.Client, about string) ([]meta.ObjectReference, error) {
	word, name, _ := strings.Cut(about, "/")
	k := byWord(word)
	if k == nil {
		return []meta.ObjectReference{{Kind: word, Namespace: a.namespace(), Name: name}}, nil
	}
	refs := []meta.ObjectReference{{Kind: k.title(), Namespace: a.namespace(), Name: name}}
	for i := 0; i < len(refs) && i < maxRelated; i++ {
		k := byTitle(refs[i].Kind)
		if k == nil {
			continue
		}
		obj := k.new()
		if err := c.Get(ctx, types.NamespacedName{Namespace: refs[i].Namespace, Name: refs[i].Name}, obj); err != nil {
			if i == 0 && client.IgnoreNotFound(err) != nil {
				return nil, explain("cannot get "+about, err)
			}
			continue // its events outlive it
		}
		for _, s := range sourcesOf(k, obj) {
			refs = append(refs, meta.ObjectReference{Kind: s.Kind, Namespace: cmp.Or(s.Namespace, refs[i].Namespace),
				Name: s.Name})
		}
	}
	return refs, nil
}

// maxRelated bounds how many objects are looked at for what they are built from.
const maxRelated = 100

// eventView shows events in the order in which they come, each of its counts once.
type eventView struct {
	*app
	types      []string
	about      []meta.ObjectReference // all of our groups when empty
	namespaces bool                   // show them
	shown      map[types.UID]int32    // how often it had happened when it was shown
	table      table
}

func (v *eventView) first(all []corev1.Event) error {
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return happened(&a).Compare(happened(&b)) })
	header := []cell{{text: "LAST SEEN"}, {text: "TYPE"}, {text: "REASON"}, {text: "OBJECT"}, {text: "MESSAGE"}}
	if v.namespaces {
		header = append([]cell{{text: "NAMESPACE"}}, header...)
	}
	rows := [][]cell{header}
	for i := range all {
		if v.fresh(&all[i]) {
			rows = append(rows, v.row(&all[i]))
		}
	}
	if len(rows) == 1 {
		v.step("no events found; the cluster forgets them after an hour")
		return nil
	}
	return v.table.print(rows...)
}

// fresh tells whether an event is asked for and new since it was shown.
func (v *eventView) fresh(e *corev1.Event) bool {
	if len(v.types) > 0 && !slices.Contains(v.types, e.Type) || !v.asked(e.InvolvedObject) {
		return false
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		count = e.Series.Count
	}
	if v.shown[e.UID] == count {
		return false
	}
	v.shown[e.UID] = count
	return true
}

func (v *eventView) asked(o corev1.ObjectReference) bool {
	if len(v.about) == 0 {
		gv, err := schema.ParseGroupVersion(o.APIVersion)
		return err == nil && ours(gv.Group)
	}
	return slices.ContainsFunc(v.about, func(r meta.ObjectReference) bool {
		return strings.EqualFold(r.Kind, o.Kind) && r.Name == o.Name && r.Namespace == o.Namespace
	})
}

// happened is when an event was seen last: the two APIs for them keep it in different fields.
func happened(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return cmp.Or(e.EventTime.Time, e.CreationTimestamp.Time)
}

func (v *eventView) row(e *corev1.Event) []cell {
	colour := map[string]string{corev1.EventTypeWarning: red}[e.Type]
	row := []cell{
		{text: ago(time.Since(happened(e)))}, {e.Type, colour}, {text: e.Reason},
		{text: fmt.Sprintf("%s/%s", e.InvolvedObject.Kind, e.InvolvedObject.Name)}, {text: oneLine(e.Message)},
	}
	if v.namespaces {
		row = append([]cell{{text: e.Namespace}}, row...)
	}
	return row
}

// ago gives a time that has passed in its largest unit, and the next where that is hours.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	default:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
}
