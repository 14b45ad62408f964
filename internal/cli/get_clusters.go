package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// clusterOptions are the flags of the list of clusters.
type clusterOptions struct {
	list bool   // of clusters, in place of objects
	by   string // label of the objects, in place of the cluster
	hub  hubOptions
}

func (o *clusterOptions) bind(c *cobra.Command) {
	c.Flags().BoolVar(&o.list, "clusters", false,
		"list the clusters that report to --hub, or without a hub those that Kustomizations and HelmReleases deploy to")
	c.Flags().StringVar(&o.by, "by", "",
		"with --clusters: one row for each value of this label of the clusters, or without a hub of the "+
			"Kustomizations and HelmReleases")
	o.hub.bind(c.Flags())
}

// clusterSummary is what is known about a cluster, or a group of clusters, from the objects that deploy to it.
type clusterSummary struct {
	Name      string                  `json:"name"`
	Clusters  int                     `json:"clusters"` // that the objects deploy to
	Objects   int                     `json:"objects"`
	States    map[reconcile.State]int `json:"states"`
	Revisions []string                `json:"revisions,omitempty"` // that are applied, sorted
	Silent    int                     `json:"silent,omitempty"`    // clusters that do not report to the hub
	Inputs    int                     `json:"inputs,omitempty"`    // clusters that are not registered at the hub
	// Problem is the message of an object in the worst state, empty if all are Ready.
	Problem string `json:"problem,omitempty"`

	worst    int // index of the state of the problem
	clusters map[string]bool
}

// runClusters prints the clusters of a hub if there is one, else those that objects of this cluster deploy to.
func runClusters(ctx context.Context, e *env, o getOptions, by clusterOptions) error {
	if o.watch {
		return usagef("--clusters cannot be watched: run it again, or watch 'sluice get kustomizations -A --watch'")
	}
	list, err := by.hub.clusters(ctx, e)
	if err == nil {
		return printHub(ctx, e, o, by, list)
	}
	if by.hub.address(e) != "" {
		return err
	}
	if without := (*noHubError)(nil); !errors.As(err, &without) {
		e.Warn("the hub of this cluster cannot be asked, so the list has the clusters that objects deploy to: %v", err)
	}
	return runGetClusters(ctx, e, o, by)
}

// runGetClusters prints a row for each cluster. It reads only objects of this cluster: what they deploy elsewhere is in
// their status.
func runGetClusters(ctx context.Context, e *env, o getOptions, by clusterOptions) error {
	ks := []*kind.Kind{kind.ByName(kustomizev1.KustomizationKind), kind.ByName(helmv2.HelmReleaseKind)}
	q, err := newQuery(e.Namespace(), ks, nil, o)
	if err != nil {
		return err
	}
	c, err := e.Client()
	if err != nil {
		return err
	}
	bounded, cancel := e.WithTimeout(ctx)
	defer cancel()
	found, err := q.run(bounded, c)
	if err != nil {
		return err
	}
	all := summarize(found, by.by)
	if len(all) == 0 {
		e.Step("nothing found that deploys to a cluster; use -A for all namespaces")
	}
	return printClusters(e, all, o, by)
}

