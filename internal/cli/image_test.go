package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func policyOf(name string, latest imagev1.ImageRef) *imagev1.ImagePolicy {
	p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.ImageRepositoryRef.Name, p.Spec.Policy.SemVer = name, &imagev1.SemVerPolicy{Range: "*"}
	p.SetLatest(latest)
	return p
}

func podTemplate(images ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}}
	for i, image := range images {
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{Name: "c" + string(rune('0'+i)), Image: image})
	}
	return t
}

func automationOf(name string) *imagev1.ImageUpdateAutomation {
	u := &imagev1.ImageUpdateAutomation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	u.Spec.SourceRef.Kind, u.Spec.SourceRef.Name, u.Spec.Interval.Duration = "GitRepository", "app", 60e9
	u.Spec.GitSpec = &imagev1.GitSpec{Commit: imagev1.CommitSpec{
		Author: imagev1.CommitUser{Email: "sluice@example.com"}}}
	return u
}

func TestImageList(t *testing.T) {
	c, namespace := withDefinitions(t)
	digest := "sha256:" + strings.Repeat("4f17", 16)
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	web.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	web.Spec.Template = podTemplate("docker.io/library/nginx:1.0.0", "ghcr.io/org/side@"+digest, "busybox")
	job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "clean"}}
	job.Spec.Schedule = "@daily"
	job.Spec.JobTemplate.Spec.Template = podTemplate("ghcr.io/org/clean:2.0.0")
	job.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	makeAll(t, c, namespace, web, job, policyOf("nginx", imagev1.ImageRef{Name: "nginx", Tag: "1.1.0"}),
		policyOf("clean", imagev1.ImageRef{Name: "ghcr.io/org/clean", Tag: "2.0.0", Digest: digest}))
	r := at(t, "image", "list", "-n", namespace).wants(t, exitOK)
	golden(t, "image-list.txt", strings.ReplaceAll(r.out, namespace, "test-00000"))
	if one := at(t, "image", "list", "cronjob/clean", "-n", namespace).
		wants(t, exitOK); strings.Count(one.out, "\n") != 2 || !strings.Contains(one.out, "up to date") {
		t.Errorf("the list of one workload is\n%s", one.out)
	}
	at(t, "image", "list", "StatefulSet/web", "-n", namespace).wants(t, exitFailed, "no workloads found")
	if got := at(t, "get", "image", "policy", "-n", namespace).wants(t, exitOK); !strings.Contains(got.out, "1.1.0") {
		t.Errorf("the list of policies is\n%s", got.out)
	}
}

func TestImageRelease(t *testing.T) {
	c, namespace := withDefinitions(t)
	at(t, "image", "release", "web", "--latest", "-n", namespace).wants(t, exitFailed, "create image update")
	makeAll(t, c, namespace, automationOf("app"))
	commit := strings.Repeat("4f17", 10)
	run := func(args ...string) result {
		t.Helper()
		ended := make(chan result, 1)
		go func() {
			ended <- runWith(t.Context(), "", append([]string{"image", "release", "Deployment/web", "--image",
				"nginx:1.1.0", "--reason", "a fix", "-n", namespace, "--kubeconfig", testenv.Kubeconfig(t)},
				args...)...)
		}()
		testenv.Eventually(t, "the job is created, and its status set as by its controller", func() error {
			jobs := &imagev1alpha1.ImageUpdateJobList{}
			if err := c.List(t.Context(), jobs, client.InNamespace(namespace)); err != nil {
				return err
			}
			if len(jobs.Items) != 1 {
				return fmt.Errorf("there are %d jobs", len(jobs.Items))
			}
			j := &jobs.Items[0]
			if !strings.HasPrefix(j.Name, "release-web-") || j.Spec.AutomationRef.Name != "app" ||
				j.Spec.Reason != "a fix" {
				t.Errorf("the job is %s: %+v", j.Name, j.Spec)
			}
			j.Status.ObservedGeneration = j.Generation
			j.Status.Commit, j.Status.CompletionTime = commit, &meta.Time{Time: time.Unix(1700000000, 0)}
			j.Status.Changes = []imagev1alpha1.ImageChange{{File: "web.yaml", Line: 7, Object: "Deployment/apps/web",
				Container: "web", Old: "nginx:1.0.0", New: "nginx:1.1.0"}}
			apimeta.SetStatusCondition((*[]metav1.Condition)(&j.Status.Conditions), metav1.Condition{
				Type: reconcile.TypeReady, Status: metav1.ConditionTrue, Reason: meta.SucceededReason,
				Message: "pushed", ObservedGeneration: j.Generation,
			})
			return c.Status().Patch(t.Context(), j, statusOf(t, j))
		})
		return (<-ended).wants(t, exitOK, "is ready: pushed")
	}
	run("--dry-run")
	if jobs := (&imagev1alpha1.ImageUpdateJobList{}); c.List(t.Context(), jobs, client.InNamespace(namespace)) != nil ||
		len(jobs.Items) > 0 {
		t.Errorf("%d jobs remain after a dry run", len(jobs.Items))
	}
	r := run()
	if want := "web.yaml:7 Deployment/apps/web (web): nginx:1.0.0 -> nginx:1.1.0\ncommit: " + commit +
		"\n"; r.out != want {
		t.Errorf("got\n%s, want\n%s", r.out, want)
	}
	for _, line := range []string{"image history", "image history web"} {
		r := at(t, append(strings.Fields(line), "-n", namespace)...).wants(t, exitOK)
		if want := "4f174f17   nginx:1.0.0 -> nginx:1.1.0 (a fix)\n"; !strings.HasSuffix(r.out, want) ||
			strings.Count(r.out, "\n") != 2 {
			t.Errorf("%s prints\n%s", line, r.out)
		}
	}
	at(t, "image", "history", "other", "-n", namespace).wants(t, exitFailed, "no releases found")
	makeAll(t, c, namespace, automationOf("second"))
	at(t, "image", "release", "web", "--latest", "-n", namespace).wants(t, exitFailed, "--automation from app, second")
}

