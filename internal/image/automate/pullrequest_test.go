package automate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// gitea is a real git server at /org, and the part of Gitea's API that pull requests need.
type gitea struct {
	*httptest.Server
	t     *testing.T
	mu    sync.Mutex
	pulls []map[string]any
	down  bool // whether the API fails
}

func newGitea(t *testing.T, git *testenv.Git) *gitea {
	behind, err := url.Parse(git.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := &gitea{t: t}
	mux := http.NewServeMux()
	mux.Handle("/org/", http.StripPrefix("/org", testenv.FullDuplex(httputil.NewSingleHostReverseProxy(behind))))
	mux.HandleFunc("GET /api/v1/repos/org/app/pulls", g.list)
	mux.HandleFunc("POST /api/v1/repos/org/app/pulls", g.open)
	mux.HandleFunc("PATCH /api/v1/repos/org/app/pulls/{number}", g.edit)
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

// enter locks the host, and reports whether the request is authenticated.
func (g *gitea) enter(w http.ResponseWriter, r *http.Request) bool {
	g.mu.Lock()
	status := 0
	if r.Header.Get("Authorization") != "token s3cret-token" {
		status = http.StatusUnauthorized
	} else if g.down {
		status = http.StatusServiceUnavailable
	}
	if status != 0 {
		w.WriteHeader(status)
		g.mu.Unlock()
		return false
	}
	return true
}

func (g *gitea) response(w http.ResponseWriter, what any) {
	if err := json.NewEncoder(w).Encode(what); err != nil {
		g.t.Error(err)
	}
	g.mu.Unlock()
}

func (g *gitea) list(w http.ResponseWriter, r *http.Request) {
	if !g.enter(w, r) {
		return
	}
	open := []map[string]any{}
	for _, p := range g.pulls {
		if p["state"] == "open" {
			open = append(open, p)
		}
	}
	g.response(w, open)
}

func (g *gitea) open(w http.ResponseWriter, r *http.Request) {
	if !g.enter(w, r) {
		return
	}
	var asked struct{ Title, Body, Head, Base string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		g.t.Error(err)
	}
	ref := func(name string) any {
		return map[string]any{"ref": name, "repo": map[string]any{"full_name": "org/app"}}
	}
	number := len(g.pulls) + 1
	g.pulls = append(g.pulls, map[string]any{"number": number, "state": "open", "title": asked.Title,
		"body": asked.Body, "head": ref(asked.Head), "base": ref(asked.Base),
		"html_url": fmt.Sprintf("https://gitea.example.com/org/app/pulls/%d", number)})
	w.WriteHeader(http.StatusCreated)
	g.response(w, g.pulls[number-1])
}

func (g *gitea) edit(w http.ResponseWriter, r *http.Request) {
	if !g.enter(w, r) {
		return
	}
	var change map[string]any
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		g.t.Error(err)
	}
	for _, p := range g.pulls {
		if fmt.Sprint(p["number"]) == r.PathValue("number") {
			p["title"], p["body"] = change["title"], change["body"]
		}
	}
	g.response(w, map[string]any{})
}

// set changes the state of the host.
func (g *gitea) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// requests returns the pull requests as text.
func (g *gitea) requests() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, p := range g.pulls {
		head, _ := p["head"].(map[string]any)
		base, _ := p["base"].(map[string]any)
		all = append(all, fmt.Sprintf("%v %v: %v | %v, %v into %v", p["number"], p["state"], p["title"], p["body"],
			head["ref"], base["ref"]))
	}
	return strings.Join(all, "\n")
}

