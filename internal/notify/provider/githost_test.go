package provider

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const someCommit = "0123456789abcdef0123456789abcdef01234567"

// gitHost is a server that returns empty objects and lists, and records the last write.
type gitHost struct {
	server   *httptest.Server
	requests []string // METHOD host/path
	login    string
	written  map[string]any
	lists    bool // GET requests are answered with lists
}

func newHost(t *testing.T, lists bool) *gitHost {
	h := &gitHost{lists: lists}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

// RoundTrip sends the requests for all hosts to the server.
func (h *gitHost) RoundTrip(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(h.server.URL)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Host, req.URL.Scheme, req.URL.Host = req.URL.Host, to.Scheme, to.Host
	return http.DefaultTransport.RoundTrip(req)
}

func (h *gitHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.requests = append(h.requests, r.Method+" "+r.Host+r.URL.EscapedPath())
	h.login = r.Header.Get("Authorization")
	if r.Method == http.MethodGet {
		response := "{}"
		if h.lists {
			response = "[]"
		}
		_, _ = io.WriteString(w, response)
		return
	}
	h.written = nil
	if err := json.NewDecoder(r.Body).Decode(&h.written); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func applied(metadata ...string) event.Event {
	e := event.Event{
		InvolvedObject: corev1.ObjectReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization",
			Namespace: "flux-system", Name: "apps"},
		Severity: event.Info, Reason: "ReconciliationSucceeded", Message: "Applied revision: main@sha1:" +
			someCommit,
		Timestamp:           metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)),
		ReportingController: "kustomize-controller",
		Metadata:            map[string]string{event.Revision: "main@sha1:" + someCommit},
	}
	for i := 0; i < len(metadata); i += 2 {
		e.Metadata[metadata[i]] = metadata[i+1]
	}
	return e
}

