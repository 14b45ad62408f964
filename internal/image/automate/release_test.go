package automate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestReleaseIsCommittedOnce(t *testing.T) {
	s := system.New(t, system.ImageAutomation)
	s.Git.Commit("app", map[string]string{"web.yaml": system.DeploymentWithImages("web", "nginx:1.0.0",
		"ghcr.io/org/side:1"),
		"db.yaml": system.DeploymentWithImages("db", "nginx:1.0.0")})
	s.GitRepository("app")
	s.ImageUpdateAutomation("update", "app")
	s.ImageUpdateAutomationReady("update", metav1.ConditionTrue, "Succeeded", "up-to-date")

	s.ImageUpdateJob("dry", imagev1alpha1.ImageUpdateJobSpec{Workloads: system.Containers("web"),
		Images: []string{"nginx:1.1.0"},
		DryRun: true})
	dry := s.ImageUpdateJobReady("dry", metav1.ConditionTrue, "1 value would be changed")
	if dry.Status.Commit != "" || dry.Status.CompletionTime == nil ||
		!strings.Contains(dry.Status.Diff, "-nginx:1.0.0\n+nginx:1.1.0") || s.CommitCount("app", "main") != 1 {
		t.Errorf("status of a dry run: %+v", dry.Status)
	}

	s.ImageUpdateJob("web", imagev1alpha1.ImageUpdateJobSpec{
		Workloads: system.Containers("web"), Images: []string{"nginx:1.1.0"}, Author: "Ada <ada@example.com>",
		Reason: "fixes the login",
	})
	j := s.ImageUpdateJobReady("web", metav1.ConditionTrue, "pushed commit")
	if got := s.Git.Run("app", "show", "main:web.yaml") +
		"\n"; got != system.DeploymentWithImages("web", "nginx:1.1.0", "ghcr.io/org/side:1") {
		t.Errorf("web.yaml:\n%s", got)
	}
	if got := s.Git.Run("app", "show", "main:db.yaml") + "\n"; got != system.DeploymentWithImages("db", "nginx:1.0.0") {
		t.Errorf("db.yaml:\n%s", got)
	}
	if got := s.Git.Run("app", "log", "-1", "--format=%H %an <%ae> %cn|%B", "main"); got != j.Status.Commit+
		" Robot <robot@example.com> Robot|Update from image update automation\n\nfixes the login\n\n"+
		"Requested-by: Ada <ada@example.com>" {
		t.Errorf("commit %q, status %s", got, j.Status.Commit)
	}
	checkRelease(t, s, j)

	// It does not run again, even if the change is reverted.
	s.Git.Commit("app", map[string]string{"web.yaml": system.DeploymentWithImages("web", "nginx:1.0.0")})
	before := s.CommitCount("app", "main")
	s.RequestReconcile(j, "web")
	asked := j.Annotations[meta.ReconcileRequestAnnotation]
	testenv.Eventually(t, "the request was handled", func() error {
		if err := s.Get(j, "web"); err != nil || j.Status.LastHandledReconcileAt != asked {
			return errors.Join(err, fmt.Errorf("%+v", j.Status))
		}
		return nil
	})
	runLaterJobs(t, s, before)

	declinedByHook(t, s)
}

// checkRelease checks the note and the status of a release.
func checkRelease(t *testing.T, s *system.System, j *imagev1alpha1.ImageUpdateJob) {
	t.Helper()
	note, err := record.Parse(s.Git.Run("app", "notes", "--ref", git.NotesRef, "show", "main"))
	if err != nil || note.By != "ImageUpdateJob "+s.Namespace+"/web" || note.Author != "Ada <ada@example.com>" ||
		note.Reason != "fixes the login" || len(note.Updated) != 1 || note.Updated[0].Image != "nginx:1.1.0" {
		t.Errorf("note: %+v, %v", note, err)
	}
	if c := j.Status.Changes; len(c) != 1 || c[0].File != "web.yaml" || c[0].Container != "c0" ||
		c[0].Old != "nginx:1.0.0" || c[0].New != "nginx:1.1.0" {
		t.Errorf("changes: %+v", c)
	}
}

