// Package view keeps what the web UI shows: one small record for each object of ours, updated by watches. It never
// keeps whole objects, and it knows no user: the server filters what it returns.
package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	release "helm.sh/helm/v4/pkg/release/common"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// State is the state of an object in one word.
type State = reconcile.State

// States, worst first.
const (
	Failed      = reconcile.StateFailed
	Waiting     = reconcile.StateWaiting
	Progressing = reconcile.StateProgressing
	Suspended   = reconcile.StateSuspended
	Ready       = reconcile.StateReady
)

// States lists all states, worst first.
var States = reconcile.States

// Times are when the steps of a change ended, as far as they are known. They are those of the current revision.
type Times struct {
	Committed time.Time `json:"committed,omitzero"` // of a source from git
	Asked     time.Time `json:"asked,omitzero"`     // when a Receiver last asked for a reconcile
	Started   time.Time `json:"started,omitzero"`   // of the build
	Built     time.Time `json:"built,omitzero"`
	Applied   time.Time `json:"applied,omitzero"`
	Same      bool      `json:"same,omitempty"` // the revision built what was applied before

	interval time.Duration // of a source
}

// Bounds of an Item. 10,000 objects need little memory, also if their statuses are large.
const (
	maxMessage  = 600 // bytes
	maxText     = 253 // bytes
	maxRefs     = 50
	maxImages   = 1000 // bytes of all images of a commit
	maxWaiting  = 100
	maxRevision = 300 // bytes
	maxPast     = 10
	maxLabels   = 10 // that groups can be made of
)

// Item is what lists, graphs and counts show of an object.
type Item struct {
	ID         string      `json:"id"` // Kind/namespace/name
	Kind       string      `json:"kind"`
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	State      State       `json:"state"`
	Reason     string      `json:"reason,omitempty"`
	Message    string      `json:"message,omitempty"`
	Since      time.Time   `json:"since,omitzero"` // when Ready last changed
	Revision   string      `json:"revision,omitempty"`
	Pending    string      `json:"pending,omitempty"` // revision that waits at a gate
	Changed    time.Time   `json:"changed,omitzero"`  // when the revision was fetched, applied or released
	Sources    []string    `json:"sources,omitempty"` // IDs
	DependsOn  []string    `json:"dependsOn,omitempty"`
	Gates      []string    `json:"gates,omitempty"`
	Cluster    string      `json:"cluster,omitempty"`   // of what deploys to another one, by its credentials
	AppliedBy  string      `json:"appliedBy,omitempty"` // ID of the Kustomization or HelmRelease that applied it
	Triggers   []string    `json:"triggers,omitempty"`  // IDs of what a Receiver asks to reconcile
	Watches    []string    `json:"watches,omitempty"`   // IDs of objects that an Alert names
	Selects    []Selection `json:"selects,omitempty"`   // what else it is about
	Provider   string      `json:"provider,omitempty"`  // ID of the Provider of an Alert
	Objects    int         `json:"objects,omitempty"`   // number of objects in its inventory
	Subject    string      `json:"subject,omitempty"`   // first line of the commit message
	Author     string      `json:"author,omitempty"`    // of the commit
	URL        string      `json:"url,omitempty"`       // without credentials
	Image      string      `json:"image,omitempty"`     // that an ImagePolicy selected, or those of a commit
	Gate       *Gate       `json:"gate,omitempty"`      // only for kind Gate
	Generation int64       `json:"generation"`
	Attempted  string      `json:"attempted,omitempty"`  // revision of the last apply, of a Kustomization
	Labels     []string    `json:"labels,omitempty"`     // as key=value, without those of the toolkit
	Deleting   time.Time   `json:"deleting,omitzero"`    // when its deletion was requested
	Finalizers []string    `json:"finalizers,omitempty"` // that hold its deletion

	PendingSince time.Time `json:"pendingSince,omitzero"`
	Risk         string    `json:"risk,omitempty"`   // of the change that waits
	Change       string    `json:"change,omitempty"` // digest of the change that waits
	Held         string    `json:"held,omitempty"`   // which gates hold the change, and why
	HeldBy       []string  `json:"-"`                // IDs of these gates
	Reverted     *Reverted `json:"reverted,omitempty"`
	Past         []Past    `json:"past,omitempty"`        // the last revisions, oldest first
	PullRequest  string    `json:"pullRequest,omitempty"` // URL of the last one that it opened
	Times        *Times    `json:"times,omitempty"`

	version string // resourceVersion
	trace   string // ID of the trace of its artifact
	waits   bool   // for the health of what it applied
	checked bool   // the health of what it applies is checked
}

