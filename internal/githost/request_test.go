package githost

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/fault"
)

// TestRequests opens a change request, finds nothing to change, and changes it in place, with each host.
func TestRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind      Kind
		address   string
		login     string
		labels    bool
		url       string
		exchanges []exchange
	}{
		"GitHub": {GitHub, "https://github.com/o/r", "Bearer s3cret", true, "https://github.com/o/r/pull/42",
			[]exchange{
				{request: "GET api.github.com/repos/o/r/pulls?base=main&head=o%3Aupdate%2Fapp&state=open",
					answer: `[]`},
				{request: "POST api.github.com/repos/o/r/pulls",
					body:   `{"title":"Update app","head":"update/app","base":"main","body":"to 1.0"}`,
					status: 201, answer: `{"number":42,"html_url":"https://github.com/o/r/pull/42","title":"Update app","body":"to 1.0","labels":[]}`},
				{request: "POST api.github.com/repos/o/r/issues/42/labels", body: `{"labels":["images"]}`,
					answer: `[]`},
				{request: "GET api.github.com/repos/o/r/pulls?base=main&head=o%3Aupdate%2Fapp&state=open",
					answer: `[{"number":42,"html_url":"https://github.com/o/r/pull/42","title":"Update app","body":"to 1.0\r\n","labels":[{"name":"images"}]}]`},
				{request: "GET api.github.com/repos/o/r/pulls?base=main&head=o%3Aupdate%2Fapp&state=open",
					answer: `[{"number":42,"html_url":"https://github.com/o/r/pull/42","title":"Update app","body":"to 1.0","labels":[{"name":"Images"}]}]`},
				{request: "PATCH api.github.com/repos/o/r/pulls/42", body: `{"title":"Update app","body":"to 1.1"}`,
					answer: `{}`},
			}},
		"GitLab": {GitLab, "https://gitlab.com/g/s/r", "Bearer s3cret", true,
			"https://gitlab.com/g/s/r/-/merge_requests/42", []exchange{
				{request: "GET gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests?source_branch=update%2Fapp&state=opened&target_branch=main", answer: `[{"iid":1,"source_project_id":2,"target_project_id":1}]`},
				{request: "POST gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests",
					body:   `{"title":"Update app","source_branch":"update/app","target_branch":"main","description":"to 1.0"}`,
					status: 201, answer: `{"id":900,"iid":42,"web_url":"https://gitlab.com/g/s/r/-/merge_requests/42","title":"Update app","description":"to 1.0"}`},
				{request: "PUT gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42", body: `{"add_labels":"images"}`,
					answer: `{}`},
				{request: "GET gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests?source_branch=update%2Fapp&state=opened&target_branch=main", answer: `[{"iid":42,"source_project_id":1,"target_project_id":1,"web_url":"https://gitlab.com/g/s/r/-/merge_requests/42","title":"Update app","description":"to 1.0","labels":["images"]}]`},
				{request: "GET gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests?source_branch=update%2Fapp&state=opened&target_branch=main", answer: `[{"iid":42,"source_project_id":1,"target_project_id":1,"web_url":"https://gitlab.com/g/s/r/-/merge_requests/42","title":"Update app","description":"to 1.0","labels":["images"]}]`},
				{request: "PUT gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42",
					body: `{"title":"Update app","description":"to 1.1"}`, answer: `{}`},
			}},
		"Gitea": {Gitea, "https://gitea.example.com/o/r", "token s3cret", true,
			"https://gitea.example.com/o/r/pulls/42", []exchange{
				{request: "GET gitea.example.com/api/v1/repos/o/r/pulls?limit=100&page=1&sort=recentupdate&state=open",
					answer: `[{"number":1,"head":{"ref":"update/app","repo":{"full_name":"fork/r"}},"base":{"ref":"main","repo":{"full_name":"o/r"}}}]`},
				{request: "POST gitea.example.com/api/v1/repos/o/r/pulls",
					body:   `{"title":"Update app","head":"update/app","base":"main","body":"to 1.0"}`,
					status: 201, answer: `{"number":42,"html_url":"https://gitea.example.com/o/r/pulls/42","title":"Update app","body":"to 1.0","labels":null}`},
				{request: "GET gitea.example.com/api/v1/repos/o/r/labels?limit=100&page=1",
					answer: `[{"id":3,"name":"bug"}]`,
					header: map[string]string{"Link": `<https://x>; rel="next",<https://y>; rel="last"`}},
				{request: "GET gitea.example.com/api/v1/repos/o/r/labels?limit=100&page=2", answer: `[]`},
				{request: "POST gitea.example.com/api/v1/repos/o/r/labels", body: `{"name":"images","color":"#0366d6"}`,
					status: 201, answer: `{"id":9,"name":"images"}`},
				{request: "POST gitea.example.com/api/v1/repos/o/r/issues/42/labels", body: `{"labels":[9]}`,
					answer: `[]`},
				{request: "GET gitea.example.com/api/v1/repos/o/r/pulls?limit=100&page=1&sort=recentupdate&state=open",
					answer: giteaOpen},
				{request: "GET gitea.example.com/api/v1/repos/o/r/pulls?limit=100&page=1&sort=recentupdate&state=open",
					answer: giteaOpen},
				{request: "PATCH gitea.example.com/api/v1/repos/o/r/pulls/42",
					body: `{"title":"Update app","body":"to 1.1"}`, status: 201, answer: `{}`},
			}},
		"Bitbucket": {Bitbucket, "https://bitbucket.org/o/r", "Bearer s3cret", false,
			"https://bitbucket.org/o/r/pull-requests/42", []exchange{
				{request: bitbucketFind, answer: `{"values":[{"id":1,"source":{"repository":{"full_name":"fork/r"}}}]}`},
				{request: "POST api.bitbucket.org/2.0/repositories/o/r/pullrequests",
					body:   `{"title":"Update app","description":"to 1.0","source":{"branch":{"name":"update/app"}},"destination":{"branch":{"name":"main"}}}`,
					status: 201, answer: `{"id":42,"links":{"html":{"href":"https://bitbucket.org/o/r/pull-requests/42"}}}`},
				{request: bitbucketFind, answer: bitbucketOpen},
				{request: bitbucketFind, answer: bitbucketOpen},
				{request: "PUT api.bitbucket.org/2.0/repositories/o/r/pullrequests/42",
					body: `{"title":"Update app","description":"to 1.1","reviewers":[{"uuid":"{a}"}]}`, answer: `{}`},
			}},
		"Bitbucket Server": {BitbucketServer, "https://git.example.com/scm/PRJ/r.git", "Bearer s3cret", false,
			"https://git.example.com/projects/PRJ/repos/r/pull-requests/42", []exchange{
				{request: "GET git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests?at=refs%2Fheads%2Fupdate%2Fapp&direction=OUTGOING&limit=100&state=OPEN",
					answer: `{"values":[{"id":1,"toRef":{"id":"refs/heads/main","repository":{"slug":"r","project":{"key":"UPSTREAM"}}}}]}`},
				{request: "POST git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests",
					body: `{"title":"Update app","description":"to 1.0",
				"fromRef":{"id":"refs/heads/update/app","repository":{"slug":"r","project":{"key":"PRJ"}}},"toRef":{"id":"refs/heads/main","repository":{"slug":"r","project":{"key":"PRJ"}}}}`,
					status: 201, answer: `{"id":42,"links":{"self":[{"href":"https://git.example.com/projects/PRJ/repos/r/pull-requests/42"}]}}`},
				{request: "GET git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests?at=refs%2Fheads%2Fupdate%2Fapp&direction=OUTGOING&limit=100&state=OPEN", answer: serverOpen},
				{request: "GET git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests?at=refs%2Fheads%2Fupdate%2Fapp&direction=OUTGOING&limit=100&state=OPEN", answer: serverOpen},
				{request: "PUT git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests/42",
					body: `{"version":3,"title":"Update app","description":"to 1.1","reviewers":[{"user":{"name":"jane"}}]}`, answer: `{}`},
			}},
		"Azure DevOps": {AzureDevOps, "git@ssh.dev.azure.com:v3/org/my%20project/r", "Basic OnMzY3JldA==", true,
			"https://dev.azure.com/org/my%20project/_git/r/pullrequest/42", []exchange{
				{request: azureFind, answer: `{"value":[{"pullRequestId":1,"forkSource":{"name":"refs/heads/update/app"}}]}`},
				{request: "POST dev.azure.com/org/my%20project/_apis/git/repositories/r/pullrequests?api-version=7.1",
					body:   `{"title":"Update app","description":"to 1.0","sourceRefName":"refs/heads/update/app","targetRefName":"refs/heads/main"}`,
					status: 201, answer: `{"pullRequestId":42,"url":"https://dev.azure.com/org/_apis/git/repositories/1/pullRequests/42"}`},
				{request: "POST dev.azure.com/org/my%20project/_apis/git/repositories/r/pullRequests/42/labels?api-version=7.1", body: `{"name":"images"}`, answer: `{}`},
				{request: azureFind, answer: `{"value":[{"pullRequestId":42}]}`},
				{request: "GET dev.azure.com/org/my%20project/_apis/git/repositories/r/pullrequests/42?api-version=7.1",
					answer: `{"pullRequestId":42,"title":"Update app","description":"to 1.0"}`},
				{request: "GET dev.azure.com/org/my%20project/_apis/git/repositories/r/pullRequests/42/labels?api-version=7.1", answer: `{"value":[{"name":"images"}]}`},
				{request: azureFind, answer: `{"value":[{"pullRequestId":42}]}`},
				{request: "GET dev.azure.com/org/my%20project/_apis/git/repositories/r/pullrequests/42?api-version=7.1",
					answer: `{"pullRequestId":42,"title":"Update app","description":"to 1.0"}`},
				{request: "GET dev.azure.com/org/my%20project/_apis/git/repositories/r/pullRequests/42/labels?api-version=7.1", answer: `{"value":[{"name":"images"}]}`},
				{request: "PATCH dev.azure.com/org/my%20project/_apis/git/repositories/r/pullrequests/42?api-version=7.1",
					body: `{"title":"Update app","description":"to 1.1"}`, answer: `{}`},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := client(t, play(t, c.login, c.exchanges...), c.kind, c.address, "token", "s3cret")
			for _, body := range []string{"to 1.0", "to 1.0", "to 1.1"} {
				r := Request{Head: "update/app", Base: "main", Title: "Update app", Body: body}
				if c.labels {
					r.Labels = []string{"images"}
				}
				got, err := host.OpenRequest(within(t), r)
				if err != nil || got != c.url {
					t.Fatalf("%s: %q, %v", body, got, err)
				}
			}
		})
	}
}

