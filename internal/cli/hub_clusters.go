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

	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// printHub prints a row for each cluster of a hub, or for each value of a label. Clusters that are only inputs of
// ResourceSets are in the same list.
func printHub(ctx context.Context, e *env, o getOptions, by clusterOptions, list *fleet.List) error {
	all := list.Clusters
	if by.hub.tokenFile == "" { // the kubeconfig is for the cluster of the hub
		inputs, err := inputClusters(ctx, e)
		if err != nil {
			e.Warn("clusters that are only inputs of ResourceSets are not listed: %v", err)
		}
		all = addInputs(all, inputs)
	}
	if len(all) == 0 {
		e.Step("the hub knows no cluster; register one with sluice cluster join")
	}
	return printClusters(e, summarizeHub(all, by.by), o, by)
}

// onlyInput is the status of a cluster that is an input of ResourceSets, and not registered at the hub.
const onlyInput fleet.Status = "OnlyInput"

// inputClusters returns the clusters that ClusterInputProviders export. The hub may not read them, but the user may.
func inputClusters(ctx context.Context, e *env) ([]fleet.Cluster, error) {
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := e.WithTimeout(ctx)
	defer cancel()
	providers := &inputsv1.ClusterInputProviderList{}
	if err := c.List(ctx, providers); apimeta.IsNoMatchError(err) {
		return nil, nil // the hub runs without controllers
	} else if err != nil {
		return nil, cluster.Explain("cannot list ClusterInputProviders", err)
	}
	var all []fleet.Cluster
	for _, p := range providers.Items {
		for _, input := range p.Status.ExportedInputs {
			var of struct {
				Name   string
				Labels map[string]string
			}
			raw, err := json.Marshal(input)
			if err == nil {
				err = json.Unmarshal(raw, &of)
			}
			if err != nil {
				return nil, fmt.Errorf("an input of ClusterInputProvider '%s/%s' has no name: %w", p.Namespace, p.Name,
					err)
			}
			all = append(all, fleet.Cluster{Name: cmp.Or(of.Labels[fleet.ClusterLabel], of.Name), Labels: of.Labels,
				Status: onlyInput})
		}
	}
	return all, nil
}

// addInputs adds the clusters that the hub does not know, each once.
func addInputs(all, inputs []fleet.Cluster) []fleet.Cluster {
	known := map[string]bool{}
	for _, c := range all {
		known[c.Name] = true
	}
	for _, c := range inputs {
		if !known[c.Name] {
			known[c.Name] = true
			all = append(all, c)
		}
	}
	return all
}

