package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func everything(*Item) bool { return true }

func git(name string, state State) *Item {
	return &Item{ID: ID("GitRepository", "team", name), Kind: "GitRepository", Namespace: "team", Name: name,
		State: state, Revision: "main@sha1:" + commit}
}

func app(name string, state State, sources ...string) *Item {
	return &Item{ID: ID("Kustomization", "team", name), Kind: "Kustomization", Namespace: "team", Name: name,
		State: state, Sources: sources, Revision: "main@sha1:" + commit}
}

func TestDependentsOfOneFailedSourceAreOneProblem(t *testing.T) {
	items := []*Item{git("repo", Failed)}
	for n := range 10 {
		items = append(items, app(fmt.Sprintf("app-%d", n), Failed, items[0].ID))
	}
	behind := app("behind", Waiting)
	behind.DependsOn = []string{ID("Kustomization", "team", "app-0")}
	alone := app("alone", Failed)
	items = append(items, behind, alone, app("fine", Ready, items[0].ID))

	o := NewOverview(items, time.Now())
	if len(o.Problems) != 2 {
		t.Fatalf("got %d problems, want 2: %+v", len(o.Problems), o.Problems)
	}
	if p := o.Problems[0]; p.Item != items[0] || p.Count != 11 {
		t.Errorf("the first problem is %s with %d dependents, want the source with 11", p.Item.ID, p.Count)
	}
	if p := o.Problems[1]; p.Item != alone || p.Count != 0 {
		t.Errorf("the second problem is %s with %d dependents, want the object that fails by itself", p.Item.ID,
			p.Count)
	}
	if o.Counts[Failed] != 12 || o.Counts[Waiting] != 1 || o.Counts[Ready] != 1 || o.Total != 14 {
		t.Errorf("the counts are %v of %d", o.Counts, o.Total)
	}
}

func TestCyclesEnd(t *testing.T) {
	a, b := app("a", Failed), app("b", Failed)
	a.DependsOn, b.DependsOn = []string{b.ID}, []string{a.ID}
	self := app("self", Waiting)
	self.Sources = []string{self.ID}
	items := []*Item{a, b, self}
	if got := problems(items); len(got) == 0 {
		t.Error("a cycle of failures is not reported")
	}
	if g := NewGraph(items, a.ID); len(g.Nodes) != 2 {
		t.Errorf("the graph around a cycle has %d nodes, want 2", len(g.Nodes))
	}
	if len(Why(items, "team").Chains) != 3 {
		t.Error("an object in a cycle has no chain")
	}
}

func TestGraphShowsWhatIsUpstreamAndDownstream(t *testing.T) {
	repo, other := git("repo", Ready), git("other", Ready)
	top, below := app("top", Ready, repo.ID), app("below", Ready, ID("GitRepository", "team", "gone"))
	below.AppliedBy = top.ID
	door := &Item{ID: ID("Gate", "team", "door"), Kind: "Gate", Namespace: "team", Name: "door", State: Ready}
	below.Gates = []string{door.ID}
	aside := app("aside", Ready, other.ID)
	g := NewGraph([]*Item{repo, other, top, below, aside, door}, top.ID)
	var ids []string
	for _, n := range g.Nodes {
		ids = append(ids, n.Name)
	}
	if want := []string{"repo", "top", "below", "door"}; !slices.Equal(ids, want) {
		t.Errorf("the nodes are %v, want %v", ids, want)
	}
	if want := []string{ID("GitRepository", "team", "gone")}; !slices.Equal(g.Missing, want) {
		t.Errorf("missing are %v, want %v", g.Missing, want)
	}
}

