package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	notificationv1beta3 "github.com/sluice-gitops/sluice/api/notification/v1beta3"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// kind is what the commands know of a kind; all else follows. A new kind is one more entry in kinds.
type kind struct {
	words   []string // how people name it, the first for messages
	plural  string   // the word of `sluice get`
	parent  string   // the word that stands before it: "source" for sources
	new     func() reconcile.Object
	list    func() client.ObjectList
	columns []column // between NAME and READY
	// the condition whose message is shown of what is Ready; "": Ready itself
	tells string
	once  bool // it runs once, and is not reconciled again
	// others make it and keep it: it is neither reconciled nor deleted by hand
	passive bool
	edges   bool                                        // only changes reconcile it: it has no interval
	suspend func(reconcile.Object, bool)                // nil: it cannot be suspended
	source  func(reconcile.Object) meta.ObjectReference // what it is built from; nil: from no source
	create  func() maker                                // nil: `sluice create` does not make it
	makes   bool                                        // it keeps an inventory of what it made
	losses  string                                      // what goes with an object that is deleted
}

// column of a table.
type column struct {
	head  string
	value func(o reconcile.Object, wide bool) string
}

var kinds = []*kind{
	{
		words: []string{"git", "gitrepository", "gitrepositories", "gitrepo"}, plural: "git", parent: "source",
		new:     func() reconcile.Object { return &sourcev1.GitRepository{} },
		list:    func() client.ObjectList { return &sourcev1.GitRepositoryList{} },
		columns: []column{revision(artifactRevision), suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*sourcev1.GitRepository).Spec.Suspend = s },
		create:  func() maker { return &createGit{} },
		losses:  "its artifact",
	},
	{
		words: []string{"oci", "ocirepository", "ocirepositories", "ocirepo"}, plural: "oci", parent: "source",
		new:     func() reconcile.Object { return &sourcev1.OCIRepository{} },
		list:    func() client.ObjectList { return &sourcev1.OCIRepositoryList{} },
		columns: []column{revision(artifactRevision), suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*sourcev1.OCIRepository).Spec.Suspend = s },
		create:  func() maker { return &createOCI{} },
		losses:  "its artifact",
	},
	{
		words: []string{"helm", "helmrepository", "helmrepositories", "helmrepo"}, plural: "helm", parent: "source",
		new:     func() reconcile.Object { return &sourcev1.HelmRepository{} },
		list:    func() client.ObjectList { return &sourcev1.HelmRepositoryList{} },
		columns: []column{revision(artifactRevision), suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*sourcev1.HelmRepository).Spec.Suspend = s },
		create:  func() maker { return &createHelm{} },
		losses:  "its artifact",
	},
	{
		words: []string{"chart", "helmchart", "helmcharts", "hc"}, plural: "chart", parent: "source",
		new:     func() reconcile.Object { return &sourcev1.HelmChart{} },
		list:    func() client.ObjectList { return &sourcev1.HelmChartList{} },
		columns: []column{revision(artifactRevision), suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*sourcev1.HelmChart).Spec.Suspend = s },
		source: func(o reconcile.Object) meta.ObjectReference {
			r := o.(*sourcev1.HelmChart).Spec.SourceRef
			return meta.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name}
		},
		create: func() maker { return &createChart{} },
		losses: "its artifact",
	},
	{
		words: []string{"bucket", "buckets"}, plural: "bucket", parent: "source",
		new:     func() reconcile.Object { return &sourcev1.Bucket{} },
		list:    func() client.ObjectList { return &sourcev1.BucketList{} },
		columns: []column{revision(artifactRevision), suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*sourcev1.Bucket).Spec.Suspend = s },
		create:  func() maker { return &createBucket{} },
		losses:  "its artifact",
	},
	{
		words: []string{"external", "externalartifact", "externalartifacts", "ea"}, plural: "external",
		parent:  "source",
		new:     func() reconcile.Object { return &sourcev1.ExternalArtifact{} },
		list:    func() client.ObjectList { return &sourcev1.ExternalArtifactList{} },
		columns: []column{revision(artifactRevision), {"MADE BY", madeBy}},
		passive: true,
		source: func(o reconcile.Object) meta.ObjectReference {
			return *cmp.Or(o.(*sourcev1.ExternalArtifact).Spec.SourceRef, &meta.ObjectReference{})
		},
	},
	{
		words:  []string{"generator", "generators", "artifactgenerator", "artifactgenerators", "ag"},
		plural: "generators", parent: "artifact",
		new:     func() reconcile.Object { return &extensionsv1beta1.ArtifactGenerator{} },
		list:    func() client.ObjectList { return &extensionsv1beta1.ArtifactGeneratorList{} },
		columns: []column{suspended},
		suspend: suspendByAnnotation,
		makes:   true,
		losses:  "the ExternalArtifacts that it made",
	},
	{
		words: []string{"kustomization", "kustomizations", "ks"}, plural: "kustomizations",
		new:  func() reconcile.Object { return &kustomizev1.Kustomization{} },
		list: func() client.ObjectList { return &kustomizev1.KustomizationList{} },
		columns: []column{revision(func(o reconcile.Object) string {
			return o.(*kustomizev1.Kustomization).
				Status.LastAppliedRevision
		}), suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*kustomizev1.Kustomization).Spec.Suspend = s },
		source: func(o reconcile.Object) meta.ObjectReference {
			r := o.(*kustomizev1.Kustomization).Spec.SourceRef
			return meta.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
		},
		create: func() maker { return &createKustomization{} },
		makes:  true,
		losses: "what it applied, unless its prune or deletionPolicy keeps that",
	},
	{
		words: []string{"receiver", "receivers"}, plural: "receivers",
		new:     func() reconcile.Object { return &notificationv1.Receiver{} },
		list:    func() client.ObjectList { return &notificationv1.ReceiverList{} },
		columns: []column{suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*notificationv1.Receiver).Spec.Suspend = s },
		create:  func() maker { return &createReceiver{} },
		losses:  "its webhook",
	},
	{
		words:  []string{"repository", "repositories", "imagerepository", "imagerepositories", "imgrepo"},
		plural: "repository", parent: "image",
		new:     func() reconcile.Object { return &imagev1.ImageRepository{} },
		list:    func() client.ObjectList { return &imagev1.ImageRepositoryList{} },
		columns: []column{{"TAGS", tagCount}, {"LAST SCAN", lastScan}, suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*imagev1.ImageRepository).Spec.Suspend = s },
		create:  func() maker { return &createImageRepository{} },
		losses:  "what is known of its tags",
	},
	{
		words: []string{"policy", "policies", "imagepolicy", "imagepolicies", "imgpol"}, plural: "policy",
		parent:  "image",
		new:     func() reconcile.Object { return &imagev1.ImagePolicy{} },
		list:    func() client.ObjectList { return &imagev1.ImagePolicyList{} },
		columns: []column{{"IMAGE", latestImage}, {"TAG", latestTag}, suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*imagev1.ImagePolicy).Spec.Suspend = s },
		create:  func() maker { return &createImagePolicy{} },
		losses:  "its choice; files keep the images that they have",
	},
	{
		words:  []string{"update", "updates", "imageupdateautomation", "imageupdateautomations", "imgupd"},
		plural: "update", parent: "image",
		new:     func() reconcile.Object { return &imagev1.ImageUpdateAutomation{} },
		list:    func() client.ObjectList { return &imagev1.ImageUpdateAutomationList{} },
		columns: []column{{"LAST RUN", lastRun}, suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*imagev1.ImageUpdateAutomation).Spec.Suspend = s },
		source: func(o reconcile.Object) meta.ObjectReference {
			r := o.(*imagev1.ImageUpdateAutomation).Spec.SourceRef
			return meta.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
		},
		create: func() maker { return &createImageUpdate{} },
		losses: "nothing else; what it committed stays",
	},
	{
		words: []string{"release", "releases", "imageupdatejob", "imageupdatejobs", "imgjob"}, plural: "releases",
		parent:  "image",
		new:     func() reconcile.Object { return &imagev1alpha1.ImageUpdateJob{} },
		list:    func() client.ObjectList { return &imagev1alpha1.ImageUpdateJobList{} },
		columns: []column{{"COMMIT", jobCommit}, {"AUTHOR", jobAuthor}},
		once:    true,
		losses:  "its record; the commit stays, and its note",
	},
	{
		words: []string{"alert-provider", "alert-providers", "provider", "providers"}, plural: "alert-providers",
		new:  func() reconcile.Object { return &notificationv1beta3.Provider{} },
		list: func() client.ObjectList { return &notificationv1beta3.ProviderList{} },
		columns: []column{{"TYPE", func(o reconcile.Object, _ bool) string {
			return o.(*notificationv1beta3.Provider).
				Spec.Type
		}}, suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*notificationv1beta3.Provider).Spec.Suspend = s },
		create:  func() maker { return &createProvider{} },
		losses:  "the events that wait to be sent by it",
	},
	{
		words: []string{"alert", "alerts"}, plural: "alerts",
		new:  func() reconcile.Object { return &notificationv1beta3.Alert{} },
		list: func() client.ObjectList { return &notificationv1beta3.AlertList{} },
		columns: []column{{"PROVIDER", func(o reconcile.Object, _ bool) string {
			return o.(*notificationv1beta3.Alert).
				Spec.ProviderRef.Name
		}}, suspended},
		suspend: func(o reconcile.Object, s bool) { o.(*notificationv1beta3.Alert).Spec.Suspend = s },
		create:  func() maker { return &createAlert{} },
		edges:   true,
		losses:  "its choice of events",
	},
	{
		words: []string{"gate", "gates"}, plural: "gates",
		new:     func() reconcile.Object { return &gatingv1.Gate{} },
		list:    func() client.ObjectList { return &gatingv1.GateList{} },
		columns: []column{{"OPENED", opened}, {"WAITING", waitingCount}},
		tells:   gatingv1.OpenedCondition,
		create:  func() maker { return &createGate{} },
		losses:  "its history; objects that name it stay held",
	},
}

