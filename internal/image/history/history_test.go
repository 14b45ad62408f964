package history

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/workload"
)

func TestDescribe(t *testing.T) {
	for want, c := range map[string]struct {
		changes []string
		more    int
		reason  string
	}{
		"a (fix)":             {changes: []string{"a"}, reason: "fix"},
		"a, b, c, and 1 more": {changes: []string{"a", "b", "c", "d"}},
		"a, and 5 more":       {changes: []string{"a"}, more: 5},
	} {
		if got := describe(c.changes, c.more, c.reason); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestMergePrefersJobs checks that a commit with a job and a note is listed once.
func TestMergePrefersJobs(t *testing.T) {
	job := imagev1alpha1.ImageUpdateJob{ObjectMeta: metav1.ObjectMeta{Name: "release"}}
	job.Status.Commit = "abc"
	job.Status.Changes = []imagev1alpha1.ImageChange{{Object: "Deployment/apps/web", Old: "web:1", New: "web:2"}}
	automation := imagev1.ImageUpdateAutomation{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "auto"}}
	automation.Spec.GitSpec = &imagev1.GitSpec{}
	automation.Spec.GitSpec.Commit.Author.Email = "sluice@example.com"
	automation.Status.LastPushCommit, automation.Status.LastPushTime = "def", &meta.Time{Time: time.Unix(1, 0)}
	by := record.By(imagev1.ImageUpdateAutomationKind, "apps", "auto")
	notes := func() map[string]note {
		return map[string]note{
			"abc": {Record: record.Record{By: by}},
			"def": {Record: record.Record{By: by, Updated: []record.Update{{Places: []record.Place{
				{Object: "StatefulSet/apps/db", From: "db:1", To: "db:2"}}}}}},
		}
	}
	jobs, automations := []imagev1alpha1.ImageUpdateJob{job}, []imagev1.ImageUpdateAutomation{automation}
	all := merge(jobs, automations, notes(), workload.Ref{})
	if len(all) != 2 || all[0].By != "ImageUpdateJob/release" || all[0].Description != "web:1 -> web:2" ||
		all[1].Author != "sluice@example.com" || all[1].Description != "db:1 -> db:2" {
		t.Errorf("got %+v", all)
	}
	one := merge(jobs, automations, notes(), workload.Ref{Kind: "StatefulSet", Name: "db"})
	if len(one) != 1 || one[0].Commit != "def" {
		t.Errorf("the history of one workload is %+v", one)
	}
	if known := merge(nil, automations, nil, workload.Ref{}); len(known) != 1 || known[0].Description != "by policy" {
		t.Errorf("without notes the history is %+v", known)
	}
}