// runLaterJobs runs jobs that change all workloads, nothing, or cannot be done.
func runLaterJobs(t *testing.T, s *system.System, before int) {
	t.Helper()
	s.ImageUpdateJob("all", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"docker.io/library/nginx:2.0.0"}})
	s.ImageUpdateJobReady("all", metav1.ConditionTrue, "pushed commit")
	if got := s.CommitCount("app", "main"); got != before+1 {
		t.Errorf("%d commits, want %d", got, before+1)
	}
	for file, want := range map[string]string{"web.yaml": system.DeploymentWithImages("web", "nginx:2.0.0"),
		"db.yaml": system.DeploymentWithImages("db", "nginx:2.0.0")} {
		if got := s.Git.Run("app", "show", "main:"+file) + "\n"; got != want {
			t.Errorf("%s:\n%s", file, got)
		}
	}
	s.ImageUpdateJob("again", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"nginx:2.0.0"}})
	s.ImageUpdateJobReady("again", metav1.ConditionTrue, "nothing to change")
	s.ImageUpdateJob("nowhere", imagev1alpha1.ImageUpdateJobSpec{Workloads: system.Containers("web", "api"),
		Images: []string{"nginx:2.0.0"}})
	if j := s.ImageUpdateJobReady("nowhere", metav1.ConditionFalse,
		"no file has Deployment 'api' with one of the images. Check the names, and that the files are below "+
			"spec.update.path of the automation"); j.Status.CompletionTime == nil {
		t.Error("a job that cannot be done goes on")
	}
	s.ImageUpdateJob("unused", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"redis:7"}})
	s.ImageUpdateJobReady("unused", metav1.ConditionFalse, "none of the workloads has image 'redis'")
}

// declinedByHook runs a job whose push the remote declines.
func declinedByHook(t *testing.T, s *system.System) {
	t.Helper()
	hook := filepath.Join(s.Git.Root, "app.git", "hooks", "update")
	script := []byte("#!/bin/sh\necho 'main is protected'\nexit 1\n")
	if err := os.WriteFile(hook, script, 0o700); err != nil { //nolint:gosec // git runs it
		t.Fatal(err)
	}
	s.ImageUpdateJob("declined", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"nginx:3.0.0"}})
	if j := s.ImageUpdateJobReady("declined", metav1.ConditionFalse,
		"main is protected"); j.Status.CompletionTime == nil ||
		j.Status.Commit != "" || len(j.Status.Changes) == 0 {
		t.Errorf("status after a declined push: %+v", j.Status)
	}
}

func TestReleaseOfLatestChangesOnlySelectedContainers(t *testing.T) {
	s := system.New(t, system.ImageAutomation)
	s.Gate("freeze")
	s.Git.Commit("app", map[string]string{"web.yaml": system.DeploymentWithImages("web", "nginx:1", "nginx:1",
		"redis:1"),
		"db.yaml": system.DeploymentWithImages("db", "redis:1")})
	s.GitRepository("app")
	s.ChooseImage("nginx", "nginx:2")
	s.ChooseImage("redis", "redis:2")
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.Gates = system.GateRefs("freeze")
	})
	s.ImageUpdateJob("one", imagev1alpha1.ImageUpdateJobSpec{Workloads: system.Containers("web:c1"), Latest: true})
	held := &imagev1alpha1.ImageUpdateJob{}
	testenv.Eventually(t, "the gate of the automation holds the job", func() error {
		if err := s.Get(held, "one"); err != nil {
			return err
		}
		if p := held.Status.Pending; p == nil || !strings.Contains(p.Revision, "nginx:2") ||
			held.Status.CompletionTime != nil {
			return fmt.Errorf("%+v", held.Status)
		}
		return nil
	})
	if got := s.CommitCount("app", "main"); got != 1 {
		t.Errorf("%d commits behind a closed gate", got)
	}
	s.TurnGate("freeze", gatingv1.Opened)
	s.ImageUpdateJobReady("one", metav1.ConditionTrue, "pushed commit")
	if got := s.Git.Run("app", "show", "main:web.yaml") +
		"\n"; got != system.DeploymentWithImages("web", "nginx:1", "nginx:2", "redis:1") {
		t.Errorf("web.yaml:\n%s", got)
	}
	s.ImageUpdateJob("rest", imagev1alpha1.ImageUpdateJobSpec{Workloads: system.Containers("web"), Latest: true})
	s.ImageUpdateJobReady("rest", metav1.ConditionTrue, "pushed commit")
	if got := s.Git.Run("app", "show", "main:web.yaml") +
		"\n"; got != system.DeploymentWithImages("web", "nginx:2", "nginx:2", "redis:2") {
		t.Errorf("web.yaml:\n%s", got)
	}
	if got := s.Git.Run("app", "show", "main:db.yaml") + "\n"; got != system.DeploymentWithImages("db", "redis:1") {
		t.Errorf("db.yaml:\n%s", got)
	}
}

