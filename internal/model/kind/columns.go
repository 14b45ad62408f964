package kind

import (
	"cmp"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// shortDigest is the number of characters of a digest that tables show.
const shortDigest = 8

var suspended = Column{Header: "SUSPENDED", Optional: "False", Value: func(o reconcile.Object, _ bool) string {
	if o.Schedule().Suspended {
		return "True"
	}
	return "False"
}}

func revision(of func(reconcile.Object) string) Column {
	return Column{Header: "REVISION", Value: func(o reconcile.Object, wide bool) string {
		if wide {
			return of(o)
		}
		return ShortRevision(of(o))
	}}
}

// ShortRevision shortens the digest in a revision: main@sha1:4f170ec8.
func ShortRevision(revision string) string {
	i := strings.LastIndexByte(revision, ':')
	if i < 0 || len(revision)-i <= shortDigest+1 {
		return revision
	}
	return revision[:i+1+shortDigest]
}

// digests matches digests in texts.
var digests = regexp.MustCompile(`\b(sha\d+:[0-9a-f]{8})[0-9a-f]{24,}`)

// ShortRevisions shortens all digests in a text.
func ShortRevisions(text string) string { return digests.ReplaceAllString(text, "$1") }

// ShortCommit shortens the ID of a commit.
func ShortCommit(commit string) string { return commit[:min(len(commit), shortDigest)] }

func artifactRevision(o reconcile.Object) string {
	if a := o.(sourcev1.Source).GetArtifact(); a != nil {
		return a.Revision
	}
	return ""
}

func appliedRevision(o reconcile.Object) string {
	return o.(*kustomizev1.Kustomization).Status.LastAppliedRevision
}

func setRevision(o reconcile.Object) string {
	return o.(*controlplanev1.ResourceSet).Status.LastAppliedRevision
}

func objectCount(o reconcile.Object, _ bool) string {
	if i := o.(*controlplanev1.ResourceSet).Status.Inventory; i != nil {
		return strconv.Itoa(len(i.Entries))
	}
	return "0"
}

// releasedRevision returns the version of the chart that is released, or else of the last attempt.
func releasedRevision(o reconcile.Object) string {
	s := o.(*helmv2.HelmRelease).Status
	if len(s.History) > 0 {
		return s.History[0].ChartVersion
	}
	return s.LastAttemptedRevision
}

func madeBy(o reconcile.Object, _ bool) string {
	ref := o.(*sourcev1.ExternalArtifact).Spec.SourceRef
	if ref == nil {
		return ""
	}
	return ref.Kind + "/" + cmp.Or(ref.Namespace, o.GetNamespace()) + "/" + ref.Name
}

func providerType(o reconcile.Object, _ bool) string {
	return o.(*notificationv1.Provider).Spec.Type
}

func alertProvider(o reconcile.Object, _ bool) string {
	return o.(*notificationv1.Alert).Spec.ProviderRef.Name
}

func tagCount(o reconcile.Object, _ bool) string {
	if r := o.(*imagev1.ImageRepository).Status.LastScanResult; r != nil {
		return strconv.Itoa(r.TagCount)
	}
	return ""
}

func lastScan(o reconcile.Object, _ bool) string {
	if r := o.(*imagev1.ImageRepository).Status.LastScanResult; r != nil {
		return Time(r.ScanTime)
	}
	return ""
}

func latestImage(o reconcile.Object, _ bool) string {
	if r := o.(*imagev1.ImagePolicy).Status.LatestRef; r != nil {
		return r.Name
	}
	return ""
}

func latestTag(o reconcile.Object, wide bool) string {
	r := o.(*imagev1.ImagePolicy).Status.LatestRef
	switch {
	case r == nil:
		return ""
	case wide && r.Digest != "":
		return r.Tag + "@" + r.Digest
	}
	return r.Tag
}

func lastRun(o reconcile.Object, _ bool) string {
	if at := o.(*imagev1.ImageUpdateAutomation).Status.LastAutomationRunTime; at != nil {
		return Time(*at)
	}
	return ""
}

func jobCommit(o reconcile.Object, wide bool) string {
	commit := o.(*imagev1alpha1.ImageUpdateJob).Status.Commit
	if wide {
		return commit
	}
	return ShortCommit(commit)
}

func jobAuthor(o reconcile.Object, _ bool) string {
	return o.(*imagev1alpha1.ImageUpdateJob).Spec.Author
}

func gateState(o reconcile.Object, _ bool) string { return GateState(o.(*gatingv1.Gate)) }

// GateState returns whether a gate is open, and until when if its schedule or a window ends that state.
func GateState(g *gatingv1.Gate) string {
	state := string(metav1.ConditionUnknown)
	if c := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition); c != nil {
		state = string(c.Status)
	}
	if next := g.Status.NextTransition; next != nil {
		state += " until " + Time(next.At)
	}
	return state
}

func waitingCount(o reconcile.Object, _ bool) string {
	return strconv.FormatInt(o.(*gatingv1.Gate).Status.WaitingCount, 10)
}

// Time formats a time for tables, in UTC. It returns "" for the zero time.
func Time(at meta.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// suspendBy returns a function that suspends or resumes an object of a kind that has an annotation for it. Its
// generation does not change, so a resume also requests a reconcile: otherwise commands would take the old status for
// the result.
func suspendBy(annotation string) func(reconcile.Object, bool) {
	return func(o reconcile.Object, suspend bool) {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		if suspend {
			annotations[annotation] = extensionsv1beta1.ReconcileDisabled
		} else {
			delete(annotations, annotation)
			annotations[meta.ReconcileRequestAnnotation] = time.Now().Format(time.RFC3339Nano)
		}
		o.SetAnnotations(annotations)
	}
}

func inputType(o reconcile.Object, _ bool) string {
	return o.(*controlplanev1.ResourceSetInputProvider).Spec.Type
}

func clusterCount(o reconcile.Object, _ bool) string {
	return strconv.Itoa(len(o.(*inputsv1.ClusterInputProvider).Status.ExportedInputs))
}

func inputCount(o reconcile.Object, _ bool) string {
	return strconv.Itoa(len(o.(*controlplanev1.ResourceSetInputProvider).Status.ExportedInputs))
}