// Reverted is how an object went back to an earlier revision, as what gates had let through became unhealthy.
type Reverted struct {
	From   string    `json:"from"`
	To     string    `json:"to"`
	Gate   string    `json:"gate"` // ID
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"` // the person who made it go back; empty if a failure did
}

// Past is a revision that an object applied or released, and what came of it.
type Past struct {
	At       time.Time `json:"at"`
	Revision string    `json:"revision"`
	State    State     `json:"state"`
}

// remember records a revision that was applied before the ones that are recorded already.
func (i *Item) remember(at time.Time, revision string, state State) {
	if len(i.Past) < maxPast {
		i.Past = slices.Insert(i.Past, 0, Past{At: at, Revision: excerpt.Bytes(revision, maxRevision), State: state})
	}
}

// stateOfReason returns what came of a pass that ended with a reason of the Ready condition.
func stateOfReason(reason string) State {
	switch reason {
	case meta.ReconciliationSucceededReason:
		return Ready
	case meta.ProgressingReason:
		return Progressing
	}
	return Failed
}

// stateOfRelease returns what came of a release that Helm recorded with a status.
func stateOfRelease(status string) State {
	switch release.Status(status) {
	case release.StatusDeployed, release.StatusSuperseded:
		return Ready
	case release.StatusPendingInstall, release.StatusPendingUpgrade, release.StatusPendingRollback:
		return Progressing
	}
	return Failed
}

// ID returns the identity of an object in the UI.
func ID(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// Of returns the record of an object.
func Of(k *kind.Kind, o reconcile.Object) *Item {
	name := k.Name()
	i := &Item{
		ID: ID(name, o.GetNamespace(), o.GetName()), Kind: name, Namespace: o.GetNamespace(), Name: o.GetName(),
		Generation: o.GetGeneration(), version: o.GetResourceVersion(),
	}
	i.setState(o)
	i.setRelations(o)
	i.setContent(o)
	return i
}

// setState derives the state from the conditions.
func (i *Item) setState(o reconcile.Object) {
	ready := apimeta.FindStatusCondition(o.CommonStatus().Conditions, reconcile.TypeReady)
	if ready != nil {
		i.Reason, i.Since = excerpt.Bytes(ready.Reason, maxText), ready.LastTransitionTime.Time
		i.Message = excerpt.Bytes(ready.Message, maxMessage)
	} else {
		i.Message = "not reconciled yet"
	}
	i.State = reconcile.StateOf(o)
	healthy := apimeta.FindStatusCondition(o.CommonStatus().Conditions, meta.HealthyCondition)
	i.waits = healthy != nil && healthy.Status == metav1.ConditionUnknown && i.State == Progressing
	i.checked = healthy != nil
	if at := o.GetDeletionTimestamp(); at != nil {
		i.Deleting = at.Time
		for _, f := range o.GetFinalizers()[:min(len(o.GetFinalizers()), maxRefs)] {
			i.Finalizers = append(i.Finalizers, excerpt.Bytes(f, maxText))
		}
	}
}

// setRelations records what the object is built from, waits for, is held by and was applied by.
func (i *Item) setRelations(o reconcile.Object) {
	for _, r := range lineage.Sources(o) {
		i.Sources = append(i.Sources, ID(r.Kind, cmp.Or(r.Namespace, o.GetNamespace()), r.Name))
	}
	for _, r := range lineage.Dependencies(o) {
		i.DependsOn = append(i.DependsOn, ID(r.Kind, r.Namespace, r.Name))
	}
	if g, ok := o.(reconcile.Gated); ok {
		i.setHeld(o, g.Held())
	}
	if cluster := lineage.Cluster(o); cluster != lineage.ThisCluster {
		i.Cluster = excerpt.Bytes(cluster, maxText)
	}
	if m := lineage.ManagerOf(o); m != nil {
		i.AppliedBy = ID(m.Kind, m.Namespace, m.Name)
	}
	i.setLabels(o.GetLabels())
	for _, refs := range []*[]string{&i.Sources, &i.DependsOn, &i.Gates} {
		*refs = (*refs)[:min(len(*refs), maxRefs)]
	}
}

// setAlert records where the events of an Alert come from and go to.
func (i *Item) setAlert(o *notificationv1.Alert) {
	i.Provider = ID(notificationv1.ProviderKind, o.Namespace, o.Spec.ProviderRef.Name)
	for _, s := range o.Spec.EventSources[:min(len(o.Spec.EventSources), maxRefs)] {
		namespace := cmp.Or(s.Namespace, o.Namespace)
		if s.Name == "*" {
			i.Selects = append(i.Selects, Selection{Kind: s.Kind, Namespace: namespace, Labels: s.MatchLabels})
		} else if s.Name != "" {
			i.Watches = append(i.Watches, ID(s.Kind, namespace, s.Name))
		}
	}
}

// Selection is what an Alert is about without its names.
type Selection struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels,omitempty"`
}

