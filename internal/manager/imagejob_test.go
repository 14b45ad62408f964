package manager

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// deploymentOf is a Deployment with containers by name, in the order of their images.
func deploymentOf(name string, images ...string) string {
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: " + name +
		"\nspec:\n  template:\n    spec:\n      containers:\n"
	for i, image := range images {
		text += fmt.Sprintf("        - name: c%d\n          image: %s # as it runs\n", i, image)
	}
	return text
}

// release makes a job.
func (s *system) release(name string, spec imagev1alpha1.ImageUpdateJobSpec) {
	s.Helper()
	spec.AutomationRef.Name = "update"
	s.create(&imagev1alpha1.ImageUpdateJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: spec})
}

// released waits until a job says something, being Ready or not.
func (s *system) released(name string, status metav1.ConditionStatus, says string) *imagev1alpha1.ImageUpdateJob {
	s.Helper()
	j := &imagev1alpha1.ImageUpdateJob{}
	testenv.Eventually(s, fmt.Sprintf("%s says %s", name, says), func() error {
		*j = imagev1alpha1.ImageUpdateJob{}
		if err := s.get(j, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(j.Status.Conditions, reconcile.TypeReady)
		if c == nil || c.Status != status || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", j.Status)
		}
		return nil
	})
	return j
}

func of(names ...string) (all []imagev1.WorkloadContainer) {
	for _, name := range names {
		name, container, _ := strings.Cut(name, ":")
		all = append(all, imagev1.WorkloadContainer{Kind: "Deployment", Name: name, Container: container})
	}
	return all
}

