package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
)

// managed returns the labels that a Kustomization gives to what it applies.
func (s *site) managed(by string) map[string]string {
	return map[string]string{"kustomize.toolkit.fluxcd.io/name": by,
		"kustomize.toolkit.fluxcd.io/namespace": s.namespace}
}

func (s *site) cronJob(name string) {
	s.Helper()
	s.create(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.managed("app")},
		Spec: batchv1.CronJobSpec{Schedule: "0 4 * * *", JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"job": name}},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: "backup:1"}}}}}}}})
}

func TestWorkloadsSayWhatRunsAndWhoAppliedIt(t *testing.T) {
	s := newSite(t, everyone)
	usage := definitions.ServePodMetrics(t, testenv.Cluster(t))
	s.create(kustomization("app"))
	s.awaitItem("app")
	s.deployment("web", "registry.example/web:1.0.0")
	s.deployment("unmanaged", "registry.example/other:1")
	s.cronJob("backup")
	web := &appsv1.Deployment{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "web"}, web); err != nil {
		t.Fatal(err)
	}
	before := web.DeepCopy()
	web.Labels = s.managed("app")
	if err := s.client.Patch(t.Context(), web, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	list := "/api/v1/workloads?namespace=" + s.namespace
	testenv.Eventually(t, "the workload is healthy and has a pod with usage", func() error {
		var pods corev1.PodList
		if err := s.client.List(t.Context(), &pods, client.InNamespace(s.namespace),
			client.MatchingLabels{"app": "web"}); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		usage(s.namespace, pods.Items[0].Name, "250m", "64Mi")
		p := read[workloadPage](s, list)
		if p.Total != 2 || !p.Usage {
			return fmt.Errorf("%d workloads, usage %v", p.Total, p.Usage)
		}
		i := slices.IndexFunc(p.Workloads, func(w workloadRow) bool { return w.Name == "web" })
		w := p.Workloads[i]
		if w.ID != "Deployment/"+s.namespace+"/web" || w.Application != "Kustomization/"+s.namespace+"/app" ||
			w.State != "ready" || w.Ready != 1 || w.Desired != 1 || w.Pods != 1 || w.CPU != 250 ||
			w.Memory != 64<<20 || !slices.Equal(w.Images, []string{"registry.example/web:1.0.0"}) {
			return fmt.Errorf("%+v %+v", w, w.Workload)
		}
		return nil
	})
	if p := read[workloadPage](s, list+"&kind=CronJob"); p.Total != 1 || p.Workloads[0].Schedule != "0 4 * * *" ||
		p.Workloads[0].Images[0] != "backup:1" {
		t.Errorf("the CronJob is %+v", p)
	}
	for query, want := range map[string]int{"&q=WEB:1.0": 1, "&q=nothing": 0, "&state=failed": 0, "&limit=1": 2,
		"&after=1": 2, "&after=99": 2} {
		if p := read[workloadPage](s, list+query); p.Total != want {
			t.Errorf("%s finds %d", query, p.Total)
		}
	}
	if p := read[workloadPage](s, list+"&limit=1"); p.Next != "1" || len(p.Workloads) != 1 {
		t.Errorf("the first page is %+v", p)
	}
}

func TestWorkloadsOfAUserWithoutRights(t *testing.T) {
	s := newSiteAs(t, everyone, "without-rights")
	p := read[workloadPage](s, "/api/v1/workloads?namespace="+s.namespace)
	if p.Total != 0 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "you may not list") {
		t.Errorf("the answer is %+v", p)
	}
}

func TestActionsOnWorkloads(t *testing.T) {
	s := newSite(t, everyone)
	s.workload("web", "one\n")
	s.cronJob("backup")
	act := func(what, body string) (int, string) {
		return s.request(http.MethodPost, "/api/v1/workloads/"+strings.Replace(what, "/", "/"+s.namespace+"/", 1), body)
	}
	for what, want := range map[string]int{"Deployment/web/delete": 400, "Secret/web/restart": 400,
		"CronJob/backup/restart": 400, "Deployment/gone/restart": 404, "Pod/gone/delete": 404} {
		if status, body := act(what, "{}"); status != want {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	if status, body := act("Deployment/web/restart", `{"reason":"memory grows"}`); status != http.StatusOK {
		t.Fatalf("restart: %d %s", status, body)
	}
	key := client.ObjectKey{Namespace: s.namespace, Name: "web"}
	web := &appsv1.Deployment{}
	if err := s.client.Get(t.Context(), key, web); err != nil || web.Spec.Template.Annotations[restartedAt] == "" {
		t.Errorf("the template is %+v (%v)", web.Spec.Template.ObjectMeta, err)
	}
	if err := s.client.Patch(t.Context(), web, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"paused":true}}`))); err != nil {
		t.Fatal(err)
	}
	if status, body := act("Deployment/web/restart", "{}"); status != 400 || !strings.Contains(body, "paused") {
		t.Errorf("restart of a paused rollout: %d %s", status, body)
	}
	status, body := act("CronJob/backup/run", "{}")
	var answer done
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("run: %d %s", status, body)
	}
	job := &batchv1.Job{}
	key.Name = strings.TrimPrefix(answer.Made, "Job/"+s.namespace+"/")
	if err := s.client.Get(t.Context(), key, job); err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(job); owner == nil || owner.Name != "backup" ||
		job.Annotations[instantiate] != "manual" || job.Annotations[requestedBy] != "admin" ||
		job.Labels["job"] != "backup" {
		t.Errorf("the job is %+v", job.ObjectMeta)
	}
	if status, body := act("Pod/web-0/delete", "{}"); status != http.StatusOK {
		t.Errorf("delete: %d %s", status, body)
	}
	denied := newSiteAs(t, everyone, "without-rights")
	status, body = denied.request(http.MethodPost, "/api/v1/workloads/Pod/"+denied.namespace+"/x/delete", "{}")
	if status != http.StatusForbidden {
		t.Errorf("without rights: %d %s", status, body)
	}
}