// The process stops after the remote accepted the push and before it got the response. Others push before the
// next process starts.
func TestReleaseFindsItsCommitAfterRestart(t *testing.T) {
	s := system.New(t, system.ImageAutomation, func(o *options.Options) {
		// the push waits for its response until the process stops
		o.EgressTimeouts = egress.Timeouts{Answer: time.Hour, Idle: time.Hour, Drip: time.Hour}
	})
	s.Git.Commit("app", map[string]string{"web.yaml": system.DeploymentWithImages("web", "nginx:1")})
	s.GitRepository("app", func(g *sourcev1.GitRepository) {
		g.Spec.Timeout = &meta.Duration{Duration: 30 * time.Minute}
	})
	s.ImageUpdateAutomation("update", "app")
	s.ImageUpdateAutomationReady("update", metav1.ConditionTrue, "Succeeded", "up-to-date")
	hook := filepath.Join(s.Git.Root, "app.git", "hooks", "post-receive")
	for image, others := range map[string][]map[string]string{
		// found by its note, without the mirror
		"nginx:2": {{"other.yaml": "a: 1\n"}, {"other.yaml": "a: 2\n"}},
		// found by the branch, and not repeated
		"nginx:3": {{"web.yaml": system.DeploymentWithImages("web", "nginx:1")}},
	} {
		name, goOn := strings.Replace(image, ":", "-", 1), filepath.Join(t.TempDir(), "go-on")
		script := []byte("#!/bin/sh\nuntil test -e '" + goOn + "'; do sleep 0.1; done\n")
		if err := os.WriteFile(hook, script, 0o700); err != nil { //nolint:gosec // git runs it
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.WriteFile(goOn, nil, 0o600) })
		s.ImageUpdateJob(name, imagev1alpha1.ImageUpdateJobSpec{Workloads: system.Containers("web"),
			Images: []string{image}})
		s.BranchHas("app", "main", "web.yaml", system.DeploymentWithImages("web", image))
		commit := s.Git.Run("app", "rev-parse", "main")
		j := s.ImageUpdateJobReady(name, metav1.ConditionUnknown, fmt.Sprintf("Pushing commit '%.7s'", commit))
		if j.Status.Commit != commit || j.Status.CompletionTime != nil {
			t.Errorf("status before the response to the push: %+v", j.Status)
		}
		s.Stop()
		if err := errors.Join(os.Remove(hook), os.WriteFile(goOn, nil, 0o600), os.RemoveAll(s.Storage)); err != nil {
			t.Fatal(err)
		}
		for _, files := range others {
			s.Git.Commit("app", files)
		}
		before := s.CommitCount("app", "main")
		s.Start()
		j = s.ImageUpdateJobReady(name, metav1.ConditionTrue,
			fmt.Sprintf("pushed commit '%.7s' to branch 'main'", commit))
		if j.Status.Commit != commit || j.Status.CompletionTime == nil || len(j.Status.Changes) != 1 ||
			j.Status.Changes[0].New != image {
			t.Errorf("status: %+v", j.Status)
		}
		if got := s.CommitCount("app", "main"); got != before {
			t.Errorf("%d commits, want %d", got, before)
		}
	}
}