func TestAReleaseIsCommittedOnce(t *testing.T) {
	s := newSystem(t, automating)
	s.git.Commit("app", map[string]string{"web.yaml": deploymentOf("web", "nginx:1.0.0", "ghcr.io/org/side:1"),
		"db.yaml": deploymentOf("db", "nginx:1.0.0")})
	s.source("app")
	s.automate("update", "app")
	s.automated("update", metav1.ConditionTrue, "Succeeded", "up-to-date")

	s.release("dry", imagev1alpha1.ImageUpdateJobSpec{Workloads: of("web"), Images: []string{"nginx:1.1.0"},
		DryRun: true})
	dry := s.released("dry", metav1.ConditionTrue, "1 values would be changed")
	if dry.Status.Commit != "" || dry.Status.CompletionTime == nil ||
		!strings.Contains(dry.Status.Diff, "-nginx:1.0.0\n+nginx:1.1.0") || s.commits("app", "main") != 1 {
		t.Errorf("a dry run says %+v", dry.Status)
	}

	s.release("web", imagev1alpha1.ImageUpdateJobSpec{
		Workloads: of("web"), Images: []string{"nginx:1.1.0"}, Author: "Ada <ada@example.com>",
		Reason: "fixes the login",
	})
	j := s.released("web", metav1.ConditionTrue, "pushed commit")
	if got := s.git.Run("app", "show", "main:web.yaml") +
		"\n"; got != deploymentOf("web", "nginx:1.1.0", "ghcr.io/org/side:1") {
		t.Errorf("web.yaml is\n%s", got)
	}
	if got := s.git.Run("app", "show", "main:db.yaml") + "\n"; got != deploymentOf("db", "nginx:1.0.0") {
		t.Errorf("db.yaml is\n%s", got)
	}
	if got := s.git.Run("app", "log", "-1", "--format=%H %an <%ae> %cn|%B", "main"); got != j.Status.Commit+
		" Ada <ada@example.com> Robot|Update from image update automation\n\nfixes the login" {
		t.Errorf("the commit is %q, the status has %s", got, j.Status.Commit)
	}
	note, err := record.Parse(s.git.Run("app", "notes", "--ref", git.NotesRef, "show", "main"))
	if err != nil || note.By != "ImageUpdateJob "+s.namespace+"/web" || note.Author != "Ada <ada@example.com>" ||
		note.Reason != "fixes the login" || len(note.Updated) != 1 || note.Updated[0].Image != "nginx:1.1.0" {
		t.Errorf("the note is %+v, %v", note, err)
	}
	if c := j.Status.Changes; len(c) != 1 || c[0].File != "web.yaml" || c[0].Container != "c0" ||
		c[0].Old != "nginx:1.0.0" || c[0].New != "nginx:1.1.0" {
		t.Errorf("the changes are %+v", c)
	}

	// It does not run again, though somebody set it back.
	s.git.Commit("app", map[string]string{"web.yaml": deploymentOf("web", "nginx:1.0.0")})
	before := s.commits("app", "main")
	s.annotate(j, "web")
	asked := j.Annotations[meta.ReconcileRequestAnnotation]
	testenv.Eventually(t, "the request was seen", func() error {
		if err := s.get(j, "web"); err != nil || j.Status.LastHandledReconcileAt != asked {
			return errors.Join(err, fmt.Errorf("%+v", j.Status))
		}
		return nil
	})
	s.release("all", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"docker.io/library/nginx:2.0.0"}})
	s.released("all", metav1.ConditionTrue, "pushed commit")
	if got := s.commits("app", "main"); got != before+1 {
		t.Errorf("there are %d commits, want %d", got, before+1)
	}
	for file, want := range map[string]string{"web.yaml": deploymentOf("web", "nginx:2.0.0"),
		"db.yaml": deploymentOf("db", "nginx:2.0.0")} {
		if got := s.git.Run("app", "show", "main:"+file) + "\n"; got != want {
			t.Errorf("%s is\n%s", file, got)
		}
	}
	s.release("again", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"nginx:2.0.0"}})
	s.released("again", metav1.ConditionTrue, "nothing was to be changed")
	s.release("nowhere", imagev1alpha1.ImageUpdateJobSpec{Workloads: of("web", "api"), Images: []string{"nginx:2.0.0"}})
	if j := s.released("nowhere", metav1.ConditionFalse,
		"no file has the Deployment 'api'"); j.Status.CompletionTime == nil {
		t.Error("a job that cannot be done goes on")
	}
	s.release("unused", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"redis:7"}})
	s.released("unused", metav1.ConditionFalse, "has the image 'redis'")

	hook := filepath.Join(s.git.Root, "app.git", "hooks", "update")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho 'main is protected'\nexit 1\n"), 0o700); err != nil { //nolint:gosec // git runs it
		t.Fatal(err)
	}
	s.release("declined", imagev1alpha1.ImageUpdateJobSpec{Images: []string{"nginx:3.0.0"}})
	if j := s.released("declined", metav1.ConditionFalse, "main is protected"); j.Status.CompletionTime == nil ||
		j.Status.Commit != "" || len(j.Status.Changes) == 0 {
		t.Errorf("what was declined has the status %+v", j.Status)
	}
}

