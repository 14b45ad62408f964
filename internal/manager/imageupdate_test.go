package manager

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
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// automating leaves policies to the test: no registry is asked.
func automating(o *Options) {
	o.Controllers = []string{SourceController, GatingController, ImageAutomationController}
}

// choose makes a policy choose an image.
func (s *system) choose(policy, image string, labels ...string) {
	s.Helper()
	p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: policy}}
	if s.get(p, policy) != nil {
		p.Labels = map[string]string{}
		for _, l := range labels {
			p.Labels[l] = "yes"
		}
		p.Spec.ImageRepositoryRef.Name = policy
		p.Spec.Policy.SemVer = &imagev1.SemVerPolicy{Range: ">=1.0.0"}
		s.create(p)
	}
	before := p.DeepCopy()
	name, tag, _ := strings.Cut(image, ":")
	p.Status.LatestRef = &imagev1.ImageRef{Name: name, Tag: tag}
	if err := s.client.Status().Patch(s.Context(), p, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
}

// automate creates an automation of the GitRepository of that name.
func (s *system) automate(name, source string, change ...func(*imagev1.ImageUpdateAutomation)) {
	s.Helper()
	a := &imagev1.ImageUpdateAutomation{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: imagev1.ImageUpdateAutomationSpec{
			Interval:  metav1.Duration{Duration: time.Hour},
			SourceRef: imagev1.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: source},
			GitSpec: &imagev1.GitSpec{Commit: imagev1.CommitSpec{Author: imagev1.CommitUser{Name: "Robot",
				Email: "robot@example.com"}}},
		},
	}
	for _, c := range change {
		c(a)
	}
	s.create(a)
}

func (s *system) mark(image, policy string, more ...string) string {
	setter := strings.Join(append([]string{s.namespace, policy}, more...), ":")
	return fmt.Sprintf("image: %s # {\"$imagepolicy\": %q}\n", image, setter)
}

// has waits until a file of a branch has a content.
func (s *system) has(repo, branch, file, want string) {
	s.Helper()
	testenv.Eventually(s, fmt.Sprintf("%s of %s is as wanted", file, branch), func() error {
		if s.git.Run(repo, "for-each-ref", "refs/heads/"+branch) == "" ||
			s.git.Run(repo, "ls-tree", branch, "--", file) == "" {
			return errors.New("not there")
		}
		if got := s.git.Run(repo, "show", branch+":"+file) + "\n"; got != want {
			a := &imagev1.ImageUpdateAutomationList{}
			err := s.client.List(s.Context(), a, client.InNamespace(s.namespace))
			states := ""
			for _, i := range a.Items {
				states += fmt.Sprintf("\n%s %+v", i.Name, i.Status)
			}
			return errors.Join(err, fmt.Errorf("%q %s", got, states))
		}
		return nil
	})
}