const (
	giteaOpen = `[{"number":42,"html_url":"https://gitea.example.com/o/r/pulls/42","title":"Update app","body":"to 1.0","labels":[{"id":9,"name":"images"}],
		"head":{"ref":"update/app","repo":{"full_name":"o/r"}},"base":{"ref":"main","repo":{"full_name":"o/r"}}}]`
	bitbucketFind = "GET api.bitbucket.org/2.0/repositories/o/r/pullrequests?q=state%3D%22OPEN%22+AND+source.branch.name%3D%22update%2Fapp%22+AND+destination.branch.name%3D%22main%22"
	bitbucketOpen = `{"values":[{"id":42,"title":"Update app","description":"to 1.0","reviewers":[{"uuid":"{a}"}],"source":{"repository":{"full_name":"o/r"}},
		"links":{"html":{"href":"https://bitbucket.org/o/r/pull-requests/42"}}}]}`
	serverOpen = `{"values":[{"id":42,"version":3,"title":"Update app","description":"to 1.0","reviewers":[{"user":{"name":"jane"}}],"toRef":{"id":"refs/heads/main","repository":{"slug":"r","project":{"key":"PRJ"}}},
		"links":{"self":[{"href":"https://git.example.com/projects/PRJ/repos/r/pull-requests/42"}]}}]}`
	azureFind = "GET dev.azure.com/org/my%20project/_apis/git/repositories/r/pullrequests?api-version=7.1&searchCriteria.sourceRefName=refs%2Fheads%2Fupdate%2Fapp&searchCriteria.status=active&searchCriteria.targetRefName=refs%2Fheads%2Fmain"
)