func TestAReleaseOfTheLatestTouchesOnlyWhatWasAskedFor(t *testing.T) {
	s := newSystem(t, automating)
	s.gate("freeze")
	s.git.Commit("app", map[string]string{"web.yaml": deploymentOf("web", "nginx:1", "nginx:1", "redis:1"),
		"db.yaml": deploymentOf("db", "redis:1")})
	s.source("app")
	s.choose("nginx", "nginx:2")
	s.choose("redis", "redis:2")
	s.automate("update", "app", func(a *imagev1.ImageUpdateAutomation) { a.Spec.Gates = behind("freeze") })
	s.release("one", imagev1alpha1.ImageUpdateJobSpec{Workloads: of("web:c1"), Latest: true})
	held := &imagev1alpha1.ImageUpdateJob{}
	testenv.Eventually(t, "the gate of the automation holds the job", func() error {
		if err := s.get(held, "one"); err != nil {
			return err
		}
		if p := held.Status.Pending; p == nil || !strings.Contains(p.Revision, "nginx:2") ||
			held.Status.CompletionTime != nil {
			return fmt.Errorf("%+v", held.Status)
		}
		return nil
	})
	if got := s.commits("app", "main"); got != 1 {
		t.Errorf("there are %d commits behind a closed gate", got)
	}
	s.turn("freeze", gatingv1.Opened)
	s.released("one", metav1.ConditionTrue, "pushed commit")
	if got := s.git.Run("app", "show", "main:web.yaml") +
		"\n"; got != deploymentOf("web", "nginx:1", "nginx:2", "redis:1") {
		t.Errorf("web.yaml is\n%s", got)
	}
	s.release("rest", imagev1alpha1.ImageUpdateJobSpec{Workloads: of("web"), Latest: true})
	s.released("rest", metav1.ConditionTrue, "pushed commit")
	if got := s.git.Run("app", "show", "main:web.yaml") +
		"\n"; got != deploymentOf("web", "nginx:2", "nginx:2", "redis:2") {
		t.Errorf("web.yaml is\n%s", got)
	}
	if got := s.git.Run("app", "show", "main:db.yaml") + "\n"; got != deploymentOf("db", "redis:1") {
		t.Errorf("db.yaml is\n%s", got)
	}
}

// TestAReleaseThatIsKilledFindsItsCommit: the process ends after the push arrived and before it heard of
// that, and others push before the next one starts.
func TestAReleaseThatIsKilledFindsItsCommit(t *testing.T) {
	s := newSystem(t, automating)
	s.git.Commit("app", map[string]string{"web.yaml": deploymentOf("web", "nginx:1")})
	s.source("app")
	s.automate("update", "app")
	s.automated("update", metav1.ConditionTrue, "Succeeded", "up-to-date")
	hook := filepath.Join(s.git.Root, "app.git", "hooks", "post-receive")
	for image, others := range map[string][]map[string]string{
		"nginx:2": {{"other.yaml": "a: 1\n"}, {"other.yaml": "a: 2\n"}}, // found by its note, as the mirror is lost
		"nginx:3": {{"web.yaml": deploymentOf("web", "nginx:1")}},       // found by the branch, and not done again
	} {
		name, goOn := strings.Replace(image, ":", "-", 1), filepath.Join(t.TempDir(), "go-on")
		if err := os.WriteFile(hook, []byte("#!/bin/sh\nuntil test -e '"+goOn+"'; do sleep 0.1; done\n"), 0o700); err != nil { //nolint:gosec // git runs it
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.WriteFile(goOn, nil, 0o600) })
		s.release(name, imagev1alpha1.ImageUpdateJobSpec{Workloads: of("web"), Images: []string{image}})
		s.has("app", "main", "web.yaml", deploymentOf("web", image))
		commit := s.git.Run("app", "rev-parse", "main")
		j := s.released(name, metav1.ConditionUnknown, fmt.Sprintf("Pushing commit '%.7s'", commit))
		if j.Status.Commit != commit || j.Status.CompletionTime != nil {
			t.Errorf("before the push is known to be taken the status is %+v", j.Status)
		}
		s.stop()
		if err := errors.Join(os.Remove(hook), os.WriteFile(goOn, nil, 0o600), os.RemoveAll(s.storage)); err != nil {
			t.Fatal(err)
		}
		for _, files := range others {
			s.git.Commit("app", files)
		}
		before := s.commits("app", "main")
		s.start()
		j = s.released(name, metav1.ConditionTrue, fmt.Sprintf("pushed commit '%.7s' to branch 'main'", commit))
		if j.Status.Commit != commit || j.Status.CompletionTime == nil || len(j.Status.Changes) != 1 ||
			j.Status.Changes[0].New != image {
			t.Errorf("the status is %+v", j.Status)
		}
		if got := s.commits("app", "main"); got != before {
			t.Errorf("there are %d commits, want %d", got, before)
		}
	}
}