func (s Selection) contains(i *Item) bool {
	if i.Kind != s.Kind || i.Namespace != s.Namespace {
		return false
	}
	for key, value := range s.Labels {
		if !slices.Contains(i.Labels, key+"="+value) {
			return false
		}
	}
	return true
}

// setLabels records the first labels by key, without those that say what applied the object.
func (i *Item) setLabels(all map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		domain, _, _ := strings.Cut(key, "/")
		if !lineage.IsToolkitGroup(domain) && len(i.Labels) < maxLabels {
			i.Labels = append(i.Labels, key+"="+all[key])
		}
	}
}

// Label returns the value of a label; empty if the object does not have it.
func (i *Item) Label(key string) string {
	for _, l := range i.Labels {
		if k, value, _ := strings.Cut(l, "="); k == key {
			return value
		}
	}
	return ""
}

// setHeld records the gates of an object, what waits at them, and how they made it go back.
func (i *Item) setHeld(o reconcile.Object, h *meta.Held) {
	for _, gate := range h.Gates {
		i.Gates = append(i.Gates, gatingv1.GateKind+"/"+gate)
	}
	for _, by := range h.HeldBy[:min(len(h.HeldBy), maxRefs)] {
		i.HeldBy = append(i.HeldBy, gatingv1.GateKind+"/"+by.Gate)
	}
	if p := h.Pending; p != nil {
		i.Pending, i.Risk = excerpt.Bytes(p.Revision, maxRevision), excerpt.Bytes(p.Risk, maxText)
		i.Change, i.Held = excerpt.Bytes(p.Change, maxText), excerpt.Bytes(HeldBecause(o), maxMessage)
		if p.Since != nil {
			i.PendingSince = p.Since.Time
		}
		i.setImages(p.Images)
	}
	if r := h.Reverted; r != nil {
		i.Reverted = &Reverted{From: excerpt.Bytes(r.From, maxRevision), To: excerpt.Bytes(r.To, maxRevision),
			Gate: gatingv1.GateKind + "/" + excerpt.Bytes(r.Gate, maxText), Since: r.Since.Time,
			Reason: excerpt.Bytes(r.Reason, maxMessage), By: excerpt.Bytes(r.By, maxText)}
	}
}

// HeldBecause returns which gates hold the change of an object and why; empty if none does.
func HeldBecause(o reconcile.Object) string {
	if c := reconcile.HeldCondition(o); c != nil {
		return c.Message
	}
	return ""
}

// setContent records the revision of the object and what its kind shows in addition.
func (i *Item) setContent(o reconcile.Object) {
	switch o := o.(type) {
	case *kustomizev1.Kustomization:
		i.Revision = o.Status.LastAppliedRevision
		i.Attempted = excerpt.Bytes(o.Status.LastAttemptedRevision, maxRevision)
		if o.Status.Inventory != nil {
			i.Objects = len(o.Status.Inventory.Entries)
		}
		for _, h := range o.Status.History {
			i.remember(h.LastReconciled.Time, h.Metadata["revision"], stateOfReason(h.LastReconciledStatus))
		}
		i.setApplied(o)
	case *helmv2.HelmRelease:
		i.Revision = o.Status.LastAttemptedRevision
		if o.Status.Inventory != nil {
			i.Objects = len(o.Status.Inventory.Entries)
		}
		for _, h := range o.Status.History {
			i.remember(h.LastDeployed.Time, h.ChartVersion, stateOfRelease(h.Status))
		}
		if len(o.Status.History) > 0 {
			i.Revision, i.Changed = o.Status.History[0].ChartVersion, o.Status.History[0].LastDeployed.Time
		}
	case *controlplanev1.ResourceSet:
		i.Revision = o.Status.LastAppliedRevision
		if o.Status.Inventory != nil {
			i.Objects = len(o.Status.Inventory.Entries)
		}
		for _, h := range o.Status.History {
			i.remember(h.LastReconciled.Time, h.Digest, stateOfReason(h.LastReconciledStatus))
		}
	case *imagev1.ImagePolicy:
		if r := o.Status.LatestRef; r != nil {
			i.Image, i.Revision = excerpt.Bytes(r.Name, maxText), r.Tag
		}
	case *imagev1.ImageUpdateAutomation:
		i.Revision = o.Status.LastPushCommit
		i.PullRequest = excerpt.Bytes(o.Status.PullRequest, maxText)
		if o.Status.LastPushTime != nil {
			i.Changed = o.Status.LastPushTime.Time
		}
		var images []string
		for _, name := range slices.Sorted(maps.Keys(o.Status.ObservedPolicies)) {
			images = append(images, o.Status.ObservedPolicies[name].String())
		}
		i.setImages(images)
	case *imagev1alpha1.ImageUpdateJob:
		i.Revision, i.Subject, i.Author = o.Status.Commit, excerpt.Bytes(o.Spec.Reason, maxText),
			excerpt.Bytes(o.Spec.Author, maxText)
		i.PullRequest = excerpt.Bytes(o.Status.PullRequest, maxText)
		if o.Status.CompletionTime != nil {
			i.Changed = o.Status.CompletionTime.Time
		}
		i.setImages(o.Spec.Images)
	case *gatingv1.Gate:
		i.Gate = gateOf(o)
	case *notificationv1.Alert:
		i.setAlert(o)
	case *notificationv1.Receiver:
		i.Triggers = triggersOf(o)
	}
	if s, ok := o.(sourcev1.Source); ok && s.GetArtifact() != nil {
		a := s.GetArtifact()
		i.Revision, i.Changed = a.Revision, a.LastUpdateTime.Time
		i.trace = tracing.ID(a.Metadata[meta.TraceKey])
		i.Subject = excerpt.Bytes(a.Metadata[meta.CommitSubjectKey], maxText)
		i.Author = excerpt.Bytes(a.Metadata[meta.CommitAuthorKey], maxText)
		i.setFetched(o, a)
	}
	i.Revision = excerpt.Bytes(i.Revision, maxRevision)
	i.URL = excerpt.Bytes(lineage.URL(o), maxText)
}