// A newer image updates the branch and the pull request. During an outage of the host, the request is retried.
func TestUpdatesByPullRequest(t *testing.T) {
	s := newHarness(t, func(o *options.Options) {
		o.Controllers = []string{options.SourceController, "image-automation-controller"}
	})
	host := newGitea(t, s.Git)
	file := func(image string) string {
		return fmt.Sprintf("image: %s # {\"$imagepolicy\": \"%s:web\"}\n", image, s.Namespace)
	}
	policy, first := createForPullRequests(s, file, host)
	release := func(tag string) {
		t.Helper()
		before := policy.DeepCopy()
		policy.Status.LatestRef = &imagev1.ImageRef{Name: "web", Tag: tag}
		if err := s.Client.Status().Patch(t.Context(), policy, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	automation := automationOfRequests(s)
	release("1.1.0")
	s.Create(automation)
	becomes := func(what, pulls, image string) {
		t.Helper()
		branchBecomes(t, what, s, automation, host, pulls, file, image)
	}
	becomes("a request is opened", "1 open: Update web | web:1.0.0 to web:1.1.0, update/web into main", "web:1.1.0")
	if got := s.Git.Run("app", "rev-parse", "main"); got != first {
		t.Errorf("main: %s", got)
	}

	t.Log("a newer image updates it, although the host was down")
	host.set(func() { host.down = true })
	release("1.2.0")
	reportsHostDown(t, s, automation)
	host.set(func() { host.down = false })
	becomes("it is brought up to date", "1 open: Update web | web:1.0.0 to web:1.2.0, update/web into main",
		"web:1.2.0")
	statusHasURL(t, s, automation)

	t.Log("a closed request is not reopened until there is another image, although the branch is updated")
	second := closeRequest(t, host, s, file, automation)
	closed := "1 closed: Update web | web:1.0.0 to web:1.2.0, update/web into main"
	becomes("nothing is opened", closed, "web:1.2.0")
	if got := s.Git.Run("app", "rev-parse", "update/web^"); got != second {
		t.Errorf("parent of the branch: %s", got)
	}
	release("1.3.0")
	becomes("another request is opened", closed+"\n2 open: Update web | web:1.0.0 to web:1.3.0, update/web into main",
		"web:1.3.0")

	t.Log("after the merge there is nothing to request")
	s.Git.Run("app", "update-ref", "refs/heads/main", "refs/heads/update/web")
	host.set(func() { host.pulls[1]["state"] = "closed" })
	s.RequestReconcile(automation, "web")
	merged := s.Git.Run("app", "rev-parse", "main")
	observesMerge(t, s, automation, merged, host)
}

// createForPullRequests creates the repository and what the automation needs.
func createForPullRequests(s *harness, file func(image string) string, host *gitea) (*imagev1.ImagePolicy, string) {
	first := s.Git.Commit("app", map[string]string{"web.yaml": file("web:1.0.0")})
	s.Create(&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "app"},
		Spec: sourcev1.GitRepositorySpec{URL: host.URL + "/org/app", Interval: meta.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}})
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "gitea"},
		StringData: map[string]string{"token": "s3cret-token"}})
	policy := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web"}}
	policy.Spec.ImageRepositoryRef.Name, policy.Spec.Policy.SemVer = "web", &imagev1.SemVerPolicy{Range: ">=1.0.0"}
	s.Create(policy)
	return policy, first
}

// automationOfRequests returns an automation that opens pull requests.
func automationOfRequests(s *harness) *imagev1.ImageUpdateAutomation {
	automation := &imagev1.ImageUpdateAutomation{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web"},
		Spec: imagev1.ImageUpdateAutomationSpec{
			Interval:  meta.Duration{Duration: time.Hour},
			SourceRef: imagev1.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: "app"},
			GitSpec: &imagev1.GitSpec{Commit: imagev1.CommitSpec{Author: imagev1.CommitUser{Email: "robot@example.com"},
				MessageTemplate: "Update web\n\n{{ range .Changed.Changes }}to {{ .NewValue }}{{ end }}"}},
			PullRequest: &imagev1.PullRequest{Provider: "gitea", Branch: "update/{{ .AutomationObject.Name }}",
				Body:      "{{ range .Changed.Changes }}{{ .OldValue }} to {{ .NewValue }}{{ end }}",
				SecretRef: &meta.LocalObjectReference{Name: "gitea"}},
		}}
	return automation
}