// summarize groups objects by the cluster that they deploy to, or by a label, and sorts the groups: worst first.
func summarize(found []foundObject, label string) []*clusterSummary {
	groups := map[string]*clusterSummary{}
	for _, f := range found {
		target := lineage.Cluster(f.object)
		name := target
		if label != "" {
			name = cmp.Or(f.object.GetLabels()[label], "none")
		}
		s := groups[name]
		if s == nil {
			s = &clusterSummary{Name: name, States: map[reconcile.State]int{}, worst: len(reconcile.States),
				clusters: map[string]bool{}}
			groups[name] = s
		}
		s.clusters[target] = true
		s.add(f)
	}
	var all []*clusterSummary
	for _, s := range groups {
		s.Clusters = len(s.clusters)
		slices.Sort(s.Revisions)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *clusterSummary) int {
		return cmp.Or(cmp.Compare(a.worst, b.worst), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (s *clusterSummary) add(f foundObject) {
	state := reconcile.StateOf(f.object)
	s.Objects++
	s.States[state]++
	if r := appliedRevision(f); r != "" && !slices.Contains(s.Revisions, r) {
		s.Revisions = append(s.Revisions, r)
	}
	if rank := slices.Index(reconcile.States, state); rank < s.worst {
		s.worst, s.Problem = rank, ""
		if state != reconcile.StateReady {
			s.Problem = problemOf(f, state)
		}
	}
}

// problemOf describes an object that is not Ready.
func problemOf(f foundObject, state reconcile.State) string {
	message := string(state)
	if c := cluster.ReadyCondition(f.object); c != nil && c.Status != metav1.ConditionTrue {
		message = c.Message
	} else if gated, ok := f.object.(reconcile.Gated); ok {
		message = cmp.Or(reconcile.WaitingAt(f.object.GetNamespace(), gated.Held()), message)
	}
	return strings.ToLower(f.kind.Name()) + "/" + f.object.GetNamespace() + "/" + f.object.GetName() + ": " +
		term.OneLine(message)
}

// appliedRevision returns what an object has applied, as the list of its kind shows it; empty if that is nothing.
func appliedRevision(f foundObject) string {
	for _, c := range f.kind.Columns {
		if c.Header == "REVISION" {
			return c.Value(f.object, true)
		}
	}
	return ""
}

func printClusters(e *env, all []*clusterSummary, o getOptions, by clusterOptions) error {
	out := e.Out
	switch o.output {
	case "json", "yaml":
		return e.printAs(o.output, map[string]any{"clusters": append([]*clusterSummary{}, all...)})
	case "name":
		for _, s := range all {
			fmt.Fprintln(out, s.Name)
		}
		return nil
	}
	var rows [][]term.Cell
	if !o.noHeader {
		rows = append(rows, clusterHeader(by))
	}
	for _, s := range all {
		rows = append(rows, s.row(by, o.output == "wide"))
	}
	if o.output != "wide" {
		var room int
		if rows, room = out.FitScreen(rows, 1); room > 0 {
			for _, row := range rows {
				row[len(row)-1].Text = term.Cut(row[len(row)-1].Text, room)
			}
		}
	}
	return term.NewTable(out).Print(rows...)
}

func clusterHeader(by clusterOptions) []term.Cell {
	names := []string{"CLUSTER"}
	if by.by != "" {
		names = []string{strings.ToUpper(by.by), "CLUSTERS"}
	}
	return term.Row(append(names, "OBJECTS", "READY", "FAILED", "WAITING", "PROGRESSING", "SUSPENDED", "REVISION",
		"PROBLEM")...)
}

func (s *clusterSummary) row(by clusterOptions, isWide bool) []term.Cell {
	texts := []string{s.Name}
	if by.by != "" {
		texts = append(texts, strconv.Itoa(s.Clusters))
	}
	texts = append(texts, strconv.Itoa(s.Objects))
	for _, state := range []reconcile.State{reconcile.StateReady, reconcile.StateFailed, reconcile.StateWaiting,
		reconcile.StateProgressing, reconcile.StateSuspended} {
		texts = append(texts, strconv.Itoa(s.States[state]))
	}
	revision := strings.Join(s.Revisions, ", ")
	if len(s.Revisions) > 1 && !isWide {
		revision = fmt.Sprintf("%d revisions", len(s.Revisions))
	}
	problem := s.Problem
	if !isWide {
		revision, problem = kind.ShortRevisions(revision), kind.ShortRevisions(problem)
	}
	row := term.Row(append(texts, revision, problem)...)
	if s.States[reconcile.StateFailed] > 0 {
		row[0].Colour = term.Red
	}
	return row
}