// setApplied records when a Kustomization was built and applied.
func (i *Item) setApplied(o *kustomizev1.Kustomization) {
	if len(o.Status.History) == 0 {
		return
	}
	for _, h := range o.Status.History {
		if h.Metadata["revision"] == i.Revision {
			i.Subject = excerpt.Bytes(h.Metadata[meta.CommitSubjectKey], maxText)
			i.Author = excerpt.Bytes(h.Metadata[meta.CommitAuthorKey], maxText)
			break
		}
	}
	h := o.Status.History[0]
	i.Changed = h.FirstReconciled.Time
	i.Times = &Times{Same: h.LastReconciledStatus == meta.ReconciliationSucceededReason &&
		h.Metadata["revision"] != o.Status.LastAppliedRevision}
	if t := h.Times; t != nil {
		i.Times.Started, i.Times.Built = t.Started.Time, t.Built.Time
		if t.Applied != nil {
			i.Times.Applied, i.Changed = t.Applied.Time, t.Applied.Time
		}
	}
}

// setFetched records when the commit of a source was made, and when a webhook asked for it.
func (i *Item) setFetched(o reconcile.Object, a *meta.Artifact) {
	t := Times{interval: o.Schedule().Interval}
	if at, err := time.Parse(time.RFC3339, a.Metadata[meta.CommitTimeKey]); err == nil {
		t.Committed = at.UTC()
	}
	for _, f := range o.GetManagedFields() {
		if f.Manager == meta.ReceiverFieldOwner && f.Time != nil {
			t.Asked = f.Time.UTC()
		}
	}
	i.Times = &t
}

// triggersOf returns the IDs of what a Receiver asks to reconcile; the name can be *.
func triggersOf(o *notificationv1.Receiver) []string {
	var ids []string
	for _, r := range o.Spec.Resources[:min(len(o.Spec.Resources), maxRefs)] {
		ids = append(ids, ID(r.Kind, cmp.Or(r.Namespace, o.Namespace), r.Name))
	}
	return ids
}

// setImages records the images of a commit, or of a change that waits.
func (i *Item) setImages(images []string) {
	if len(images) == 0 {
		return
	}
	if i.Image != "" {
		images = append([]string{i.Image}, images...)
	}
	i.Image = excerpt.Bytes(strings.Join(images[:min(len(images), maxRefs)], " "), maxImages)
}

// Matches reports whether the object contains all words of a search, which is in lower case.
func (i *Item) Matches(search string) bool {
	image := i.Image
	if i.Kind == imagev1.ImagePolicyKind {
		image += ":" + i.Revision
	}
	text := strings.ToLower(strings.Join([]string{i.ID, i.Revision, i.Pending, i.Message, image, i.URL, i.Subject,
		i.PullRequest, string(i.State)}, " "))
	return !slices.ContainsFunc(strings.Fields(search), func(w string) bool { return !strings.Contains(text, w) })
}
