package cli

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

func tagCount(o reconcile.Object, _ bool) string {
	if r := o.(*imagev1.ImageRepository).Status.LastScanResult; r != nil {
		return strconv.Itoa(r.TagCount)
	}
	return ""
}

func lastScan(o reconcile.Object, _ bool) string {
	if r := o.(*imagev1.ImageRepository).Status.LastScanResult; r != nil {
		return utc(&r.ScanTime)
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
	return utc(o.(*imagev1.ImageUpdateAutomation).Status.LastAutomationRunTime)
}

func jobCommit(o reconcile.Object, wide bool) string {
	commit := o.(*imagev1alpha1.ImageUpdateJob).Status.Commit
	if wide {
		return commit
	}
	return commit[:min(len(commit), 8)]
}

func jobAuthor(o reconcile.Object, _ bool) string {
	return o.(*imagev1alpha1.ImageUpdateJob).Spec.Author
}

// utc is a time as tables show it; nothing when there is none.
func utc(at *metav1.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
