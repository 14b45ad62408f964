package automate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// mark returns a line with an image and its marker.
func (s *harness) mark(image, policy string, more ...string) string {
	setter := strings.Join(append([]string{s.Namespace, policy}, more...), ":")
	return fmt.Sprintf("image: %s # {\"$imagepolicy\": %q}\n", image, setter)
}

// pushed waits until the status of an automation has a pushed commit, so that all references are pushed.
func (s *harness) pushed(name, commit string) {
	s.Helper()
	testenv.Eventually(s, "the status of "+name+" has the push", func() error {
		a := &imagev1.ImageUpdateAutomation{}
		if err := s.Get(a, name); err != nil || a.Status.LastPushCommit != commit {
			return errors.Join(err, fmt.Errorf("%+v", a.Status))
		}
		return nil
	})
}

func TestImageUpdateCommit(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	s.Git.Commit("app", map[string]string{"apps/web.yaml": s.mark("web:1.0.0", "web"),
		"other/web.yaml": s.mark("web:1.0.0", "web"), "apps/none.yaml": "a: 1\n"})
	s.GitRepository("app")
	s.ChooseImage("web", "web:1.0.0")
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.Update = &imagev1.UpdateStrategy{Strategy: imagev1.UpdateSetters, Path: "./apps"}
		a.Spec.GitSpec.Commit.MessageTemplate = "Update for {{ .Values.team }}\n\n{{ range .Changed.Changes }}{{ " +
			".OldValue }} -> {{ .NewValue }}\n{{ end }}"
		a.Spec.GitSpec.Commit.MessageTemplateValues = map[string]string{"team": "shop"}
	})
	a := s.ImageUpdateAutomationReady("update", metav1.ConditionTrue, "Succeeded", "repository up-to-date")
	if a.Status.LastPushCommit != "" || a.Status.LastAutomationRunTime == nil {
		t.Errorf("%+v", a.Status)
	}

	s.ChooseImage("web", "web:2.0.0")
	s.BranchHas("app", "main", "apps/web.yaml", s.mark("web:2.0.0", "web"))
	s.BranchHas("app", "main", "other/web.yaml", s.mark("web:1.0.0", "web"))
	commit := s.Git.Run("app", "rev-parse", "main")
	s.pushed("update", commit)
	if got, want := s.Git.Run("app", "log", "-1", "--format=%an <%ae>|%cn|%B", "main"),
		"Robot <robot@example.com>|Robot|Update for shop\n\nweb:1.0.0 -> web:2.0.0"; strings.TrimSpace(got) != want {
		t.Errorf("commit message %q, want %q", got, want)
	}
	if got := s.Git.Run("app", "log", "-1", "--format=", "--name-only", "main"); got != "apps/web.yaml" {
		t.Errorf("changed files: %q", got)
	}
	checkNote(t, s, commit)
	app := s.GitRepositoryReady("app", commit) // without a request, and its interval is an hour
	if got := app.Status.Artifact.Metadata[meta.CommitNoteKey]; !strings.Contains(got, "web:2.0.0") {
		t.Errorf("the artifact lacks the note: %q", got)
	}
	s.eventTells("app", "source.toolkit.fluxcd.io/note", "policy: "+s.Namespace+"/web")
	statusHasPush(s, a, commit)
	s.HasEvent("update", "Succeeded", fmt.Sprintf("pushed commit '%.7s' to branch 'main'\nUpdate for shop", commit))
	s.HasEvent("update", "Succeeded", "apps/web.yaml:1: web:1.0.0 -> web:2.0.0")

	t.Log("an existing image is not committed again")
	s.RequestReconcile(&imagev1.ImageUpdateAutomation{}, "update")
	s.RequestReconcile(&sourcev1.GitRepository{}, "app")
	s.ChooseImage("api", "api:1") // enqueues it as well
	testenv.Eventually(s, "the automation ran again", func() error {
		if err := s.Get(a, "update"); err != nil {
			return err
		}
		if a.Status.ObservedPolicies["api"].Tag != "1" {
			return fmt.Errorf("%+v", a.Status)
		}
		return nil
	})
	if got := s.CommitCount("app", "main"); got != 2 {
		t.Errorf("%d commits", got)
	}
}