// summarizeHub groups clusters by a label, or not at all, and sorts the groups: worst first.
func summarizeHub(clusters []fleet.Cluster, label string) []*clusterSummary {
	groups := map[string]*clusterSummary{}
	for _, c := range clusters {
		name := c.Name
		if label != "" {
			name = cmp.Or(c.Labels[label], "none")
		}
		s := groups[name]
		if s == nil {
			s = &clusterSummary{Name: name, States: map[reconcile.State]int{}, worst: len(reconcile.States)}
			groups[name] = s
		}
		s.addCluster(c)
	}
	all := make([]*clusterSummary, 0, len(groups))
	for _, s := range groups {
		slices.Sort(s.Revisions)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *clusterSummary) int {
		return cmp.Or(cmp.Compare(a.worst, b.worst), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (s *clusterSummary) addCluster(c fleet.Cluster) {
	s.Clusters++
	rank, problem := len(reconcile.States), silent(c)
	if problem != "" {
		rank = -1
		s.Silent++
	}
	if c.Status == onlyInput {
		rank, problem = len(reconcile.States)-1, "only an input of ResourceSets: it does not report"
		s.Inputs++
	}
	if c.Summary != nil {
		for state, n := range c.Summary.Counts {
			s.Objects += n
			s.States[reconcile.State(state)] += n
		}
		if len(c.Summary.Revisions) > 0 && !slices.Contains(s.Revisions, c.Summary.Revisions[0].Revision) {
			s.Revisions = append(s.Revisions, c.Summary.Revisions[0].Revision)
		}
		if problem == "" && len(c.Summary.Problems) > 0 {
			p := c.Summary.Problems[0]
			rank = slices.Index(reconcile.States, reconcile.State(p.State))
			problem = p.Object + ": " + term.OneLine(p.Message)
		}
	}
	if rank < s.worst {
		s.worst, s.Problem = rank, problem
	}
}

// progress is how far a commit has come in a cluster.
type progress struct {
	Cluster  string    `json:"cluster"`
	State    string    `json:"state"` // live, moving, waiting, failed, absent or silent
	Source   string    `json:"source,omitempty"`
	Revision string    `json:"revision,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Text     string    `json:"text,omitempty"`
}

// progressStates are the states of a commit, worst first.
var progressStates = []string{"failed", "silent", "waiting", "moving", "absent", "live"}

// whyClusters says how far a commit has come in the clusters of a hub.
func (w *whyCommand) whyClusters(ctx context.Context, query string) error {
	list, err := w.hub.clusters(ctx, w.env)
	if err != nil {
		return err
	}
	all, subject := progressOf(list, strings.TrimSpace(query))
	if w.output != "" {
		return w.printAs(w.output, map[string]any{"commit": query, "subject": subject, "clusters": all})
	}
	counts := map[string]int{}
	for _, p := range all {
		counts[p.State]++
	}
	if counts["absent"]+counts["silent"] == len(all) {
		return fmt.Errorf("no cluster of the hub has a revision with %q: it is not fetched yet, or newer revisions "+
			"replaced it everywhere", query)
	}
	var parts []string
	for _, state := range progressStates {
		if n := counts[state]; n > 0 && state != "live" {
			parts = append(parts, fmt.Sprintf("%s %d", state, n))
		}
	}
	mark := w.Out.Paint(term.Green, "✔")
	if len(parts) > 0 {
		mark = w.Out.Paint(term.Yellow, "►")
		parts = append([]string{""}, parts...)
	}
	w.text("", mark, fmt.Sprintf("%s %s: live in %d of %d clusters%s", query, subject, counts["live"], len(all),
		strings.Join(parts, ", ")))
	rows := [][]term.Cell{term.Row("CLUSTER", "STATE", "AGE", "WHY")}
	for _, p := range all {
		if p.State != "live" {
			age := ""
			if !p.Since.IsZero() {
				age = formatAge(list.Time.Sub(p.Since))
			}
			rows = append(rows, term.Row(p.Cluster, p.State, age, kind.ShortRevisions(term.OneLine(p.Text))))
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return printCut(w.env, rows)
}

// printCut prints a table whose last column is cut at the width of the screen.
func printCut(e *env, rows [][]term.Cell) error {
	fitted, room := e.Out.FitScreen(rows, 1)
	for _, row := range fitted {
		if room > 0 {
			row[len(row)-1].Text = term.Cut(row[len(row)-1].Text, room)
		}
	}
	return term.NewTable(e.Out).Print(fitted...)
}

// progressOf returns how far a commit has come in each cluster, worst first, and its subject.
func progressOf(list *fleet.List, commit string) (all []progress, subject string) {
	for _, c := range list.Clusters {
		p := progress{Cluster: c.Name, State: "absent", Text: "no source has this commit"}
		if c.Summary != nil {
			for _, r := range c.Summary.Revisions {
				if found, ok := progressAt(c.Summary, r, commit); ok {
					p = found
					p.Cluster = c.Name
					subject = cmp.Or(subject, r.Subject)
					break
				}
			}
		}
		if text := silent(c); text != "" {
			p.State, p.Text, p.Since = "silent", text, c.Received
		}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b progress) int {
		return cmp.Compare(slices.Index(progressStates, a.State), slices.Index(progressStates, b.State))
	})
	return all, subject
}

// progressAt returns how far a commit has come of a source, and whether the source has it.
func progressAt(s *fleet.Summary, r fleet.Revision, commit string) (progress, bool) {
	p := progress{Source: r.Source, Revision: r.Revision, Since: r.Since}
	if !hasCommit(r.Revision, commit) {
		return p, false
	}
	if r.Current == r.Objects && !r.Since.IsZero() {
		p.State = "live"
		return p, true
	}
	p.State, p.Since = "moving", r.Fetched
	p.Text = fmt.Sprintf("%d of %d objects of %s are Ready at it", r.Current, r.Objects, r.Source)
	for _, g := range s.Changes {
		if hasCommit(g.Revision, commit) {
			p.State, p.Since, p.Text = "waiting", g.Since, g.Object+" at "+g.Gate+": "+g.Message
			return p, true
		}
	}
	if len(s.Problems) > 0 && s.Problems[0].State == string(reconcile.StateFailed) {
		f := s.Problems[0]
		p.State, p.Since, p.Text = "failed", f.Since, f.Object+": "+f.Message
	}
	return p, true
}

// hasCommit reports whether a revision is a commit, which may be abbreviated.
func hasCommit(revision, commit string) bool {
	name, digest, _ := strings.Cut(revision, "@")
	_, hash, _ := strings.Cut(digest, ":")
	return commit != "" && (revision == commit || name == commit || digest == commit ||
		len(commit) >= 4 && strings.HasPrefix(hash, commit))
}

// inboxEntry is a change that waits at a gate of a cluster.
type inboxEntry struct {
	Cluster string `json:"cluster"`
	fleet.Change
}

// printInbox lists the changes that wait at the gates of all clusters of a hub.
func printInbox(ctx context.Context, e *env, hub hubOptions, output string) error {
	list, err := hub.clusters(ctx, e)
	if err != nil {
		return err
	}
	all := []inboxEntry{}
	for _, c := range list.Clusters {
		if c.Summary != nil {
			for _, g := range c.Summary.Changes {
				all = append(all, inboxEntry{c.Name, g})
			}
			if n := c.Summary.Omitted.Changes; n > 0 {
				e.Warn("cluster '%s' has %d more changes that wait", c.Name, n)
			}
		}
		if text := silent(c); text != "" {
			e.Warn("cluster '%s' %s", c.Name, strings.Replace(text, "silent", "is silent", 1))
		}
	}
	slices.SortStableFunc(all, func(a, b inboxEntry) int { return a.Since.Compare(b.Since) })
	if output != "" {
		return e.printAs(output, map[string]any{"changes": all})
	}
	if len(all) == 0 {
		e.Step("no change waits at a gate of a cluster")
		return nil
	}
	rows := [][]term.Cell{term.Row("CLUSTER", "GATE", "OBJECT", "REVISION", "AGE", "APPROVALS", "WHY")}
	for _, g := range all {
		approvals := ""
		if g.Required > 0 {
			approvals = fmt.Sprintf("%d/%d", g.Approved, g.Required)
		}
		rows = append(rows, term.Row(g.Cluster, strings.TrimPrefix(g.Gate, "Gate/"), g.Object,
			kind.ShortRevisions(g.Revision), formatAge(list.Time.Sub(g.Since)), approvals, term.OneLine(g.Message)))
	}
	return printCut(e, rows)
}