// TestARequestThatSomebodyElseChanges is tried again, not given up.
func TestARequestThatSomebodyElseChanges(t *testing.T) {
	t.Parallel()
	host := client(t, play(t, "Bearer s3cret",
		exchange{request: "GET git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests?at=refs%2Fheads%2Fupdate%2Fapp&direction=OUTGOING&limit=100&state=OPEN", answer: serverOpen},
		exchange{request: "PUT git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests/42",
			body:   `{"version":3,"title":"t","description":"","reviewers":[{"user":{"name":"jane"}}]}`,
			status: 409, answer: `{"errors":[{"message":"out of date"}]}`},
	), BitbucketServer, "https://git.example.com/scm/PRJ/r.git", "token", "s3cret")
	_, err := host.OpenRequest(within(t), Request{Head: "update/app", Base: "main", Title: "t"})
	if f := fault.As(err); f == nil || f.Terminal || !strings.Contains(err.Error(), "somebody else") {
		t.Error(err)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	t.Parallel()
	host := client(t, play(t, ""), Bitbucket, "https://bitbucket.org/o/r", "token", "s3cret")
	for _, r := range []Request{{Head: "a", Base: "b"}, {Head: "a", Base: "a", Title: "t"}, {Base: "b", Title: "t"},
		{Head: "a", Base: "b", Title: "t", Labels: []string{"l"}}} {
		_, err := host.OpenRequest(within(t), r)
		_ = terminal(t, err)
	}
}
