package ui

import (
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
)

func TestQueueSumsTheMetricsOfAllKinds(t *testing.T) {
	var q queue
	err := q.read(strings.NewReader(`# HELP workqueue_depth Current depth of workqueue
workqueue_depth{controller="kustomization",name="kustomization",priority=""} 3
workqueue_depth{controller="gate",name="gate",priority=""} 1e+01
workqueue_depth_other{name="gate"} 5
controller_runtime_active_workers{controller="kustomization"} 2
controller_runtime_active_workers{controller="gate"} NaNsense
go_goroutines 200
`))
	if err != nil || q.Waiting != 13 || q.Working != 2 {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestProcessesAreShownAsFarAsTheUserMayReadThem(t *testing.T) {
	s := newSite(t, everyone)
	s.ui.Namespace = s.namespace
	s.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "sluice-leader-election"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("sluice-0"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))}})
	got := read[processes](s, "/api/v1/processes")
	if len(got.Leaders) != 1 || got.Leaders[0].Holder != "sluice-0" || got.Leaders[0].Lost || len(got.Hidden) != 0 ||
		got.Queue != nil {
		t.Errorf("%+v", got)
	}
	other := newSiteAs(t, everyone, "without-rights")
	other.ui.Namespace = s.namespace
	if got := read[processes](other, "/api/v1/processes"); len(got.Hidden) != 3 || len(got.Leaders) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestRetryForgetsTheFailuresOfARelease(t *testing.T) {
	s := newSite(t, everyone)
	s.create(&helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: helmv2.HelmReleaseSpec{
		Interval: meta.DurationOf(time.Hour), ChartRef: &helmv2.ChartReference{Kind: "OCIRepository",
			Name: "db"}}})
	at := "/api/v1/objects/HelmRelease/" + s.namespace + "/db/retry"
	if status, body := s.request(http.MethodPost, at, "{}"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	hr := &helmv2.HelmRelease{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "db"}, hr); err != nil {
		t.Fatal(err)
	}
	asked := hr.Annotations[meta.ReconcileRequestAnnotation]
	if asked == "" || hr.Annotations[helmv2.ResetRequestAnnotation] != asked {
		t.Errorf("%v", hr.Annotations)
	}
}
