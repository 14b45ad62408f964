package automate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// steps runs passes of an automation against a real git server, without a control plane.
type steps struct {
	*testing.T
	git     *testenv.Git
	objects client.Client
	step    *automate.Automation
	obj     *imagev1.ImageUpdateAutomation
	clock   *clocktesting.FakeClock
}

const (
	stepNamespace = "apps"
	stepRepo      = "app"
)

// marked returns a line with an image and its marker.
func marked(image string) string {
	return fmt.Sprintf("image: %s # {\"$imagepolicy\": %q}\n", image, stepNamespace+":web")
}

// newSteps creates an automation that pushes to a branch, "" for the one that is checked out.
func newSteps(t *testing.T, server *testenv.Git, branch string, files map[string]string) *steps {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := imagev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := sourcev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &steps{T: t, git: server, clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)),
		objects: fake.NewClientBuilder().WithScheme(scheme).Build()}
	s.git.Commit(stepRepo, files)
	s.step = &automate.Automation{Clock: s.clock, Writers: &change.Opener{Objects: s.objects, Clock: s.clock,
		Remotes: s, Secrets: s, Mirrors: git.NewMirrors(t.TempDir()),
		Fetch: func(context.Context, types.NamespacedName) error { return nil }}}
	s.obj = &imagev1.ImageUpdateAutomation{
		ObjectMeta: metav1.ObjectMeta{Namespace: stepNamespace, Name: "update", UID: "1", Generation: 1},
		Spec: imagev1.ImageUpdateAutomationSpec{
			SourceRef: imagev1.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: stepRepo},
			GitSpec: &imagev1.GitSpec{Commit: imagev1.CommitSpec{
				Author: imagev1.CommitUser{Email: "robot@example.com"}}},
		}}
	s.obj.Status.ObservedGeneration = 1
	if branch != "" {
		s.obj.Spec.GitSpec.Push = &imagev1.PushSpec{Branch: branch}
	}
	if err := s.objects.Create(t.Context(), &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: stepNamespace, Name: stepRepo},
		Spec:       sourcev1.GitRepositorySpec{Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// Remote implements [change.Remotes].
func (s *steps) Remote(context.Context, *sourcev1.GitRepository) (git.Remote, error) {
	return git.Remote{URL: s.git.URL + "/" + stepRepo}, nil
}

// Data implements [change.Secrets].
func (s *steps) Data(context.Context, string, *meta.LocalObjectReference, string) (map[string][]byte, error) {
	return nil, nil
}

// choose makes the policy select a tag.
func (s *steps) choose(tag string) {
	s.Helper()
	p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: stepNamespace, Name: "web"}}
	p.Status.LatestRef = &imagev1.ImageRef{Name: "web", Tag: tag}
	if err := client.IgnoreNotFound(s.objects.Delete(s.Context(), p.DeepCopy())); err != nil {
		s.Fatal(err)
	}
	if err := s.objects.Create(s.Context(), p); err != nil {
		s.Fatal(err)
	}
}

// run runs a pass and returns its message.
func (s *steps) run() string {
	s.Helper()
	s.clock.Step(time.Minute)
	return s.step.Reconcile(s.Context(), &reconcile.Pass[*imagev1.ImageUpdateAutomation]{Object: s.obj}).String()
}

// ready runs a pass that must succeed.
func (s *steps) ready() {
	s.Helper()
	if got := s.run(); got != "repository up-to-date" {
		s.Fatal(got)
	}
}

