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

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const someCommit = "0123456789abcdef0123456789abcdef01234567"

// gitHost answers reads with nothing and takes writes, of which it keeps the last.
type gitHost struct {
	server  *httptest.Server
	asked   []string // METHOD host/path
	login   string
	written map[string]any
	lists   bool // reads are answered with lists
}

func newHost(t *testing.T, lists bool) *gitHost {
	h := &gitHost{lists: lists}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

// RoundTrip brings the requests for every host to the server.
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
	h.asked = append(h.asked, r.Method+" "+r.Host+r.URL.EscapedPath())
	h.login = r.Header.Get("Authorization")
	if r.Method == http.MethodGet {
		answer := "{}"
		if h.lists {
			answer = "[]"
		}
		_, _ = io.WriteString(w, answer)
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

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestCommitStatuses: every host gets the state in its own words, under the documented name.
func TestCommitStatuses(t *testing.T) {
	for kind, c := range map[string]struct {
		address, asked, login, nameField string
		states                           [3]string // of success, failure and progress
		lists                            bool
	}{
		"github": {"https://github.com/org/repo", "POST api.github.com/repos/org/repo/statuses/" + someCommit,
			"Bearer s3cret-token", "context",
			[3]string{"success", "failure", "pending"}, false},
		"gitlab": {"https://gitlab.com/group/sub/repo", "POST gitlab.com/api/v4/projects/group%2Fsub%2Frepo/statuses/" +
			someCommit, "Bearer s3cret-token", "name",
			[3]string{"success", "failed", "pending"}, true},
		"gitea": {"https://gitea.example.com/org/repo", "POST gitea.example.com/api/v1/repos/org/repo/statuses/" +
			someCommit, "token s3cret-token", "context",
			[3]string{"success", "failure", "pending"}, false},
		"bitbucket": {"https://bitbucket.org/org/repo", "POST api.bitbucket.org/2.0/repositories/org/repo/commit/" +
			someCommit + "/statuses/build", "Bearer s3cret-token", "name",
			[3]string{"SUCCESSFUL", "FAILED", "INPROGRESS"}, false},
		"bitbucketserver": {"https://git.example.com/scm/prj/repo.git",
			"POST git.example.com/rest/api/latest/projects/prj/repos/repo/commits/" + someCommit + "/builds",
			"Bearer s3cret-token", "name",
			[3]string{"SUCCESSFUL", "FAILED", "INPROGRESS"}, false},
		"azuredevops": {"https://dev.azure.com/org/project/_git/repo",
			"POST dev.azure.com/org/project/_apis/git/repositories/repo/commits/" + someCommit + "/statuses",
			"Basic OnMzY3JldC10b2tlbg==", "context",
			[3]string{"succeeded", "failed", "pending"}, false},
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
			if err := p.Send(soon(t), e); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			name := host.written[c.nameField]
			if of, ok := name.(map[string]any); ok {
				name = of["name"]
			}
			if host.asked[len(host.asked)-1] != c.asked || host.login != c.login ||
				host.written["state"] != c.states[i] || name != "kustomization/apps/1a2b3c4d" ||
				host.written["description"] != strings.ReplaceAll(e.Message, "\n", " ") {
				t.Errorf("%s: %s by %s: %v", kind, host.asked, host.login, host.written)
			}
		}
	}
}

// TestCommits: the commit is that of the code, whatever was made of it; what is about no commit is no failure.
func TestCommits(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for name, c := range map[string]struct{ revision, origin, want string }{
		"of a branch":             {"main@sha1:" + someCommit, "", someCommit},
		"of a reference":          {"refs/pull/1/head@sha1:" + someCommit, "", someCommit},
		"bare":                    {"sha1:" + someCommit, "", someCommit},
		"of an older version":     {"feature/x/" + someCommit, "", someCommit},
		"of an artifact":          {"latest@" + digest, "main@sha1:" + someCommit, someCommit},
		"of an artifact, no code": {"latest@" + digest, "", ""},
		"of a bucket":             {digest, "", ""},
		"of a chart":              {"6.5.0", "", ""},
		"a commit cut off":        {"main@sha1:0123", "", ""},
		"none":                    {"", "", ""},
	} {
		host := newHost(t, false)
		p, err := New(Options{Type: "github", Address: "https://github.com/org/repo",
			Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Send(soon(t), applied(event.Revision, c.revision, event.OriginRevision, c.origin)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		said := ""
		if len(host.asked) > 0 {
			said = host.asked[len(host.asked)-1]
		}
		if want := "POST api.github.com/repos/org/repo/statuses/" + c.want; c.want == "" && said != "" ||
			c.want != "" && said != want {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestNamesOfCommitStatuses: by expressions, and as ever.
func TestNamesOfCommitStatuses(t *testing.T) {
	object := map[string]any{"metadata": map[string]any{"name": "status",
		"uid": "1a2b3c4d-0000-4000-8000-000000000000"}}
	alert := map[string]any{"metadata": map[string]any{"name": "on-call"}}
	for expr, want := range map[string]string{ // a part of the error when it begins with !
		"": "kustomization/apps/1a2b3c4d",
		`event.involvedObject.kind + '/' + event.involvedObject.name + '/' + event.metadata.env + '/' + provider.metadata.uid.split('-').first().value()`: "Kustomization/apps/prod/1a2b3c4d",
		`alert.metadata.name + "/" + event.reason`: "on-call/ReconciliationSucceeded",
		`event.metadata.nowhere`:                   "!fails",
		`alert.spec.secret`:                        "!fails",
		`"  "`:                                     "!gives no name",
		`1 + 1`:                                    "!not a text",
		`event.metadata`:                           "!not a text",
		`event.`:                                   "!is not valid",
		`other.name`:                               "!is not valid",
		`[1,2,3,4,5,6,7,8,9].map(a, [1,2,3,4,5,6,7,8,9].map(b, [1,2,3,4,5,6,7,8,9].map(c, [1,2,3,4,5,6,7,8,9].map(d, [1,2,3,4,5,6,7,8,9].map(e, [1,2,3,4,5,6,7,8,9].map(f, "x")))))).size() > 0 ? "a" : "b"`: "!fails",
	} {
		host := newHost(t, false)
		p, err := New(Options{Type: "github", Address: "https://github.com/org/repo",
			UID: "1a2b3c4d-0000-4000-8000-000000000000", CommitStatus: expr, Object: object,
			Secret: map[string][]byte{"token": []byte("s3cret-token")}, Transport: host})
		if err == nil {
			err = p.Send(WithAlert(soon(t), alert), applied("env", "prod"))
		}
		if words, fails := strings.CutPrefix(want, "!"); fails {
			if f := fault.As(err); f == nil || !f.Terminal || f.Reason != "InvalidCELExpression" ||
				!strings.Contains(err.Error(), words) {
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
		err = p.Send(soon(t), applied(event.CommitStatus, "update", event.Commit,
			"0123456789abcdef0123456789abcdef01234567"))
	}
	if asked := strings.Join(host.asked, " "); err != nil || host.written["context"] != "kustomization/apps/1a2b3c4d" ||
		!strings.HasSuffix(asked, "/statuses/0123456789abcdef0123456789abcdef01234567") {
		t.Errorf("of a commit that the object names: %v at %s, %v", host.written["context"], asked, err)
	}
}

func TestRequestComments(t *testing.T) {
	for kind, c := range map[string]struct{ address, asked string }{
		"githubpullrequestcomment": {"https://github.com/org/repo",
			"POST api.github.com/repos/org/repo/issues/42/comments"},
		"gitlabmergerequestcomment": {"https://gitlab.com/group/sub/repo",
			"POST gitlab.com/api/v4/projects/group%2Fsub%2Frepo/merge_requests/42/notes"},
		"giteapullrequestcomment": {"https://gitea.example.com/org/repo",
			"POST gitea.example.com/api/v1/repos/org/repo/issues/42/comments"},
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
		if err := p.Send(soon(t), e); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		body, _ := host.written["body"].(string)
		_, body, _ = strings.Cut(body, "\n") // the marker
		want := "### ❌ `kustomization/apps.flux-system: ReconciliationSucceeded`\n\n`prod 'x'`\n\n" +
			"````\nit is ```broken``` by @someone\n````\n\nWhat to do: `Repair it`\n\n" +
			"- `Revision`: [`main@sha1:01234567`](https://github.com/org/repo/commit/" + someCommit +
			")\n- `env`: `prod`\n\n<sub>2026-11-21T12:00:00Z</sub>\n"
		if host.asked[len(host.asked)-1] != c.asked || body != want {
			t.Errorf("%s: %s\n%s", kind, host.asked, body)
		}
		asked := len(host.asked)
		if err := p.Send(soon(t), applied()); err != nil || len(host.asked) != asked {
			t.Errorf("%s: an event of no change request: %v, %v", kind, err, host.asked[asked:])
		}
		for _, number := range []string{"0", "-1", "main", "1/../2"} {
			if f := fault.As(p.Send(soon(t), applied(event.ChangeRequest, number))); f == nil || !f.Terminal ||
				len(host.asked) != asked {
				t.Errorf("%s: change request %s: %v", kind, number, f)
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
	if err := p.Send(soon(t), applied(event.Summary, "staging")); err != nil {
		t.Fatal(err)
	}
	payload, _ := host.written["client_payload"].(map[string]any)
	metadata, _ := payload["metadata"].(map[string]any)
	if !slices.Equal(host.asked, []string{"POST api.github.com/repos/org/repo/dispatches"}) ||
		host.written["event_type"] != "Kustomization/apps.flux-system" ||
		metadata["summary"] != "staging" || len(payload) > 10 {
		t.Errorf("%s: %v", host.asked, host.written)
	}
}

// entra is a workload identity.
type entra struct{ err error }

func (e entra) Token(_ context.Context, cloud, scope string) (string, error) {
	return cloud + " " + scope, e.err
}

// TestWorkloadIdentityOfAzureDevOps: its tokens go to Azure DevOps, and to no host that an address names.
func TestWorkloadIdentityOfAzureDevOps(t *testing.T) {
	send := func(address string, identity Identity) (*gitHost, error) {
		host := newHost(t, false)
		p, err := New(Options{Type: "azuredevops", Address: address, Identity: identity, Transport: host})
		if err != nil {
			t.Fatal(err)
		}
		return host, p.Send(soon(t), applied())
	}
	host, err := send("https://dev.azure.com/org/project/_git/repo", entra{})
	if err != nil || host.login != "Bearer azure 499b84ac-1321-427f-aa17-267ca6975798/.default" {
		t.Errorf("%q, %v", host.login, err)
	}
	for _, address := range []string{"https://evil.example.com/org/project/_git/repo",
		"http://dev.azure.com/org/project/_git/repo"} {
		if host, err := send(address, entra{}); err == nil || len(host.asked) > 0 {
			t.Errorf("%s: %v, %v", address, host.asked, err)
		}
	}
	if host, err := send("https://dev.azure.com/org/project/_git/repo", entra{errors.New("no identity")}); err == nil ||
		len(host.asked) > 0 {
		t.Errorf("%v, %v", host.asked, err)
	}
}

func TestGitHostsThatCannotWork(t *testing.T) {
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
		err = p.Send(soon(t), applied())
		if f := fault.As(err); f == nil || f.Reason != want || f.Terminal != (status == 401) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%d: %v", status, err)
		}
	}
}