// checkNote checks the note of the commit.
func checkNote(t *testing.T, s *harness, commit string) {
	t.Helper()
	note, err := record.Parse(s.Git.Run("app", "notes", "--ref", git.NotesRef, "show", commit))
	if err != nil || note.By != "ImageUpdateAutomation "+s.Namespace+"/update" || len(note.Updated) != 1 {
		t.Fatalf("note: %+v, %v", note, err)
	}
	if u := note.Updated[0]; u.Image != "web:2.0.0" || u.Policy != s.Namespace+"/web" ||
		!strings.Contains(u.Why, ">=1.0.0") || len(u.Places) != 1 || u.Places[0].File != "apps/web.yaml:1" ||
		u.Places[0].From != "web:1.0.0" {
		t.Errorf("change in the note: %+v", u)
	}
}

// statusHasPush waits until the status reports the push.
func statusHasPush(s *harness, a *imagev1.ImageUpdateAutomation, commit string) {
	testenv.Eventually(s, "the status has the push", func() error {
		if err := s.Get(a, "update"); err != nil {
			return err
		}
		if st := a.Status; st.LastPushTime == nil || st.ObservedSourceRevision != "main@sha1:"+commit ||
			st.ObservedPolicies["web"].Tag != "2.0.0" || !reconcile.IsReady(a) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// eventTells waits for an event about an object with metadata that contains a text.
func (s *harness) eventTells(name, key, message string) {
	s.Helper()
	testenv.Eventually(s, "metadata of an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == name && strings.Contains(e.Annotations[key], message) {
				return nil
			}
		}
		return fmt.Errorf("none of %d events", len(list.Items))
	})
}

func TestPushBranchIsRecreatedUnlessUpToDate(t *testing.T) {
	s := newHarness(t, system.ImageAutomation, func(o *options.Options) {
		o.FeatureGates = map[string]string{"GitForcePushBranch": "true"}
	})
	s.Git.Commit("app", map[string]string{"web.yaml": s.mark("web:1.0.0", "web")})
	s.GitRepository("app")
	s.ChooseImage("web", "web:2.0.0")
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Push = &imagev1.PushSpec{Branch: "auto", Refspec: "refs/heads/auto:refs/heads/review"}
	})
	s.BranchHas("app", "auto", "web.yaml", s.mark("web:2.0.0", "web"))
	first := s.Git.Run("app", "rev-parse", "auto")
	s.pushed("update", first)
	if s.Git.Run("app", "rev-parse", "review") != first || s.CommitCount("app", "main") != 1 {
		t.Error("the refspec was ignored, or main was pushed")
	}

	t.Log("a branch that has the changes is kept, with commits of others")
	added := s.Git.CommitTo("app", "refs/heads/auto", map[string]string{"added.yaml": "by: hand\n"})
	run := func() {
		a := &imagev1.ImageUpdateAutomation{}
		if err := s.Get(a, "update"); err != nil {
			t.Fatal(err)
		}
		asked := time.Now().Format(time.RFC3339Nano)
		before := a.DeepCopy()
		a.Annotations = map[string]string{meta.ReconcileRequestAnnotation: asked}
		if err := s.Client.Patch(t.Context(), a, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(s, "the request is handled", func() error {
			if err := s.Get(a, "update"); err != nil || a.Status.LastHandledReconcileAt != asked ||
				!reconcile.IsReady(a) {
				return fmt.Errorf("%+v, %w", a.Status, err)
			}
			return nil
		})
	}
	run()
	if got := s.Git.Run("app", "rev-parse", "auto"); got != added {
		t.Errorf("the branch was pushed again: %s", got)
	}

	t.Log("main has a new commit: the branch is recreated from it, as it has no commits of others any more")
	s.Git.Run("app", "update-ref", "-d", "refs/heads/review")
	s.Git.Run("app", "update-ref", "refs/heads/auto", first)
	moved := s.Git.Commit("app", map[string]string{"a.yaml": "a: 1\n"})
	run()
	if got := s.Git.Run("app", "rev-parse", "auto^"); got != moved {
		t.Errorf("parent of the branch: %s, want %s", got, moved)
	}

	t.Log("after the merge there is nothing to do")
	s.Git.Run("app", "update-ref", "refs/heads/main", "auto")
	merged := s.Git.Run("app", "rev-parse", "auto")
	run()
	if got := s.Git.Run("app", "rev-parse", "auto"); got != merged {
		t.Errorf("the branch moved to %s", got)
	}
}