// TestCommitStatuses checks request, state and name of the status on each host.
func TestCommitStatuses(t *testing.T) {
	for kind, c := range map[string]struct {
		address   string
		request   string
		login     string
		nameField string
		states    [3]string // of success, failure and progress
		lists     bool
	}{
		"github": {address: "https://github.com/org/repo", login: "Bearer s3cret-token", nameField: "context",
			request: "POST api.github.com/repos/org/repo/statuses/" + someCommit,
			states:  [3]string{"success", "failure", "pending"}},
		"gitlab": {address: "https://gitlab.com/group/sub/repo", login: "Bearer s3cret-token", nameField: "name",
			lists:   true,
			request: "POST gitlab.com/api/v4/projects/group%2Fsub%2Frepo/statuses/" + someCommit,
			states:  [3]string{"success", "failed", "pending"}},
		"gitea": {address: "https://gitea.example.com/org/repo", login: "token s3cret-token", nameField: "context",
			request: "POST gitea.example.com/api/v1/repos/org/repo/statuses/" + someCommit,
			states:  [3]string{"success", "failure", "pending"}},
		"bitbucket": {address: "https://bitbucket.org/org/repo", login: "Bearer s3cret-token", nameField: "name",
			request: "POST api.bitbucket.org/2.0/repositories/org/repo/commit/" + someCommit + "/statuses/build",
			states:  [3]string{"SUCCESSFUL", "FAILED", "INPROGRESS"}},
		"bitbucketserver": {address: "https://git.example.com/scm/prj/repo.git", login: "Bearer s3cret-token",
			nameField: "name",
			request:   "POST git.example.com/rest/api/latest/projects/prj/repos/repo/commits/" + someCommit + "/builds",
			states:    [3]string{"SUCCESSFUL", "FAILED", "INPROGRESS"}},
		"azuredevops": {address: "https://dev.azure.com/org/project/_git/repo", login: "Basic OnMzY3JldC10b2tlbg==",
			nameField: "context",
			request:   "POST dev.azure.com/org/project/_apis/git/repositories/repo/commits/" + someCommit + "/statuses",
			states:    [3]string{"succeeded", "failed", "pending"}},
	} {
		host := newHost(t, c.lists)
		p, err := New(Options{Type: kind, Address: c.address, UID: "1a2b3c4d-0000-4000-8000-000000000000",
			Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		failed, progressing := applied(), applied()
		failed.Severity, failed.Reason, failed.Message = event.Error, "BuildFailed", "kustomization.yaml is\nmissing"
		progressing.Reason = "Progressing"
		for i, e := range []event.Event{applied(), failed, progressing} {
			if err := p.Send(testContext(t), e); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			name := host.written[c.nameField]
			if of, ok := name.(map[string]any); ok {
				name = of["name"]
			}
			if host.requests[len(host.requests)-1] != c.request || host.login != c.login ||
				host.written["state"] != c.states[i] || name != "kustomization/apps/1a2b3c4d" ||
				host.written["description"] != strings.ReplaceAll(e.Message, "\n", " ") {
				t.Errorf("%s: %s by %s: %v", kind, host.requests, host.login, host.written)
			}
		}
	}
}

// TestCommitOfRevision checks which commit gets the status. Events without a commit are skipped.
func TestCommitOfRevision(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for name, c := range map[string]struct{ revision, origin, want string }{
		"branch":                  {revision: "main@sha1:" + someCommit, want: someCommit},
		"reference":               {revision: "refs/pull/1/head@sha1:" + someCommit, want: someCommit},
		"commit only":             {revision: "sha1:" + someCommit, want: someCommit},
		"older format":            {revision: "feature/x/" + someCommit, want: someCommit},
		"artifact with origin":    {revision: "latest@" + digest, origin: "main@sha1:" + someCommit, want: someCommit},
		"artifact without origin": {revision: "latest@" + digest},
		"bucket":                  {revision: digest},
		"chart":                   {revision: "6.5.0"},
		"short commit":            {revision: "main@sha1:0123"},
		"no revision":             {},
	} {
		host := newHost(t, false)
		p, err := New(Options{Type: "github", Address: "https://github.com/org/repo",
			Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Send(testContext(t), applied(event.Revision, c.revision, event.OriginRevision,
			c.origin)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		request := ""
		if len(host.requests) > 0 {
			request = host.requests[len(host.requests)-1]
		}
		if want := "POST api.github.com/repos/org/repo/statuses/" + c.want; c.want == "" && request != "" ||
			c.want != "" && request != want {
			t.Errorf("%s: got request %q", name, request)
		}
	}
}

// TestCommitStatusNames checks default names and names from expressions.
func TestCommitStatusNames(t *testing.T) {
	nestedLoops := `"x"` // 9^6 evaluations
	for _, variable := range []string{"f", "e", "d", "c", "b", "a"} {
		nestedLoops = "[1,2,3,4,5,6,7,8,9].map(" + variable + ", " + nestedLoops + ")"
	}
	object := map[string]any{"metadata": map[string]any{"name": "status",
		"uid": "1a2b3c4d-0000-4000-8000-000000000000"}}
	alert := map[string]any{"metadata": map[string]any{"name": "on-call"}}
	for expr, want := range map[string]string{ // with the prefix !: a part of the error
		"": "kustomization/apps/1a2b3c4d",
		`event.involvedObject.kind + '/' + event.involvedObject.name + '/' + event.metadata.env + '/' + ` +
			`provider.metadata.uid.split('-').first().value()`: "Kustomization/apps/prod/1a2b3c4d",
		`alert.metadata.name + "/" + event.reason`: "on-call/ReconciliationSucceeded",
		`event.metadata.nowhere`:                   "!fails",
		`alert.spec.secret`:                        "!fails",
		`"  "`:                                     "!returns an empty name",
		`1 + 1`:                                    "!not a text",
		`event.metadata`:                           "!not a text",
		`event.`:                                   "!is not valid",
		`other.name`:                               "!is not valid",
		nestedLoops + `.size() > 0 ? "a" : "b"`:    "!fails",
	} {
		host := newHost(t, false)
		p, err := New(Options{Type: "github", Address: "https://github.com/org/repo",
			UID: "1a2b3c4d-0000-4000-8000-000000000000", CommitStatus: expr, Object: object,
			Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
		if err == nil {
			e := applied("env", "prod")
			e.Alert = alert
			err = p.Send(testContext(t), e)
		}
		if text, fails := strings.CutPrefix(want, "!"); fails {
			if f := fault.As(err); f == nil || !f.Terminal || f.Reason != "InvalidCELExpression" ||
				f.Hint != "Correct spec.commitStatusExpr. It can use event, alert and provider, and must return a "+
					"text" ||
				!strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", expr, err)
			}
		} else if err != nil || host.written["context"] != want {
			t.Errorf("%s: %v, %v", expr, host.written["context"], err)
		}
	}
	host := newHost(t, false)
	p, err := New(Options{Type: "github", Address: "https://github.com/org/repo", UID: "1a2b3c4d-0",
		Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
	if err == nil {
		err = p.Send(testContext(t), applied(event.CommitStatus, "update", event.Commit,
			"0123456789abcdef0123456789abcdef01234567"))
	}
	if requests := strings.Join(host.requests, " "); err != nil ||
		host.written["context"] != "kustomization/apps/1a2b3c4d" ||
		!strings.HasSuffix(requests, "/statuses/0123456789abcdef0123456789abcdef01234567") {
		t.Errorf("commit in the metadata: got %v at %s, %v", host.written["context"], requests, err)
	}
}

func TestRequestComments(t *testing.T) {
	for kind, c := range map[string]struct{ address, request string }{
		"githubpullrequestcomment": {address: "https://github.com/org/repo",
			request: "POST api.github.com/repos/org/repo/issues/42/comments"},
		"gitlabmergerequestcomment": {address: "https://gitlab.com/group/sub/repo",
			request: "POST gitlab.com/api/v4/projects/group%2Fsub%2Frepo/merge_requests/42/notes"},
		"giteapullrequestcomment": {address: "https://gitea.example.com/org/repo",
			request: "POST gitea.example.com/api/v1/repos/org/repo/issues/42/comments"},
	} {
		host := newHost(t, true)
		p, err := New(Options{Type: kind, Address: c.address, UID: "1a2b",
			Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		e := applied(event.ChangeRequest, "42", event.Summary, "prod `x`", event.OriginURL,
			"https://github.com/org/repo", "env", "prod")
		e.Severity, e.Message = event.Error, "it is ```broken``` by @someone. Repair it"
		if err := p.Send(testContext(t), e); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		body, _ := host.written["body"].(string)
		_, body, _ = strings.Cut(body, "\n") // the marker
		want := "### ❌ `kustomization/apps.flux-system: ReconciliationSucceeded`\n\n`prod 'x'`\n\n" +
			"````\nit is ```broken``` by @someone\n````\n\nWhat to do: `Repair it`\n\n" +
			"- `Revision`: [`main@sha1:01234567`](https://github.com/org/repo/commit/" + someCommit +
			")\n- `env`: `prod`\n\n<sub>2026-11-21T12:00:00Z</sub>\n"
		if host.requests[len(host.requests)-1] != c.request || body != want {
			t.Errorf("%s: %s\n%s", kind, host.requests, body)
		}
		count := len(host.requests)
		if err := p.Send(testContext(t), applied()); err != nil || len(host.requests) != count {
			t.Errorf("%s: event without change request: %v, %v", kind, err, host.requests[count:])
		}
		for _, number := range []string{"0", "-1", "main", "1/../2"} {
			if f := fault.As(p.Send(testContext(t), applied(event.ChangeRequest, number))); f == nil || !f.Terminal ||
				!strings.HasSuffix(f.Hint, " of the object to the number of the pull or merge request") ||
				len(host.requests) != count {
				t.Errorf("%s: change request %s: got %v, want a terminal fault", kind, number, f)
			}
		}
	}
}

func TestGitHubDispatch(t *testing.T) {
	host := newHost(t, false)
	p, err := New(Options{Type: "githubdispatch", Address: "https://github.com/org/repo",
		Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(testContext(t), applied(event.Summary, "staging")); err != nil {
		t.Fatal(err)
	}
	payload, _ := host.written["client_payload"].(map[string]any)
	metadata, _ := payload["metadata"].(map[string]any)
	if !slices.Equal(host.requests, []string{"POST api.github.com/repos/org/repo/dispatches"}) ||
		host.written["event_type"] != "Kustomization/apps.flux-system" ||
		metadata["summary"] != "staging" || len(payload) > 10 {
		t.Errorf("%s: %v", host.requests, host.written)
	}
}

// entra is a workload identity that returns cloud and scope as the token.
type entra struct{ err error }

func (e entra) Token(_ context.Context, cloud, scope string) (string, error) {
	return cloud + " " + scope, e.err
}

// TestAzureDevOpsWorkloadIdentity checks that tokens are sent to Azure DevOps only.
func TestAzureDevOpsWorkloadIdentity(t *testing.T) {
	send := func(address string, identity Identity) (*gitHost, error) {
		host := newHost(t, false)
		p, err := New(Options{Type: "azuredevops", Address: address, Identity: identity, Transport: host})
		if err != nil {
			t.Fatal(err)
		}
		return host, p.Send(testContext(t), applied())
	}
	host, err := send("https://dev.azure.com/org/project/_git/repo", entra{})
	if err != nil || host.login != "Bearer azure 499b84ac-1321-427f-aa17-267ca6975798/.default" {
		t.Errorf("%q, %v", host.login, err)
	}
	for _, address := range []string{"https://evil.example.com/org/project/_git/repo",
		"http://dev.azure.com/org/project/_git/repo"} {
		if host, err := send(address, entra{}); err == nil || len(host.requests) > 0 {
			t.Errorf("%s: %v, %v", address, host.requests, err)
		}
	}
	if host, err := send("https://dev.azure.com/org/project/_git/repo", entra{errors.New("no identity")}); err == nil ||
		len(host.requests) > 0 {
		t.Errorf("%v, %v", host.requests, err)
	}
}

func TestGitHostErrors(t *testing.T) {
	for want, o := range map[string]Options{
		"ValidationFailed": {Type: "github", Address: "https://github.com/s3cret-org",
			Secret: map[string][]byte{"token": []byte("s3cret-token")}},
		"AuthenticationFailed": {Type: "gitlab", Address: "https://gitlab.com/org/repo"},
	} {
		_, err := New(o)
		if f := fault.As(err); f == nil || f.Reason != want || !f.Terminal || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", want, err)
		}
	}
	for status, want := range map[int]string{401: "AuthenticationFailed", 500: "SendFailed"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"message":"s3cret-token is not valid"}`)
		}))
		t.Cleanup(server.Close)
		p, err := New(Options{Type: "gitea", Address: server.URL + "/org/repo",
			Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: http.DefaultTransport})
		if err != nil {
			t.Fatal(err)
		}
		err = p.Send(testContext(t), applied())
		if f := fault.As(err); f == nil || f.Reason != want || f.Terminal != (status == 401) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%d: %v", status, err)
		}
	}
}