// parents are the words that may stand before a kind's, and other words for them.
var parents = map[string][]string{"source": {"sources", "src"}, "artifact": {"artifacts"}, "image": {"images"}}

var suspended = column{"SUSPENDED", func(o reconcile.Object, _ bool) string {
	return map[bool]string{true: "True", false: "False"}[o.Schedule().Suspended]
}}

func revision(of func(reconcile.Object) string) column {
	return column{"REVISION", func(o reconcile.Object, wide bool) string {
		if wide {
			return of(o)
		}
		return short(of(o))
	}}
}

func artifactRevision(o reconcile.Object) string {
	if a := o.(sourcev1.Source).GetArtifact(); a != nil {
		return a.Revision
	}
	return ""
}

func madeBy(o reconcile.Object, _ bool) string {
	ref := o.(*sourcev1.ExternalArtifact).Spec.SourceRef
	if ref == nil {
		return ""
	}
	return ref.Kind + "/" + cmp.Or(ref.Namespace, o.GetNamespace()) + "/" + ref.Name
}

// suspendByAnnotation suspends or resumes a generator: its kind has no field for it. As its generation stays,
// a resume asks for a reconcile, so that the old status is not taken for the outcome.
func suspendByAnnotation(o reconcile.Object, suspend bool) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	if suspend {
		annotations[extensionsv1beta1.ReconcileAnnotation] = extensionsv1beta1.ReconcileDisabled
	} else {
		delete(annotations, extensionsv1beta1.ReconcileAnnotation)
		annotations[meta.ReconcileRequestAnnotation] = time.Now().Format(time.RFC3339Nano)
	}
	o.SetAnnotations(annotations)
}