// branchBecomes waits for the pull requests and the image on the branch.
func branchBecomes(t *testing.T, what string, s *harness, automation *imagev1.ImageUpdateAutomation,
	host *gitea, pulls string, file func(image string) string, image string) {
	t.Helper()
	testenv.Eventually(t, what, func() error {
		if err := s.Get(automation, "web"); err != nil {
			return err
		}
		if got := host.requests(); got != pulls {
			return fmt.Errorf("%s; %+v", got, automation.Status)
		}
		if got := s.Git.Run("app", "show", "update/web:web.yaml") + "\n"; got != file(image) {
			return fmt.Errorf("%s; %+v", got, automation.Status)
		}
		return nil
	})
}

// reportsHostDown waits until the automation reports that the host failed, without the token.
func reportsHostDown(t *testing.T, s *harness, automation *imagev1.ImageUpdateAutomation) {
	t.Helper()
	testenv.Eventually(t, "the automation reports that the host is down", func() error {
		if err := s.Get(automation, "web"); err != nil {
			return err
		}
		for _, c := range automation.Status.Conditions {
			if c.Type == "Ready" && strings.Contains(c.Message,
				"cannot open the pull request of branch 'update/web'") &&
				strings.Contains(c.Message, "503") {
				if strings.Contains(c.Message, "s3cret") {
					t.Error(c.Message)
				}
				return nil
			}
		}
		return fmt.Errorf("%+v", automation.Status.Conditions)
	})
}

// statusHasURL waits for the URL of the pull request, and checks that its branch has one commit.
func statusHasURL(t *testing.T, s *harness, automation *imagev1.ImageUpdateAutomation) {
	t.Helper()
	testenv.Eventually(t, "the status has its URL", func() error {
		if err := s.Get(automation, "web"); err != nil {
			return err
		}
		if automation.Status.PullRequest != "https://gitea.example.com/org/app/pulls/1" {
			return errors.New(automation.Status.PullRequest)
		}
		return nil
	})
	if got := len(strings.Fields(s.Git.Run("app", "rev-list", "main..update/web"))); got != 1 {
		t.Errorf("%d commits on the branch", got)
	}
}

// closeRequest closes the pull request, adds a commit to main, and waits until the automation ran.
func closeRequest(t *testing.T, host *gitea, s *harness, file func(image string) string,
	automation *imagev1.ImageUpdateAutomation) string {
	t.Helper()
	host.set(func() { host.pulls[0]["state"] = "closed" })
	second := s.Git.Commit("app", map[string]string{"web.yaml": file("web:1.0.0"), "other.yaml": "a: 1\n"})
	s.RequestReconcile(automation, "web")
	asked := automation.Annotations[meta.ReconcileRequestAnnotation]
	testenv.Eventually(t, "the automation ran again", func() error {
		if err := s.Get(automation, "web"); err != nil || automation.Status.LastHandledReconcileAt != asked {
			return errors.Join(err, fmt.Errorf("%+v", automation.Status))
		}
		return nil
	})
	return second
}

// observesMerge waits until the automation has observed the merged commit.
func observesMerge(t *testing.T, s *harness, automation *imagev1.ImageUpdateAutomation, merged string, host *gitea) {
	t.Helper()
	testenv.Eventually(t, "it observes the merge", func() error {
		if err := s.Get(automation, "web"); err != nil {
			return err
		}
		if automation.Status.ObservedSourceRevision != "main@sha1:"+merged {
			return fmt.Errorf("%+v", automation.Status)
		}
		return nil
	})
	if got := host.requests(); strings.Count(got, "\n") != 1 || strings.Contains(got, "open") {
		t.Error(got)
	}
}

