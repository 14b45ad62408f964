package inputprovider_test

import (
	"fmt"
	"hash/adler32"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// pulls is the answer of GitHub with pull requests: number, branch, labels.
func pulls(of ...string) string {
	var all []string
	for i := 0; i < len(of); i += 3 {
		var labels []string
		for _, l := range strings.Fields(of[i+2]) {
			labels = append(labels, `{"name":"`+l+`"}`)
		}
		all = append(all, fmt.Sprintf(`{"number":%s,"title":"Title of %s","user":{"login":"mona"},"labels":[%s],
			"head":{"ref":"%s","sha":"%s"}}`, of[i], of[i], strings.Join(labels, ","), of[i+1], commitOf(of[i])))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// deep is a value of 70 levels.
var deep = strings.Repeat("[", 70) + strings.Repeat("]", 70)

const openPulls = "/api/v3/repos/org/app/pulls"

// TestPullRequests opens, changes, skips and closes pull requests.
func TestPullRequests(t *testing.T) {
	s := newProviders(t)
	github := newHost(t, "Bearer s3cret")
	github.answer(openPulls, "%s", pulls("3", "feat/c", "preview", "2", "feat/b", "", "1", "fix/a", "preview hold"))
	s.Secret("github", map[string]string{"username": "git", "password": "s3cret"})
	s.provider("pulls", `
type: GitHubPullRequest
url: `+github.URL+`/org/app
secretRef: {name: github}
filter: {labels: [preview]}
skip: {labels: [hold]}
defaultValues: {chart: app, values: {replicas: 1}, title: unused}`)
	first := `
- {id: "3", sha: "` + commitOf("3") + `", branch: feat/c, title: Title of 3, author: mona, labels: [preview],
   chart: app, values: {replicas: 1}}`
	obj := s.exports("pulls", first)
	revision := obj.Status.LastExportedRevision
	if !regexp.MustCompile("^sha256:[0-9a-f]{64}$").MatchString(revision) {
		t.Errorf("revision: %s", revision)
	}

	t.Log("a pull request whose label is removed is exported, and keeps its commit when it gets the label again")
	github.answer(openPulls, "%s", pulls("3", "feat/c", "preview", "1", "fix/a", "preview"))
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "pulls")
	second := `
- {id: "1", sha: "` + commitOf("1") + `", branch: fix/a, title: Title of 1, author: mona, labels: [preview],
   chart: app, values: {replicas: 1}}`
	if obj = s.exports("pulls", first+second); obj.Status.LastExportedRevision == revision {
		t.Error("the revision did not change")
	}
	github.answer(openPulls, "%s", strings.ReplaceAll(pulls("3", "feat/c", "preview", "1", "fix/a", "preview hold"),
		commitOf("1"), commitOf("9")))
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "pulls")
	s.exports("pulls", first+second)

	t.Log("an error keeps all inputs; the answer of the host and the login are not shown")
	github.fail(func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"message":"s3cret is wrong"}`))
	})
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "pulls")
	s.NotReady(&controlplanev1.ResourceSetInputProvider{}, "pulls", "ReconciliationFailed", "status 500")
	var now controlplanev1.ResourceSetInputProvider
	if err := s.Get(&now, "pulls"); err != nil || len(now.Status.ExportedInputs) != 2 {
		t.Errorf("exports after an error: %v, %v", now.Status.ExportedInputs, err)
	}
	for _, c := range now.Status.Conditions {
		if strings.Contains(c.Message, "s3cret") || c.Type == "Stalled" && c.Status == metav1.ConditionTrue {
			t.Errorf("condition: %+v", c)
		}
	}

	t.Log("a successful empty answer removes them")
	github.fail(nil)
	github.answer(openPulls, "[]")
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "pulls")
	s.exports("pulls", "[]")
	s.HasEvent("pulls", "ReconciliationSucceeded", "exported 0 input sets")
}

// TestTypesOfGitHosts has branches, tags and requests of each host, anonymously.
func TestTypesOfGitHosts(t *testing.T) {
	s := newProviders(t)
	h := newHost(t, "")
	one := commitOf("1")
	h.answer("/api/v3/repos/org/app/branches", `[{"name":"main","commit":{"sha":%q}},{"name":"x","commit":{"sha":%q}}]`,
		one, one)
	h.answer("/api/v3/repos/org/app/tags", `[{"name":"v1.0.0","commit":{"sha":%q}},
		{"name":"v1.10.0","commit":{"sha":%q}},
		{"name":"v1.9.0","commit":{"sha":%q}}]`, one, one, one)
	h.answer("/api/v4/projects/group/app/repository/branches", `[{"name":"Feat/A","commit":{"id":%q}}]`, one)
	h.answer("/api/v4/projects/group/app/repository/tags", `[{"name":"v1","commit":{"id":%q}}]`, one)
	h.answer("/api/v4/projects/group/app/merge_requests", `[{"iid":7,"title":"T","author":{"username":"root"},
		"source_branch":"feat/a","sha":%q}]`, one)
	h.answer("/api/v4/projects/group/app/environments", `[{"id":5,"name":"review/a","slug":"review-a-x"},
		{"id":6,"name":"production","slug":"production"}]`)
	h.answer("/api/v4/projects/group/app/deployments", `[{"ref":"feat/a","sha":%q,"user":{"username":"root"}}]`, one)
	h.answer("/api/v1/repos/org/app/branches", `[{"name":"main","commit":{"id":%q}}]`, one)
	h.answer("/api/v1/repos/org/app/tags", `[{"name":"v1","commit":{"sha":%q}}]`, one)
	h.answer("/api/v1/repos/org/app/pulls", `[{"number":7,"title":"T","user":{"login":"g"},
		"head":{"ref":"feat/a","sha":%q}}]`, one)
	id := func(text string) string { return fmt.Sprint(adler32.Checksum([]byte(text))) }
	for name, c := range map[string]struct{ spec, want string }{
		"github-branch": {"type: GitHubBranch\nurl: URL/org/app\nfilter: {includeBranch: ^main$}",
			`[{id: "ID-main", branch: main, sha: SHA}]`},
		"github-tag": {"type: GitHubTag\nurl: URL/org/app\nfilter: {semver: '>=1.0.0', limit: 2}",
			`[{id: "ID-v1.10.0", tag: v1.10.0, sha: SHA}, {id: "ID-v1.9.0", tag: v1.9.0, sha: SHA}]`},
		"gitlab-branch": {"type: GitLabBranch\nurl: URL/group/app",
			`[{id: "ID-Feat/A", branch: Feat/A, sha: SHA, slug: feat-a}]`},
		"gitlab-tag": {"type: GitLabTag\nurl: URL/group/app", `[{id: "ID-v1", tag: v1, sha: SHA, slug: v1}]`},
		"gitlab-mr": {"type: GitLabMergeRequest\nurl: URL/group/app",
			`[{id: "7", sha: SHA, branch: feat/a, slug: feat-a, title: T, author: root}]`},
		"gitlab-environment": {"type: GitLabEnvironment\nurl: URL/group/app\nfilter: {includeEnvironment: ^review/}",
			`[{id: "5", sha: SHA, branch: feat/a, slug: review-a-x, title: review/a, author: root}]`},
		"gitea-branch": {"type: GiteaBranch\nurl: URL/org/app", `[{id: "ID-main", branch: main, sha: SHA}]`},
		"gitea-tag":    {"type: GiteaTag\nurl: URL/org/app", `[{id: "ID-v1", tag: v1, sha: SHA}]`},
		"gitea-pr": {"type: GiteaPullRequest\nurl: URL/org/app",
			`[{id: "7", sha: SHA, branch: feat/a, title: T, author: g}]`},
		"static": {"type: Static\ndefaultValues: {a: {b: [1, true, null]}}", ""},
	} {
		s.provider(name, strings.ReplaceAll(c.spec, "URL", h.URL))
		if name == "static" {
			var obj controlplanev1.ResourceSetInputProvider
			if err := s.Get(&obj, name); err != nil {
				t.Fatal(err)
			}
			c.want = `[{id: "ID-` + string(obj.UID) + `", a: {b: [1, true, null]}}]`
		}
		want := strings.ReplaceAll(c.want, "SHA", `"`+one+`"`)
		want = regexp.MustCompile(`ID-([^"]+)`).ReplaceAllStringFunc(want, func(m string) string { return id(m[3:]) })
		s.exports(name, want)
	}
}

// TestAzureDevOps has a login of a Secret; its lists of pull requests have no labels.
func TestAzureDevOps(t *testing.T) {
	s := newProviders(t)
	h := newHost(t, "Basic OnMzY3JldA==")
	one := commitOf("1")
	base := "/org/project/_apis/git/repositories/app/"
	h.answer(base+"refs", `{"value":[{"name":"refs/heads/main","objectId":%q}]}`, one)
	h.answer(base+"pullrequests", `{"value":[{"pullRequestId":7,"title":"T","createdBy":{"displayName":"N P"},
		"sourceRefName":"refs/heads/a","lastMergeSourceCommit":{"commitId":%q}}]}`, one)
	h.answer(base+"pullRequests/7/labels", `{"value":[{"name":"preview","active":true}]}`)
	s.Secret("azure", map[string]string{"username": "git", "password": "s3cret"})
	url := "url: " + h.URL + "/org/project/_git/app\nsecretRef: {name: azure}"
	s.provider("branch", "type: AzureDevOpsBranch\n"+url)
	s.provider("pull", "type: AzureDevOpsPullRequest\n"+url+"\nfilter: {labels: [preview]}")
	s.exports("branch", fmt.Sprintf(`[{id: "%d", branch: main, sha: "%s"}]`, adler32.Checksum([]byte("main")), one))
	s.exports("pull", `[{id: "7", sha: "`+one+`", branch: a, title: T, author: N P, labels: [preview]}]`)
}

// TestImages reads tags of our registry.
func TestImages(t *testing.T) {
	s := newProviders(t)
	registry := ociregistry.New(t)
	digests := map[string]string{}
	for _, tag := range []string{"1.0.0", "1.2.0", "latest"} {
		digests[tag] = registry.Push("org/app", tag, map[string]string{"tag": tag}).DigestStr()
	}
	spec := "type: OCIArtifactTag\ninsecure: true\nurl: " + registry.OCI + "/org/app\n"
	s.provider("versions", spec+"filter: {semver: '>=1.0.0'}")
	s.provider("latest", spec+"filter: {includeTag: latest}")
	set := func(tag string) string {
		return fmt.Sprintf("- {id: '%d', tag: '%s', digest: '%s'}\n", adler32.Checksum([]byte(tag)), tag, digests[tag])
	}
	s.exports("versions", set("1.2.0")+set("1.0.0"))
	s.exports("latest", set("latest"))

	s.provider("missing", "type: OCIArtifactTag\ninsecure: true\nurl: "+registry.OCI+"/org/none")
	s.NotReady(&controlplanev1.ResourceSetInputProvider{}, "missing", "ReconciliationFailed", "org/none")
	s.provider("foreign", "type: ECRArtifactTag\nurl: oci://registry.example.com/org/app")
	s.NotReady(&controlplanev1.ResourceSetInputProvider{}, "foreign", "InvalidSpec", "no token is sent to it")
}

// TestServices has answers of a service, good and bad.
func TestServices(t *testing.T) {
	s := newProviders(t)
	h := newHost(t, "Bearer s3cret")
	h.answer("/inputs", `{"inputs":[{"id":"b","k":{"x":[1.5,"<y>"]}},{"id":"a"}],"other":1}`)
	s.Secret("service", map[string]string{"token": "s3cret"})
	s.provider("service", "type: ExternalService\ninsecure: true\nurl: "+h.URL+
		"/inputs\nsecretRef: {name: service}\ndefaultValues: {k: 1}\nfilter: {limit: 1}")
	want := `[{id: b, k: {x: [1.5, <y>]}}, {id: a, k: 1}]`
	obj := s.exports("service", want)
	if !strings.Contains(fmt.Sprint(obj.Status.Conditions), "no effect on the type ExternalService: spec.filter") {
		t.Errorf("conditions: %+v", obj.Status.Conditions)
	}

	t.Log("a bad answer keeps the inputs, and is not shown")
	for name, c := range map[string]struct{ answer, message string }{
		"no list": {`{}`,
			"It must have the form {\"inputs\": [{\"id\": \"1\"}]}; an empty list exports nothing"},
		"null":       {`{"inputs":null}`, "list 'inputs'"},
		"not JSON":   {`<html>s3cret</html>`, "list 'inputs'"},
		"duplicates": {`{"inputs":[{"id":"a"},{"id":"a"}]}`, "several entries with the id 'a'. The IDs must be unique"},
		"no id": {`{"inputs":[{"name":"a"}]}`,
			"no 'id' in the entry 0 of 'inputs'. Each entry must have an id, which must be a text"},
		"numeric id": {`{"inputs":[{"id":1}]}`, "no 'id' in the entry 0"},
		"deep":       {`{"inputs":[{"id":"a","v":` + deep + `}]}`, "more than 64 levels"},
		"large": {`{"inputs":[{"id":"a","v":"` + strings.Repeat("x", 900<<10) + `"}]}`,
			"larger than 900 KiB. Return fewer inputs"},
		"an entry is1": {`{"inputs":[1]}`, "list 'inputs'"},
	} {
		h.answer("/inputs", "%s", c.answer)
		s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "service")
		testenv.Eventually(t, name, func() error {
			var now controlplanev1.ResourceSetInputProvider
			if err := s.Get(&now, "service"); err != nil {
				return err
			}
			for _, condition := range now.Status.Conditions {
				if strings.Contains(condition.Message, "s3cret") {
					t.Fatalf("%s: the answer is shown: %s", name, condition.Message)
				}
				if condition.Type == "Ready" && strings.Contains(condition.Message, c.message) &&
					len(now.Status.ExportedInputs) == 2 {
					return nil
				}
			}
			return fmt.Errorf("%+v", now.Status.Conditions)
		})
	}
	h.answer("/inputs", `{"inputs":[]}`)
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "service")
	s.exports("service", "[]")

	t.Log("a rate limit is waited for")
	h.fail(func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "service")
	limited := &controlplanev1.ResourceSetInputProvider{}
	s.NotReady(limited, "service", "ReconciliationFailed", "' is rate limiting us until ")
	if text := fmt.Sprint(limited.Status.Conditions); !strings.Contains(text, "Z. Requests resume then") {
		t.Error(text)
	}
	paused := h.sent()
	broken := newHost(t, "")
	broken.fail(func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	s.provider("broken", "type: ExternalService\ninsecure: true\nurl: "+broken.URL)
	testenv.Eventually(t, "one without a rate limit was tried again", func() error {
		if n := broken.sent(); n < 3 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	s.NotReady(&controlplanev1.ResourceSetInputProvider{}, "broken", "ReconciliationFailed",
		"status 500. Check spec.url and the login in the Secret of spec.secretRef")
	if more := h.sent() - paused; more > 0 {
		t.Errorf("%d requests were sent during a pause", more)
	}
}

// TestSlowServices has services that do not end their answer, or send it byte by byte. The pass ends with its timeout,
// the inputs stay, and other providers are not delayed.
func TestSlowServices(t *testing.T) {
	s := newProviders(t)
	slow := atomic.Bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slow.Load() {
			_, _ = io.WriteString(w, `{"inputs":[{"id":"a"}]}`)
			return
		}
		for r.Context().Err() == nil {
			if r.URL.Path == "/drips" {
				_, _ = io.WriteString(w, " ")
				w.(http.Flusher).Flush()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}))
	t.Cleanup(server.Close)
	names := []string{"stalls", "drips"}
	for _, name := range names {
		s.provider(name, "type: ExternalService\ninsecure: true\nurl: "+server.URL+"/"+name)
		s.exports(name, "[{id: a}]")
	}
	slow.Store(true)
	for _, name := range names { // the timeout is too short for a service that answers on a slow machine
		s.Patch(&controlplanev1.ResourceSetInputProvider{}, name, fmt.Sprintf(
			`{"metadata":{"annotations":{%q:"1s"}}}`, controlplanev1.ReconcileTimeoutAnnotation))
		s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, name)
	}
	s.provider("fine", "type: Static")
	for _, name := range names {
		var p controlplanev1.ResourceSetInputProvider
		s.NotReady(&p, name, "ReconciliationFailed", "deadline exceeded")
		if err := s.Get(&p, name); err != nil || len(p.Status.ExportedInputs) != 1 {
			t.Errorf("%s exports %v after a timeout: %v", name, p.Status.ExportedInputs, err)
		}
	}
	s.HasEvent("fine", "ReconciliationSucceeded", "exported 1 input set")
}

// TestExternalArtifacts has artifacts that appear, change and vanish. The provider is queued by them.
func TestExternalArtifacts(t *testing.T) {
	s := newProviders(t)
	s.provider("apps", `
type: ExternalArtifact
selectors:
- matchLabels: {app: web}
- name: other`)
	s.exports("apps", "[]")
	for _, name := range []string{"web-a", "other", "third"} {
		o := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
		if name == "web-a" {
			o.Labels = map[string]string{"app": "web"}
		}
		s.Create(o)
	}
	id := func(name string) string { return fmt.Sprint(adler32.Checksum([]byte(s.Namespace + "/" + name))) }
	other := `
- {id: "` + id("other") + `", name: other, namespace: ` + s.Namespace + `}`
	web := `
- {id: "` + id("web-a") + `", name: web-a, namespace: ` + s.Namespace + `, app: web`
	s.exports("apps", other+web+"}")

	t.Log("its revision and the inputs of its generator are exported")
	var o sourcev1.ExternalArtifact
	if err := s.Get(&o, "web-a"); err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("a", 64)
	o.Status.Artifact = &meta.Artifact{Path: "p", URL: "http://x/p", Revision: "latest@" + digest, Digest: digest,
		LastUpdateTime: meta.TimeOf(time.Now())}
	o.Status.ExportedInputs = controlplanev1.InputSet{"team": text("blue"), "app": text("overridden"),
		"name": text("x")}
	if err := s.Client.Status().Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	s.exports("apps", other+web+", team: blue, revision: 'latest@"+digest+"'}")
	if err := s.Client.Delete(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	s.exports("apps", other)
}

// TestSchedules has a window that is closed now.
func TestSchedules(t *testing.T) {
	s := newProviders(t)
	h := newHost(t, "")
	h.answer("/inputs", `{"inputs":[{"id":"a"}]}`)
	later := time.Now().UTC().Add(3 * time.Hour)
	s.provider("service", fmt.Sprintf("type: ExternalService\ninsecure: true\nurl: %s/inputs\n"+
		"schedule:\n- cron: '0 %d * * *'\n  window: 1h", h.URL, later.Hour()))
	s.NotReady(&controlplanev1.ResourceSetInputProvider{}, "service", "SkippedDueToSchedule", "does not allow")
	var obj controlplanev1.ResourceSetInputProvider
	if err := s.Get(&obj, "service"); err != nil {
		t.Fatal(err)
	}
	next := obj.Status.NextSchedule
	if next == nil || next.When.UTC().Hour() != later.Hour() || next.TimeZone != "UTC" || next.Window.Hours() != 1 {
		t.Errorf("next: %+v", next)
	}
	t.Log("a forced request ignores the schedule, once")
	s.Patch(&obj, "service", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now",
		"reconcile.fluxcd.io/forceAt":"now"}}}`)
	obj = *s.exports("service", "[{id: a}]")
	if obj.Status.LastHandledForceAt != "now" || obj.Status.LastHandledReconcileAt != "now" {
		t.Errorf("status: %+v", obj.Status)
	}
	t.Log("later requests are skipped with an event, and the provider stays ready")
	h.answer("/inputs", `{"inputs":[]}`)
	s.RequestReconcile(&obj, "service")
	s.HasEvent("service", "SkippedDueToSchedule")
	s.exports("service", "[{id: a}]")
}

// TestInvalidObjects has objects that the API server accepts and the controller does not.
func TestInvalidObjects(t *testing.T) {
	s := newProviders(t, func(o *options.Options) { o.NoCrossNamespaceRefs = true })
	s.Secret("empty", map[string]string{"other": "x"})
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "no-rights"}})
	for name, c := range map[string]struct{ spec, reason, text string }{
		"expression": {"type: Static\nfilter: {includeBranch: '('}", "InvalidSpec", ""},
		"schedule": {"type: Static\nschedule: [{cron: never}]", "InvalidSchedule",
			"Use the five fields of crontab, or a descriptor such as @daily"},
		"zone": {"type: Static\nschedule: [{cron: '@daily', timeZone: Mars/Olympus}]", "InvalidSchedule",
			"Use a name such as Europe/Berlin"},
		"zone-in-cron": {"type: Static\nschedule: [{cron: 'CRON_TZ=UTC @daily'}]", "InvalidSchedule",
			"Use the field timeZone"},
		"window": {"type: Static\nschedule: [{cron: '@daily', window: 10s}]", "InvalidSchedule",
			"Set a longer window, or a shorter timeout with the annotation"},
		"deep":    {"type: Static\ndefaultValues: {a: " + deep + "}", "InvalidDefaultValues", ""},
		"address": {"type: GitHubBranch\nurl: https://github.com/org", "InvalidSpec", ""},
		"codecommit-form": {"type: AWSCodeCommitTag\nurl: https://git-codecommit.eu-west-1.amazonaws.com/app",
			"InvalidSpec", "Use the form https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME"},
		"codecommit": {"type: AWSCodeCommitTag\nurl: https://git-codecommit.eu-west-1.example.com/v1/repos/app",
			"InvalidSpec", ""},
		"large": {"type: Static\ndefaultValues: {a: " + strings.Repeat("x", 901<<10) + "}",
			"InvalidExportedInputs", "Select fewer, or shorten spec.defaultValues"},
		"service": {"type: ExternalService\nurl: 'https:///inputs'", "InvalidSpec",
			"Use an https:// URL, or http:// with spec.insecure: true"},
		"login": {"type: ExternalService\nurl: https://service.example/inputs\nsecretRef: {name: empty}",
			"ReconciliationFailed", "Set the key token, or username and password"},
		"account": {"type: ExternalArtifact\nserviceAccountName: no-rights\nselectors: [{name: a}]", "AccessDenied",
			"Grant it get and list on externalartifacts there"},
		"other-namespace": {"type: ExternalArtifact\nselectors: [{name: a, namespace: other}]", "AccessDenied",
			"Remove the field, or start Sluice without --no-cross-namespace-refs"},
	} {
		s.provider(name, c.spec)
		s.NotReady(&controlplanev1.ResourceSetInputProvider{}, name, c.reason, c.text)
	}
	t.Log("disabled objects are not reconciled")
	s.provider("disabled", "type: Static", func(p *controlplanev1.ResourceSetInputProvider) {
		p.Annotations = map[string]string{controlplanev1.ReconcileAnnotation: "Disabled"}
	})
	s.provider("later", "type: ExternalArtifact\nselectors: [{name: none}]")
	s.exports("later", "[]")
	var obj controlplanev1.ResourceSetInputProvider
	if err := s.Get(&obj, "disabled"); err != nil || len(obj.Status.Conditions) > 0 {
		t.Errorf("status: %+v, %v", obj.Status, err)
	}
}