// short gives a revision as people read it: main@sha1:4f170ec8.
func short(revision string) string {
	i := strings.LastIndexByte(revision, ':')
	if i < 0 || len(revision)-i <= 9 {
		return revision
	}
	return revision[:i+9]
}

// title is the kind as the API names it.
func (k *kind) title() string {
	name := fmt.Sprintf("%T", k.new())
	return name[strings.LastIndex(name, ".")+1:]
}

// one is the kind with its article, for sentences.
func (k *kind) one() string {
	if strings.ContainsRune("AEIO", rune(k.title()[0])) {
		return "an " + k.title()
	}
	return "a " + k.title()
}

// path is how the kind is named on the command line.
func (k *kind) path() string { return strings.TrimSpace(k.parent + " " + k.words[0]) }

// get is the command that shows the kind's objects.
func (k *kind) get() string { return "sluice get " + strings.TrimSpace(k.parent+" "+k.plural) }

// byTitle finds a kind by its name in the API; nil if it is none of ours.
func byTitle(title string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.title() == title })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// byWord finds a kind by its name in the API or by another word for it; nil if it is none of ours.
func byWord(word string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool {
		return strings.EqualFold(k.title(), word) || slices.Contains(k.words, strings.ToLower(word))
	})
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// items returns the objects of a list.
func items(list client.ObjectList) ([]reconcile.Object, error) {
	raw, err := apimeta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var out []reconcile.Object
	for _, r := range raw {
		o, ok := r.(reconcile.Object)
		if !ok {
			return nil, fmt.Errorf("%T is none of our kinds", r)
		}
		out = append(out, o)
	}
	return out, nil
}

// perKind adds a command for each kind, below the word of its parent.
func (a *app) perKind(to *cobra.Command, make func(*kind) *cobra.Command) {
	under := map[string]*cobra.Command{"": to}
	for _, k := range kinds {
		c := make(k)
		if c == nil {
			continue
		}
		if c.ValidArgsFunction == nil {
			c.ValidArgsFunction = a.completeNames(k)
		}
		if under[k.parent] == nil {
			parent := group(k.parent, "The same for "+parents[k.parent][0], "  sluice "+to.Name()+" "+k.path()+" NAME")
			parent.Aliases = parents[k.parent]
			under[k.parent] = parent
			to.AddCommand(parent)
		}
		under[k.parent].AddCommand(c)
	}
}