// A release has a separate branch and request, which updates of the automation do not change.
func TestReleaseByPullRequest(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	host := newGitea(t, s.Git)
	first := s.Git.Commit("app", map[string]string{"web.yaml": s.mark("web:1.0.0", "web"),
		"db.yaml": system.DeploymentWithImages("db", "nginx:1")})
	s.GitRepository("app", func(g *sourcev1.GitRepository) { g.Spec.URL = host.URL + "/org/app" })
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "gitea"},
		StringData: map[string]string{"token": "s3cret-token"}})
	s.ChooseImage("web", "web:1.1.0")
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.GitSpec.Commit.MessageTemplate = "Update{{ range .Changed.Changes }} to {{ .NewValue }}{{ end }}"
		a.Spec.PullRequest = &imagev1.PullRequest{Provider: "gitea", Branch: "update/{{ .AutomationObject.Name }}",
			SecretRef: &meta.LocalObjectReference{Name: "gitea"}}
	})
	s.BranchHas("app", "update/update", "web.yaml", s.mark("web:1.1.0", "web"))
	opened := func(want string) {
		t.Helper()
		testenv.Eventually(t, "pull requests: "+want, func() error {
			if got := host.requests(); got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	automatic := "1 open: Update to web:1.1.0 | Update to web:1.1.0, update/update into main"
	opened(automatic)

	host.set(func() { host.down = true })
	s.ImageUpdateJob("db-2", imagev1alpha1.ImageUpdateJobSpec{Workloads: system.Containers("db"),
		Images: []string{"nginx:2"},
		Reason: "fixes the login"})
	waits := s.ImageUpdateJobReady("db-2", metav1.ConditionFalse,
		"cannot open the pull request of branch 'update/update-db-2'")
	if tip := s.Git.Run("app", "rev-parse", "update/update-db-2"); waits.Status.Commit != tip ||
		waits.Status.CompletionTime != nil || len(waits.Status.Changes) != 1 {
		t.Errorf("status of the release at %s while the host is down: %+v", tip, waits.Status)
	}
	host.set(func() { host.down = false })
	j := s.ImageUpdateJobReady("db-2", metav1.ConditionTrue,
		"pull request: https://gitea.example.com/org/app/pulls/2")
	opened(automatic + "\n2 open: Update to nginx:2 | Update to nginx:2\n\n" +
		"fixes the login, update/update-db-2 into main")
	if j.Status.PullRequest != "https://gitea.example.com/org/app/pulls/2" || j.Status.Commit != waits.Status.Commit ||
		j.Status.CompletionTime == nil || len(j.Status.Changes) != 1 {
		t.Errorf("status: %+v", j.Status)
	}
	if got := s.Git.Run("app", "rev-parse", "main"); got != first {
		t.Errorf("main: %s", got)
	}
	if got := s.Git.Run("app", "diff", "--name-only", "main", "update/update-db-2"); got != "db.yaml" {
		t.Errorf("files changed by the release: %s", got)
	}

	keepsOtherBranch(t, s)
}

// keepsOtherBranch makes sure that a branch with other commits is not overwritten.
func keepsOtherBranch(t *testing.T, s *harness) {
	t.Helper()
	t.Log("a branch with other commits is not overwritten")
	theirs := s.Git.CommitTo("app", "refs/heads/update/update-db-3", map[string]string{"theirs.yaml": "a: 1\n"})
	s.ImageUpdateJob("db-3", imagev1alpha1.ImageUpdateJobSpec{Workloads: system.Containers("db"),
		Images: []string{"nginx:3"}})
	if j := s.ImageUpdateJobReady("db-3", metav1.ConditionFalse,
		"branch 'update/update-db-3' exists already, with other changes. Merge or delete the branch, or create a job "+
			"with another name"); j.Status.CompletionTime == nil || j.Status.Commit != "" {
		t.Errorf("the status is %+v", j.Status)
	}
	if got := s.Git.Run("app", "rev-parse", "update/update-db-3"); got != theirs {
		t.Errorf("branch: %s", got)
	}
}