// hash returns the commit of a reference, empty if it does not exist.
func (s *steps) hash(ref string) string {
	out, err := exec.Command("git", "--git-dir", filepath.Join(s.git.Root, stepRepo+".git"), "rev-parse", "-q",
		"--verify", ref).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// contains reports whether a commit is an ancestor of a reference.
func (s *steps) contains(ref, commit string) bool {
	return exec.Command("git", "--git-dir", filepath.Join(s.git.Root, stepRepo+".git"), "merge-base", "--is-ancestor",
		commit, ref).Run() == nil
}

// file returns a file of a reference.
func (s *steps) file(ref string) string { return s.git.Run(stepRepo, "show", ref+":web.yaml") + "\n" }

// merge merges a branch into another as git does, with a merge commit unless it is a fast-forward.
func (s *steps) merge(from, into string, options ...string) {
	s.Helper()
	dir := s.TempDir()
	for _, args := range [][]string{
		{"clone", "-q", "-b", into, filepath.Join(s.git.Root, stepRepo+".git"), dir},
		append(append([]string{"-C", dir, "merge", "-q", "-m", "merge", "-X", "theirs"}, options...), "origin/"+from),
		{"-C", dir, "commit", "-q", "--allow-empty", "-m", "squashed"},
		{"-C", dir, "push", "-q", "origin", "HEAD:" + into},
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=P", "GIT_AUTHOR_EMAIL=p@example.com", "GIT_COMMITTER_NAME=P",
			"GIT_COMMITTER_EMAIL=p@example.com")
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
}

// TestPushBranchKeepsCommitsOfPeople checks that an update is a commit on top of what a person pushed to the push
// branch, as in Flux, although the checked out branch moved.
func TestPushBranchKeepsCommitsOfPeople(t *testing.T) {
	t.Parallel()
	for _, gate := range []bool{false, true} {
		s := newSteps(t, testenv.NewGit(t), "auto", map[string]string{"web.yaml": marked("web:1.0.0")})
		s.step.ResetPushBranch = gate
		s.git.Run(stepRepo, "config", "receive.denyNonFastForwards", "true")
		s.choose("2.0.0")
		s.ready()
		theirs := s.git.CommitTo(stepRepo, "refs/heads/auto", map[string]string{"fix.yaml": "by: a person\n"})
		s.git.Commit(stepRepo, map[string]string{"other.yaml": "a: 1\n"})
		s.choose("3.0.0")
		s.ready()
		if got := s.hash("auto^"); got != theirs || s.file("auto") != marked("web:3.0.0") {
			t.Errorf("gate %t: parent %s, want %s; %s", gate, got, theirs, s.file("auto"))
		}
	}
}

// TestPushBranchFollowsMerges checks that a branch that was merged follows the checked out branch, so that it has the
// new files, and that nothing is forced for that.
func TestPushBranchFollowsMerges(t *testing.T) {
	t.Parallel()
	s := newSteps(t, testenv.NewGit(t), "auto", map[string]string{"web.yaml": marked("web:1.0.0")})
	s.git.Run(stepRepo, "config", "receive.denyNonFastForwards", "true")
	s.choose("2.0.0")
	s.ready()
	s.git.CommitTo(stepRepo, "refs/heads/auto", map[string]string{"fix.yaml": "by: a person\n"})
	s.merge("auto", "main", "--no-ff")
	merged := s.git.Commit(stepRepo, map[string]string{"web.yaml": marked("web:2.0.0"), "fix.yaml": "x: 1\n",
		"new.yaml": marked("web:1.0.0")})
	s.ready()
	if got := s.hash("auto^"); got != merged {
		t.Errorf("parent %s, want %s", got, merged)
	}
}

// TestPushBranchIsNotAccused checks that updates that are not merged do not count as reverted.
func TestPushBranchIsNotAccused(t *testing.T) {
	t.Parallel()
	for _, gate := range []bool{false, true} {
		s := newSteps(t, testenv.NewGit(t), "bump", map[string]string{"web.yaml": marked("web:1.0.0")})
		s.step.ResetPushBranch = gate
		s.choose("2.0.0")
		for i := range 6 {
			s.ready()
			s.git.Commit(stepRepo, map[string]string{"other.yaml": fmt.Sprintf("a: %d\n", i)})
		}
		s.ready()
		if got := s.hash("bump^"); gate && got != s.hash("main") || !gate && s.contains("main", "bump") {
			t.Errorf("gate %t: parent of the branch %s, main %s", gate, got, s.hash("main"))
		}
	}
}

// TestRevertsAreCountedOnceACommit checks that one revert of a commit that set three values is one revert, and that the
// third revert ends it.
func TestRevertsAreCountedOnceACommit(t *testing.T) {
	t.Parallel()
	release := func(tag string) string {
		line := fmt.Sprintf("tag: %s # {\"$imagepolicy\": %q}\n", tag, stepNamespace+":web:tag")
		return "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: shop}\nspec:\n  values:\n" +
			"    web:\n      " + line + "    worker:\n      " + line + "    cron:\n      " + line
	}
	s := newSteps(t, testenv.NewGit(t), "", map[string]string{"web.yaml": release("1.0.0")})
	s.choose("2.0.0")
	s.ready()
	for range 2 {
		s.git.Commit(stepRepo, map[string]string{"web.yaml": release("1.0.0")})
		s.ready()
		if got := s.file("main"); got != release("2.0.0") {
			t.Fatal(got)
		}
	}
	for range 3 { // passes without a push do not count
		s.ready()
	}
	s.git.Commit(stepRepo, map[string]string{"web.yaml": release("1.0.0")})
	for range 2 {
		if got := s.run(); !strings.Contains(got, "'2.0.0' was set 3 times and reverted to '1.0.0' each time") {
			t.Error(got)
		}
	}
	s.choose("3.0.0")
	s.ready()
}

// TestPushBranchHistories runs random histories: nothing of a person is lost, nothing is forced without the feature
// gate, and after each pass the push branch or the checked out branch has the image.
func TestPushBranchHistories(t *testing.T) {
	t.Parallel()
	histories := 12
	if os.Getenv("SLUICE_DIFFERENTIAL") == "full" {
		histories = 150
	}
	for seed := range histories {
		gate := seed%3 == 2
		t.Run(fmt.Sprintf("%d gate=%t", seed, gate), func(t *testing.T) {
			checkHistory(t, testenv.ServeGit(t, t.TempDir()), uint64(seed), gate)
		})
	}
}

func checkHistory(t *testing.T, server *testenv.Git, seed uint64, gate bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	s := newSteps(t, server, "auto", map[string]string{"web.yaml": marked("web:1.0.0")})
	s.step.ResetPushBranch = gate
	if !gate {
		s.git.Run(stepRepo, "config", "receive.denyNonFastForwards", "true")
	}
	image, log, people := 1, []string{}, []string{}
	actions := map[string]func(){
		"release": func() { image++ },
		"main":    func() { s.git.Commit(stepRepo, map[string]string{"m.yaml": fmt.Sprintf("a: %d\n", r.Int())}) },
		"person": func() {
			if s.hash("auto") != "" {
				people = append(people, s.git.CommitTo(stepRepo, "refs/heads/auto",
					map[string]string{fmt.Sprintf("p%d.yaml", len(log)): "a: 1\n"}))
			}
		},
		"merge": func() {
			if s.hash("auto") != "" && !s.contains("main", "auto") {
				s.merge("auto", "main", "--no-ff")
			}
		},
		"squash": func() {
			if s.hash("auto") != "" && !s.contains("main", "auto") {
				s.merge("auto", "main", "--squash")
			}
		},
		"update": func() {
			if s.hash("auto") != "" && !s.contains("auto", "main") {
				s.merge("main", "auto")
				people = append(people, s.hash("auto"))
			}
		},
		"restart": func() { s.step.Writers.Mirrors = git.NewMirrors(t.TempDir()) },
		"delete": func() {
			s.git.Run(stepRepo, "update-ref", "-d", "refs/heads/auto")
			people = nil
		},
	}
	names := make([]string, 0, len(actions))
	for name := range actions {
		names = append(names, name)
	}
	slices.Sort(names)
	for range 14 {
		name := names[r.IntN(len(names))]
		log = append(log, name)
		actions[name]()
		before := s.hash("auto")
		tag := fmt.Sprintf("%d.0.0", image)
		s.choose(tag)
		if got := s.run(); got != "repository up-to-date" {
			t.Fatalf("%v: %s", log, got)
		}
		for _, commit := range people {
			if !s.contains("auto", commit) && !s.contains("main", commit) {
				t.Fatalf("%v: commit %s of a person is lost", log, commit)
			}
		}
		if !gate && before != "" && !s.contains("auto", before) {
			t.Fatalf("%v: the branch was reset", log)
		}
		if want := marked("web:" + tag); s.file("main") != want && s.file("auto") != want {
			t.Fatalf("%v: neither branch has %s", log, tag)
		}
	}
}