// automated waits until an automation says something, being Ready or not.
func (s *system) automated(name string, status metav1.ConditionStatus, reason,
	says string) *imagev1.ImageUpdateAutomation {
	s.Helper()
	a := &imagev1.ImageUpdateAutomation{}
	testenv.Eventually(s, fmt.Sprintf("%s says %s", name, says), func() error {
		*a = imagev1.ImageUpdateAutomation{}
		if err := s.get(a, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(a.Status.Conditions, reconcile.TypeReady)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	return a
}

// pushed waits until an automation tells that it pushed a commit: all references of the push are there.
func (s *system) pushed(name, commit string) {
	s.Helper()
	testenv.Eventually(s, name+" tells of the push", func() error {
		a := &imagev1.ImageUpdateAutomation{}
		if err := s.get(a, name); err != nil || a.Status.LastPushCommit != commit {
			return errors.Join(err, fmt.Errorf("%+v", a.Status))
		}
		return nil
	})
}

func (s *system) commits(repo, branch string) int {
	s.Helper()
	return len(strings.Fields(s.git.Run(repo, "rev-list", branch)))
}

func TestAnImageThatAPolicyChoosesIsCommittedWithANote(t *testing.T) {
	s := newSystem(t, automating)
	s.git.Commit("app", map[string]string{"apps/web.yaml": s.mark("web:1.0.0", "web"),
		"other/web.yaml": s.mark("web:1.0.0", "web"), "apps/none.yaml": "a: 1\n"})
	s.source("app")
	s.choose("web", "web:1.0.0")
	s.automate("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.Update = &imagev1.UpdateStrategy{Strategy: imagev1.UpdateSetters, Path: "./apps"}
		a.Spec.GitSpec.Commit.MessageTemplate = "Update for {{ .Values.team }}\n\n{{ range .Changed.Changes }}{{ " +
			".OldValue }} -> {{ .NewValue }}\n{{ end }}"
		a.Spec.GitSpec.Commit.MessageTemplateValues = map[string]string{"team": "shop"}
	})
	a := s.automated("update", metav1.ConditionTrue, "Succeeded", "repository up-to-date")
	if a.Status.LastPushCommit != "" || a.Status.LastAutomationRunTime == nil {
		t.Errorf("%+v", a.Status)
	}

	s.choose("web", "web:2.0.0")
	s.has("app", "main", "apps/web.yaml", s.mark("web:2.0.0", "web"))
	s.has("app", "main", "other/web.yaml", s.mark("web:1.0.0", "web"))
	commit := s.git.Run("app", "rev-parse", "main")
	s.pushed("update", commit)
	if got, want := s.git.Run("app", "log", "-1", "--format=%an <%ae>|%cn|%B", "main"),
		"Robot <robot@example.com>|Robot|Update for shop\n\nweb:1.0.0 -> web:2.0.0"; strings.TrimSpace(got) != want {
		t.Errorf("the commit says %q, want %q", got, want)
	}
	if got := s.git.Run("app", "log", "-1", "--format=", "--name-only", "main"); got != "apps/web.yaml" {
		t.Errorf("the commit changed %q", got)
	}
	note, err := record.Parse(s.git.Run("app", "notes", "--ref", git.NotesRef, "show", commit))
	if err != nil || note.By != "ImageUpdateAutomation "+s.namespace+"/update" || len(note.Updated) != 1 {
		t.Fatalf("the note is %+v, %v", note, err)
	}
	if u := note.Updated[0]; u.Image != "web:2.0.0" || u.Policy != s.namespace+"/web" ||
		!strings.Contains(u.Why, ">=1.0.0") || len(u.Places) != 1 || u.Places[0].File != "apps/web.yaml:1" ||
		u.Places[0].From != "web:1.0.0" {
		t.Errorf("the note says %+v", u)
	}
	app := s.cloned("app", commit) // without being asked, and its interval is an hour
	if got := app.Status.Artifact.Metadata[meta.CommitNoteKey]; !strings.Contains(got, "web:2.0.0") {
		t.Errorf("the artifact does not tell of the note: %q", got)
	}
	s.eventTells("app", "source.toolkit.fluxcd.io/note", "policy: "+s.namespace+"/web")
	testenv.Eventually(s, "the status tells of the push", func() error {
		if err := s.get(a, "update"); err != nil {
			return err
		}
		if st := a.Status; st.LastPushTime == nil || st.ObservedSourceRevision != "main@sha1:"+commit ||
			st.ObservedPolicies["web"].Tag != "2.0.0" || !reconcile.IsReady(a) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	s.told("update", "Succeeded", fmt.Sprintf("pushed commit '%.7s' to branch 'main'\nUpdate for shop", commit))
	s.told("update", "Succeeded", "apps/web.yaml:1: web:1.0.0 -> web:2.0.0")

	t.Log("what is there already is not committed again")
	s.annotate(&imagev1.ImageUpdateAutomation{}, "update")
	s.annotate(&sourcev1.GitRepository{}, "app")
	s.choose("api", "api:1") // wakes it, too
	testenv.Eventually(s, "it ran again", func() error {
		if err := s.get(a, "update"); err != nil {
			return err
		}
		if a.Status.ObservedPolicies["api"].Tag != "1" {
			return fmt.Errorf("%+v", a.Status)
		}
		return nil
	})
	if got := s.commits("app", "main"); got != 2 {
		t.Errorf("there are %d commits", got)
	}
}

// eventTells waits for an event about an object whose metadata says something.
func (s *system) eventTells(name, key, says string) {
	s.Helper()
	testenv.Eventually(s, "metadata of an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == name && strings.Contains(e.Annotations[key], says) {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
}

func TestAPushBranchIsMadeAnewUnlessItHasTheChanges(t *testing.T) {
	s := newSystem(t, automating)
	s.git.Commit("app", map[string]string{"web.yaml": s.mark("web:1.0.0", "web")})
	s.source("app")
	s.choose("web", "web:2.0.0")
	s.automate("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Push = &imagev1.PushSpec{Branch: "auto", Refspec: "refs/heads/auto:refs/heads/review"}
	})
	s.has("app", "auto", "web.yaml", s.mark("web:2.0.0", "web"))
	first := s.git.Run("app", "rev-parse", "auto")
	s.pushed("update", first)
	if s.git.Run("app", "rev-parse", "review") != first || s.commits("app", "main") != 1 {
		t.Error("the refspec was not followed, or main was pushed to")
	}

	t.Log("what is on the branch already counts, with what others added")
	added := s.git.CommitTo("app", "refs/heads/auto", map[string]string{"added.yaml": "by: hand\n"})
	run := func() {
		a := &imagev1.ImageUpdateAutomation{}
		if err := s.get(a, "update"); err != nil {
			t.Fatal(err)
		}
		asked := time.Now().Format(time.RFC3339Nano)
		before := a.DeepCopy()
		a.Annotations = map[string]string{meta.ReconcileRequestAnnotation: asked}
		if err := s.client.Patch(t.Context(), a, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(s, "the request is handled", func() error {
			if err := s.get(a, "update"); err != nil || a.Status.LastHandledReconcileAt != asked ||
				!reconcile.IsReady(a) {
				return fmt.Errorf("%+v, %w", a.Status, err)
			}
			return nil
		})
	}
	run()
	if got := s.git.Run("app", "rev-parse", "auto"); got != added {
		t.Errorf("the branch was pushed to again: %s", got)
	}

	t.Log("main went on: the branch is made anew of it")
	s.git.Run("app", "update-ref", "-d", "refs/heads/review")
	moved := s.git.Commit("app", map[string]string{"a.yaml": "a: 1\n"})
	run()
	if got := s.git.Run("app", "rev-parse", "auto^"); got != moved {
		t.Errorf("the branch is upon %s, want %s", got, moved)
	}

	t.Log("once it is merged, nothing is left to do")
	s.git.Run("app", "update-ref", "refs/heads/main", "auto")
	merged := s.git.Run("app", "rev-parse", "auto")
	run()
	if got := s.git.Run("app", "rev-parse", "auto"); got != merged {
		t.Errorf("the branch moved to %s", got)
	}
}

// TestAPushBranchIsBuiltUpon with the feature gate off: nothing is forced, and what others pushed there stays.
func TestAPushBranchIsBuiltUpon(t *testing.T) {
	s := newSystem(t, automating, func(o *Options) {
		o.FeatureGates = map[string]string{"GitForcePushBranch": "false"}
	})
	s.git.Commit("app", map[string]string{"web.yaml": s.mark("web:1", "web")})
	s.source("app")
	s.choose("web", "web:2")
	s.automate("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Push = &imagev1.PushSpec{Branch: "auto"}
	})
	s.has("app", "auto", "web.yaml", s.mark("web:2", "web"))
	s.git.Run("app", "config", "receive.denyNonFastForwards", "true")
	theirs := s.git.CommitTo("app", "refs/heads/auto", map[string]string{"theirs.yaml": "a: 1\n"})
	s.git.Commit("app", map[string]string{"main.yaml": "a: 1\n"})
	s.choose("web", "web:3")
	s.has("app", "auto", "web.yaml", s.mark("web:3", "web"))
	if got := s.git.Run("app", "rev-parse", "auto^"); got != theirs {
		t.Errorf("the branch is upon %s, want %s", got, theirs)
	}
	s.automated("update", metav1.ConditionTrue, "Succeeded", "up-to-date")
	if got := s.commits("app", "main"); got != 2 {
		t.Errorf("main has %d commits", got)
	}
}

func TestWhatKeepsAnAutomationIsToldClearly(t *testing.T) {
	s := newSystem(t, automating)
	s.git.Commit("app", map[string]string{
		"web.yaml": s.mark("web:1", "web"), "bad.yaml": "image: x # {\"$imagepolicy\": oops}\n",
		"unknown.yaml":     s.mark("x:1", "gone"),
		"foreign.yaml":     "image: x:1 # {\"$imagepolicy\": \"elsewhere:x\"}\n",
		"templates/a.yaml": "image: {{ .Values.image }}:1\n",
	})
	s.git.Commit("protected", map[string]string{"web.yaml": s.mark("web:1", "web")})
	hook := "#!/bin/sh\necho 'main is protected'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(s.git.Root, "protected.git", "hooks", "update"), []byte(hook), 0o700); err != nil { //nolint:gosec // git runs it
		t.Fatal(err)
	}
	s.source("app")
	s.source("protected")
	s.source("tag", func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.Reference = s.git.URL+"/app", &sourcev1.GitRepositoryRef{Tag: "v1"}
	})
	s.choose("web", "web:2")
	type automation = imagev1.ImageUpdateAutomation
	for name, c := range map[string]struct {
		source string
		change func(*automation)
		reason string
		says   string
	}{
		"protected": {"protected", func(*automation) {}, "GitOperationFailed", "main is protected"},
		"nowhere":   {"none", func(*automation) {}, "SourceManagerFailed", "not found"},
		"no-branch": {"tag", func(*automation) {}, "InvalidSourceConfiguration", "no branch to push to"},
		"lost": {"app", func(a *automation) {
			a.Spec.GitSpec.Checkout = &imagev1.GitCheckoutSpec{Reference: sourcev1.GitRepositoryRef{Branch: "none"}}
		}, "GitOperationFailed", "branch 'none' not found"},
		"selector": {"app", func(a *automation) {
			a.Spec.PolicySelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}
		}, "InvalidPolicySelector", "spec.policySelector"},
		"legacy": {"app", func(a *automation) {
			a.Spec.GitSpec.Commit.MessageTemplate = "{{ range .Updated.Images }}{{ . }}{{ end }}"
		}, "RemovedTemplateField", ".Changed"},
		"template": {"app", func(a *automation) { a.Spec.GitSpec.Commit.MessageTemplate = "{{ if }}" }, "UpdateFailed",
			"messageTemplate"},
		"no-dir": {"app", func(a *automation) { a.Spec.Update = &imagev1.UpdateStrategy{Path: "none"} },
			"UpdateFailed", "no directory 'none'"},
		"refspec": {"app", func(a *automation) {
			a.Spec.GitSpec.Push = &imagev1.PushSpec{Refspec: "+refs/heads/main:refs/heads/x"}
		}, "InvalidSourceConfiguration", "refspec"},
		"no-key": {"app", func(a *automation) {
			a.Spec.GitSpec.Commit.SigningKey = &imagev1.SigningKey{SecretRef: meta.LocalObjectReference{Name: "none"}}
		}, "AuthenticationFailed", "not found"},
		"no-message": {"app", func(a *automation) {
			a.Spec.GitSpec.Commit.MessageTemplate = "{{ if eq 1 2 }}x{{ end }}"
			a.Spec.GitSpec.Push = &imagev1.PushSpec{Branch: "x"}
		}, "UpdateFailed", "empty"},
	} {
		s.automate(name, c.source, c.change)
		s.automated(name, metav1.ConditionFalse, c.reason, c.says)
	}
	if got := s.git.Run("protected", "for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
		t.Errorf("the protected repository has %s", got)
	}
	if got := s.commits("app", "main"); got != 1 {
		t.Fatalf("there are %d commits", got)
	}

	t.Log("what is wrong in the files is told with its place, and the rest is updated")
	s.automate("update", "app", func(a *automation) {
		a.Spec.Bindings = []imagev1.Binding{{PolicyRef: meta.LocalObjectReference{Name: "web"},
			Workload: &imagev1.WorkloadContainer{Kind: "Deployment", Name: "none"}}}
	})
	s.has("app", "main", "web.yaml", s.mark("web:2", "web"))
	a := s.automated("update", metav1.ConditionTrue, "Succeeded", "bad.yaml:1: malformed marker")
	message := apimeta.FindStatusCondition(a.Status.Conditions, "Ready").Message
	for _, want := range []string{"unknown.yaml:1: ", "binding 1, of the Deployment 'none'"} {
		if !strings.Contains(message, want) {
			t.Errorf("the message does not tell of %s: %s", want, message)
		}
	}
	if strings.Contains(message, "foreign.yaml") || strings.Contains(message, "templates/") {
		t.Errorf("the message tells of others' business: %s", message)
	}
}

func TestReferencesIntoOtherNamespacesCanBeRefused(t *testing.T) {
	s := newSystem(t, automating, func(o *Options) { o.NoCrossNamespaceRefs = true })
	s.automate("update", "app", func(a *imagev1.ImageUpdateAutomation) { a.Spec.SourceRef.Namespace = "other" })
	s.automated("update", metav1.ConditionFalse, "AccessDenied", "another namespace")
}