// TestAlertsAreConnected has one that selects by kind, namespace and label, and one that selects too much to be shown.
func TestAlertsAreConnected(t *testing.T) {
	var items []*Item
	for n := range maxSelected + 1 {
		items = append(items, app(fmt.Sprintf("app-%d", n), Ready))
	}
	items[3].Labels = []string{"team=a"}
	other := git("repo", Ready)
	other.Labels = items[3].Labels
	some, all := &Item{ID: ID("Alert", "team", "some")}, &Item{ID: ID("Alert", "team", "all")}
	all.Selects = []Selection{{Kind: items[3].Kind, Namespace: items[3].Namespace}}
	some.Selects = []Selection{{Kind: items[3].Kind, Namespace: items[3].Namespace,
		Labels: map[string]string{"team": "a"}}}
	g := NewGraph(append(items, other, some, all), "")
	if want := []Edge{{From: items[3].ID, To: some.ID, Relation: Notifies}}; !slices.Equal(g.Edges, want) {
		t.Errorf("the edges are %v, want %v", g.Edges, want)
	}
}

func TestGraphIsBounded(t *testing.T) {
	var items []*Item
	for n := range MaxNodes + 5 {
		items = append(items, app(fmt.Sprintf("app-%05d", n), Ready))
	}
	if g := NewGraph(items, ""); len(g.Nodes) != MaxNodes || g.Omitted != 5 {
		t.Errorf("got %d nodes and %d omitted", len(g.Nodes), g.Omitted)
	}
}

func TestWhyNamesTheStepThatBlocks(t *testing.T) {
	repo := git("repo", Ready)
	gate := &Item{ID: ID("Gate", "team", "release"), Kind: "Gate", Namespace: "team", Name: "release", State: Ready,
		Gate: &Gate{Why: "0 of 2 approvals"}}
	waits := app("waits", Waiting, repo.ID)
	waits.Revision, waits.Pending, waits.Gates = "main@sha1:"+strings.Repeat("f", 40), repo.Revision, []string{gate.ID}
	failed := app("failed", Failed, repo.ID)
	failed.Message = "quota"
	live := app("live", Ready, repo.ID)
	unfetched := app("unfetched", Ready, ID("GitRepository", "team", "gone"))
	unfetched.Revision = ""
	items := []*Item{repo, gate, waits, failed, live, unfetched}

	steps := map[string]string{}
	for _, c := range Why(items, commit[:8]).Chains {
		for _, s := range c.Steps {
			if s.State == Blocked || s.State == Current {
				steps[c.Target.Name] = s.Name
			}
		}
		if c.Live != (c.Target == live) {
			t.Errorf("%s is live: %t", c.Target.Name, c.Live)
		}
	}
	want := map[string]string{"waits": "gate", "failed": "apply"}
	if fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("the blocking steps are %v, want %v", steps, want)
	}
	if c := Why(items, "unfetched").Chains; len(c) != 1 || c[0].Steps[0].State != Blocked {
		t.Errorf("an object without a source has the chain %+v", c)
	}
	if a := Why(items, "abcdef1"); len(a.Chains) != 0 || !strings.Contains(a.Note, "No source has fetched") {
		t.Errorf("the answer for an unknown commit is %+v", a)
	}
}

func TestStateFollowsConditions(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "text"}
	}
	ready := condition(reconcile.TypeReady, metav1.ConditionTrue, "Succeeded")
	failed := condition(reconcile.TypeReady, metav1.ConditionFalse, "BuildFailed")
	dependency := condition(reconcile.TypeReady, metav1.ConditionFalse, meta.DependencyNotReadyReason)
	held := condition(meta.ApprovedCondition, metav1.ConditionFalse, "GateClosed")
	reconciling := condition(reconcile.TypeReconciling, metav1.ConditionTrue, "Progressing")
	for name, test := range map[string]struct {
		suspended  bool
		pending    *meta.Pending
		conditions []metav1.Condition
		want       State
	}{
		"new":        {want: Progressing},
		"ready":      {conditions: []metav1.Condition{ready}, want: Ready},
		"failed":     {conditions: []metav1.Condition{failed}, want: Failed},
		"dependency": {conditions: []metav1.Condition{dependency}, want: Waiting},
		"held": {conditions: []metav1.Condition{ready, held}, pending: &meta.Pending{Revision: "v2"},
			want: Waiting},
		"closed gate": {conditions: []metav1.Condition{ready, held}, want: Ready}, // no change waits at it
		"reconciling": {conditions: []metav1.Condition{ready, reconciling}, want: Progressing},
		"suspended":   {suspended: true, conditions: []metav1.Condition{ready}, want: Suspended},
	} {
		ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		ks.Spec.Suspend, ks.Status.Conditions, ks.Status.Pending = test.suspended, test.conditions, test.pending
		if got := Of(kind.ByName("Kustomization"), ks).State; got != test.want {
			t.Errorf("%s: the state is %s, want %s", name, got, test.want)
		}
	}
}

func TestItemIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "g"}}
	for range 10_000 {
		g.Status.Waiting = append(g.Status.Waiting, gatingv1.WaitingObject{Kind: "Kustomization", Name: "a",
			Revision: long})
	}
	g.Status.Conditions = []metav1.Condition{{Type: reconcile.TypeReady, Reason: long, Message: long}}
	i := Of(kind.ByName("Gate"), g)
	if size := len(i.Message) + len(i.Reason); size > 2*maxMessage {
		t.Errorf("the texts have %d bytes", size)
	}
	if n := len(i.Gate.Waiting); n > maxWaiting || len(i.Gate.Waiting[0].Revision) > maxRevision+10 {
		t.Errorf("%d waiting objects are kept, the first with %d bytes", n, len(i.Gate.Waiting[0].Revision))
	}
}

func TestSubscriptionKeepsTheLastChangeOfEachItem(t *testing.T) {
	m := NewModel()
	s := m.Subscribe()
	defer s.Close()
	for n := range 100 {
		i := app("a", Ready)
		i.version = fmt.Sprint(n)
		m.put(i)
		m.put(i) // a relist changes nothing
	}
	b := app("b", Failed)
	m.put(b)
	m.remove(b.ID)
	<-s.Ready()
	changes := s.Take()
	if len(changes) != 2 || changes[0].Item.version != "99" || changes[1].Item != nil {
		t.Errorf("the changes are %+v", changes)
	}
	hidden := func(i *Item) bool { return i.Name != "b" }
	if changes[1].VisibleTo(hidden) || !changes[0].VisibleTo(hidden) {
		t.Error("the deletion of a hidden item is visible, or a visible one is hidden")
	}
	if m.Get(b.ID, everything) != nil || m.Get(ID("Kustomization", "team", "a"), hidden) == nil {
		t.Error("the model has an item that was removed, or not one that was put")
	}
}

func TestChangesAreSearchedByImage(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	job := &imagev1alpha1.ImageUpdateJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "release"}}
	job.Spec.Images = []string{"registry.example/web:1.4.2"}
	job.Spec.Reason, job.Status.Commit = "fixes the login", commit
	job.Status.CompletionTime = &meta.Time{Time: time.Now()}
	live := app("web", Ready)
	live.Revision, live.Changed = "main@sha1:"+commit, time.Now()
	waiting := app("held", Waiting)
	waiting.Pending = "main@sha1:" + strings.Repeat("f", 40)
	items := []*Item{Of(kind.ByName("ImageUpdateJob"), job), live, waiting}
	for search, want := range map[string]int{"": 2, "web:1.4.2": 1, "web:1.4.2 kustomization/team/web": 1, "login": 1,
		"held": 1, "web:9": 0} {
		got := Changes(items, search)
		if len(got) != want {
			t.Errorf("a search for %q finds %d changes, want %d", search, len(got), want)
		}
		if search == "web:1.4.2" && (len(got[0].Live) != 1 || len(got[0].Sources) != 1 ||
			got[0].Subject != "fixes the login") {
			t.Errorf("the commit has %+v", got[0])
		}
	}
}