// Without the feature gate, nothing is force-pushed, and commits of others stay.
func TestPushBranchIsKeptWithoutFeatureGate(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	s.Git.Commit("app", map[string]string{"web.yaml": s.mark("web:1", "web")})
	s.GitRepository("app")
	s.ChooseImage("web", "web:2")
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Push = &imagev1.PushSpec{Branch: "auto"}
	})
	s.BranchHas("app", "auto", "web.yaml", s.mark("web:2", "web"))
	s.Git.Run("app", "config", "receive.denyNonFastForwards", "true")
	theirs := s.Git.CommitTo("app", "refs/heads/auto", map[string]string{"theirs.yaml": "a: 1\n"})
	s.Git.Commit("app", map[string]string{"main.yaml": "a: 1\n"})
	s.ChooseImage("web", "web:3")
	s.BranchHas("app", "auto", "web.yaml", s.mark("web:3", "web"))
	if got := s.Git.Run("app", "rev-parse", "auto^"); got != theirs {
		t.Errorf("parent of the branch: %s, want %s", got, theirs)
	}
	s.ImageUpdateAutomationReady("update", metav1.ConditionTrue, "Succeeded", "up-to-date")
	if got := s.CommitCount("app", "main"); got != 2 {
		t.Errorf("%d commits on main", got)
	}
}

var automationErrors = map[string]struct {
	source  string
	change  func(*imagev1.ImageUpdateAutomation)
	reason  string
	message string
}{
	"protected": {source: "protected", change: func(*imagev1.ImageUpdateAutomation) {}, reason: "GitOperationFailed",
		message: "main is protected"},
	"nowhere": {source: "none", change: func(*imagev1.ImageUpdateAutomation) {}, reason: "SourceManagerFailed",
		message: "not found"},
	"no-branch": {source: "tag", change: func(*imagev1.ImageUpdateAutomation) {}, reason: "InvalidSourceConfiguration",
		message: "The checked out reference is not a branch: set spec.git.push.branch"},
	"lost": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Checkout = &imagev1.GitCheckoutSpec{Reference: sourcev1.GitRepositoryRef{Branch: "none"}}
	}, reason: "GitOperationFailed", message: "branch 'none' not found"},
	"selector": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.PolicySelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}
	}, reason: "InvalidPolicySelector", message: "spec.policySelector"},
	"legacy": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Commit.MessageTemplate = "{{ range .Updated.Images }}{{ . }}{{ end }}"
	}, reason: "RemovedTemplateField", message: ".Changed"},
	"template": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Commit.MessageTemplate = "{{ if }}"
	},
		reason:  "UpdateFailed",
		message: "messageTemplate"},
	"no-dir": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.Update = &imagev1.UpdateStrategy{Path: "none"}
	},
		reason: "UpdateFailed", message: "no directory 'none'. Set spec.update.path to the directory that has the " +
			"manifests"},
	"refspec": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Push = &imagev1.PushSpec{Refspec: "refs/heads/*:refs/heads/x"}
	}, reason: "InvalidSourceConfiguration", message: "refspec"},
	"no-key": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Commit.SigningKey = &imagev1.SigningKey{SecretRef: meta.LocalObjectReference{Name: "none"}}
	}, reason: "AuthenticationFailed", message: "not found"},
	"no-message": {source: "app", change: func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Commit.MessageTemplate = "{{ if eq 1 2 }}x{{ end }}"
		a.Spec.GitSpec.Push = &imagev1.PushSpec{Branch: "x"}
	}, reason: "UpdateFailed", message: "empty"},
}

