package helmrelease

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// everything is a client that finds every object.
type everything struct{ client.Client }

func (everything) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func TestHintsOfReleases(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := &Controller{Client: everything{}, Clock: testclock.NewFakePassiveClock(now)}
	obj := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b-c"}}
	obj.Spec.Timeout = &meta.Duration{Duration: 5 * time.Minute}
	obj.Spec.Chart = &helmv2.HelmChartTemplate{}
	obj.Status.LastAttemptedReleaseAction = helmv2.ActionUpgrade
	r := &run{Controller: c, desired: &desired{name: "app"}, obj: obj}
	last := &release.Release{Name: "app", Version: 1, Manifest: "kind: ConfigMap",
		Info: &release.Info{Status: common.StatusPendingUpgrade, LastDeployed: now}}
	o := &observed{last: last, history: []*release.Release{last}}
	theirs := &sourcev1.HelmChart{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		GroupKind.Group + "/namespace": "a-b", GroupKind.Group + "/name": "c"}}}
	other := &helmv2.HelmRelease{Spec: helmv2.HelmReleaseSpec{ChartRef: &helmv2.ChartReference{Kind: "Secret"}}}
	_, source := c.source(t.Context(), other)
	for want, err := range map[string]error{
		"Set spec.upgrade.remediation.strategy to uninstall, or correct the chart or its values": r.remediate(
			t.Context(), o),
		"It is taken over after 5m0s": r.recover(t.Context(), o),
		"Rename one of the two HelmReleases: namespace and name of both make the same name": c.checkTemplateOwner(
			t.Context(), obj, theirs),
		"Use an OCIRepository, HelmChart or ExternalArtifact": fmt.Errorf("%s", source),
	} {
		if err == nil || !strings.HasSuffix(err.Error(), ". "+want) {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