// TestImageHistoryReadsGitNotes checks notes in the artifact of a source and in events.
func TestImageHistoryReadsGitNotes(t *testing.T) {
	c, namespace := withDefinitions(t)
	source := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: sourcev1.GitRepositorySpec{URL: "https://example.com/app",
			Interval: meta.Duration{Duration: time.Minute}}}
	makeAll(t, c, namespace, automationOf("app"), source)
	note := func(by, object string) string {
		return record.Of(by+"/app", []edit.Change{{File: "web.yaml", Line: 1,
			Object: edit.Object{Kind: "Deployment", Name: object}, Old: "web:1", New: object + ":2"}}, nil, nil).
			String()
	}
	mine, now, before := imagev1.ImageUpdateAutomationKind+" "+namespace, strings.Repeat("a", 40),
		strings.Repeat("b", 40)
	was := source.DeepCopy()
	source.Status.Artifact = &meta.Artifact{
		Revision: "main@sha1:" + now, Digest: "sha256:" + strings.Repeat("0", 64), Path: "p", URL: "http://u",
		LastUpdateTime: meta.TimeOf(time.Unix(1700000000, 0)),
		Metadata:       map[string]string{meta.CommitNoteKey: note(mine, "web")},
	}
	if err := c.Status().Patch(t.Context(), source, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	for i, by := range []string{mine, imagev1.ImageUpdateAutomationKind + " elsewhere"} {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("app.", i),
				Annotations: map[string]string{
					"source.toolkit.fluxcd.io/revision": fmt.Sprint("main@sha1:", before, i),
					"source.toolkit.fluxcd.io/note":     note(by, "db"),
				}},
			InvolvedObject: corev1.ObjectReference{Kind: sourcev1.GitRepositoryKind, Namespace: namespace, Name: "app"},
		}
		if err := c.Create(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	r := at(t, "image", "history", "-n", namespace).wants(t, exitOK)
	for _, want := range []string{"ImageUpdateAutomation/app   sluice@example.com   aaaaaaaa   web:1 -> web:2\n",
		"bbbbbbbb   web:1 -> db:2\n"} {
		if !strings.Contains(r.out, want) || strings.Count(r.out, "\n") != 3 {
			t.Errorf("the history is\n%s, which lacks %q", r.out, want)
		}
	}
	if r := at(t, "image", "history", "db", "-n", namespace).wants(t, exitOK); strings.Count(r.out, "\n") != 2 ||
		!strings.Contains(r.out, "db:2") {
		t.Errorf("the history of a workload is\n%s", r.out)
	}
}