func TestAutomationErrors(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	s.Git.Commit("app", map[string]string{
		"web.yaml": s.mark("web:1", "web"), "bad.yaml": "image: x # {\"$imagepolicy\": oops}\n",
		"unknown.yaml":     s.mark("x:1", "gone"),
		"foreign.yaml":     "image: x:1 # {\"$imagepolicy\": \"elsewhere:x\"}\n",
		"templates/a.yaml": "image: {{ .Values.image }}:1\n",
	})
	s.Git.Commit("protected", map[string]string{"web.yaml": s.mark("web:1", "web")})
	hook := "#!/bin/sh\necho 'main is protected'\nexit 1\n"
	file := filepath.Join(s.Git.Root, "protected.git", "hooks", "update")
	if err := os.WriteFile(file, []byte(hook), 0o700); err != nil { //nolint:gosec // git runs it
		t.Fatal(err)
	}
	s.GitRepository("app")
	s.GitRepository("protected")
	s.GitRepository("tag", func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.Reference = s.Git.URL+"/app", &sourcev1.GitRepositoryRef{Tag: "v1"}
	})
	s.ChooseImage("web", "web:2")
	for name, c := range automationErrors {
		s.ImageUpdateAutomation(name, c.source, c.change)
		s.ImageUpdateAutomationReady(name, metav1.ConditionFalse, c.reason, c.message)
	}
	if got := s.Git.Run("protected", "for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
		t.Errorf("branch of the protected repository: %s", got)
	}
	if got := s.CommitCount("app", "main"); got != 1 {
		t.Fatalf("%d commits", got)
	}

	reportsFilesWithErrors(t, s)
}

// reportsFilesWithErrors checks an update of a repository that has files with errors.
func reportsFilesWithErrors(t *testing.T, s *harness) {
	t.Helper()
	t.Log("errors in files are reported with their place, and the other files are updated")
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.Bindings = []imagev1.Binding{{PolicyRef: meta.LocalObjectReference{Name: "web"},
			Workload: &imagev1.WorkloadContainer{Kind: "Deployment", Name: "none"}}}
	})
	s.BranchHas("app", "main", "web.yaml", s.mark("web:2", "web"))
	a := s.ImageUpdateAutomationReady("update", metav1.ConditionTrue, "Succeeded", "bad.yaml:1: malformed marker")
	message := apimeta.FindStatusCondition(a.Status.Conditions, "Ready").Message
	for _, want := range []string{"unknown.yaml:1: ", "binding 1: no file has the container of Deployment 'none'"} {
		if !strings.Contains(message, want) {
			t.Errorf("the message lacks %s: %s", want, message)
		}
	}
	if strings.Contains(message, "foreign.yaml") || strings.Contains(message, "templates/") {
		t.Errorf("the message contains data of another namespace: %s", message)
	}
}

func TestCrossNamespaceSourceForbidden(t *testing.T) {
	s := newHarness(t, system.ImageAutomation, func(o *options.Options) { o.NoCrossNamespaceRefs = true })
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.SourceRef.Namespace = "other"
	})
	s.ImageUpdateAutomationReady("update", metav1.ConditionFalse, "AccessDenied", "Cross-namespace references are "+
		"disabled (--no-cross-namespace-refs): use a GitRepository in namespace '"+s.Namespace+"'")
}
