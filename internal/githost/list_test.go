package githost

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// collectAll returns the elements of a list, and its error.
func collectAll[T any](list iter.Seq2[T, error]) (all []T, err error) {
	for e, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// commitOf returns a commit that consists of one digit.
func commitOf(digit string) string { return strings.Repeat(digit, 40) }

const nextPage = `<https://host/next>; rel="next", <https://host/last>; rel="last"`

// listCases are two pages of branches, a page of tags and a page of change requests, as the hosts document them.
var listCases = []struct {
	name     string
	kind     Kind
	address  string
	login    string
	branches []exchange
	tags     []exchange
	requests []exchange
	author   string
	unique   string // login of the author, if the name is another one
}{
	{name: "GitHub", kind: GitHub, address: "https://github.com/org/app", login: "Bearer s3cret", author: "mona",
		branches: []exchange{
			{Request: "GET api.github.com/repos/org/app/branches?page=1&per_page=100",
				Header:   map[string]string{"Link": nextPage},
				Response: raw(`[{"name":"main","commit":{"sha":"` + commitOf("1") + `","url":"x"},"protected":true}]`)},
			{Request: "GET api.github.com/repos/org/app/branches?page=2&per_page=100",
				Response: raw(`[{"name":"feat/a","commit":{"sha":"` + commitOf("2") + `"}}]`)}},
		tags: []exchange{{Request: "GET api.github.com/repos/org/app/tags?page=1&per_page=100",
			Response: raw(`[{"name":"v1.0.0","commit":{"sha":"` + commitOf("3") + `"},"node_id":"x"}]`)}},
		requests: []exchange{{Request: "GET api.github.com/repos/org/app/pulls?page=1&per_page=100&state=open",
			Response: raw(`[{"number":42,"title":"Add","user":{"login":"mona"},
				"labels":[{"name":"preview"},{"name":"x"}],
				"head":{"ref":"feat/a","sha":"` + commitOf("4") + `","repo":null},
				"base":{"ref":"main","repo":{"full_name":"org/app"}}}]`)}}},
	{name: "GitLab", kind: GitLab, address: "https://gitlab.com/group/app", login: "Bearer s3cret", author: "root",
		branches: []exchange{
			{Request: "GET gitlab.com/api/v4/projects/group%2Fapp/repository/branches?page=1&per_page=100",
				Header:   map[string]string{"Link": nextPage},
				Response: raw(`[{"name":"main","commit":{"id":"` + commitOf("1") + `","short_id":"1111"}}]`)},
			{Request: "GET gitlab.com/api/v4/projects/group%2Fapp/repository/branches?page=2&per_page=100",
				Response: raw(`[{"name":"feat/a","commit":{"id":"` + commitOf("2") + `"}}]`)}},
		tags: []exchange{{Request: "GET gitlab.com/api/v4/projects/group%2Fapp/repository/tags?page=1&per_page=100",
			Response: raw(`[{"name":"v1.0.0","target":"` + commitOf("9") + `",
				"commit":{"id":"` + commitOf("3") + `"}}]`)}},
		requests: []exchange{{
			Request: "GET gitlab.com/api/v4/projects/group%2Fapp/merge_requests?page=1&per_page=100&state=opened",
			Response: raw(`[{"id":9001,"iid":42,"title":"Add","author":{"username":"root"},"labels":["preview","x"],
				"source_branch":"feat/a","sha":"` + commitOf("4") + `","target_branch":"main",
				"source_project_id":7,"target_project_id":8}]`)}}},
	{name: "Gitea", kind: Gitea, address: "https://git.example.com/org/app", login: "token s3cret", author: "gopher",
		branches: []exchange{
			{Request: "GET git.example.com/api/v1/repos/org/app/branches?limit=100&page=1",
				Header:   map[string]string{"Link": nextPage},
				Response: raw(`[{"name":"main","commit":{"id":"` + commitOf("1") + `","message":"x"}}]`)},
			{Request: "GET git.example.com/api/v1/repos/org/app/branches?limit=100&page=2",
				Response: raw(`[{"name":"feat/a","commit":{"id":"` + commitOf("2") + `"}}]`)}},
		tags: []exchange{{Request: "GET git.example.com/api/v1/repos/org/app/tags?limit=100&page=1",
			Response: raw(`[{"name":"v1.0.0","id":"` + commitOf("9") + `",
				"commit":{"sha":"` + commitOf("3") + `"}}]`)}},
		requests: []exchange{{Request: "GET git.example.com/api/v1/repos/org/app/pulls?limit=100&page=1&state=open",
			Response: raw(`[{"number":42,"title":"Add","user":{"login":"gopher"},
				"labels":[{"name":"preview"},{"name":"x"}],
				"head":{"ref":"feat/a","sha":"` + commitOf("4") + `","repo":{"full_name":"fork/app"}},
				"base":{"ref":"main","repo":{"full_name":"org/app"}}}]`)}}},
	{name: "Azure DevOps", kind: AzureDevOps, address: "https://dev.azure.com/org/project/_git/app",
		login: "Basic OnMzY3JldA==", author: "Norman Paulk", unique: "norman@example.com",
		branches: []exchange{
			{Request: "GET dev.azure.com/org/project/_apis/git/repositories/app/refs?" +
				"%24top=100&api-version=7.1&filter=heads%2F",
				Header:   map[string]string{"X-Ms-Continuationtoken": "feat"},
				Response: raw(`{"value":[{"name":"refs/heads/main","objectId":"` + commitOf("1") + `"}],"count":1}`)},
			{Request: "GET dev.azure.com/org/project/_apis/git/repositories/app/refs?" +
				"%24top=100&api-version=7.1&continuationToken=feat&filter=heads%2F",
				Response: raw(`{"value":[{"name":"refs/heads/feat/a","objectId":"` + commitOf("2") + `"}]}`)}},
		tags: []exchange{{Request: "GET dev.azure.com/org/project/_apis/git/repositories/app/refs?" +
			"%24top=100&api-version=7.1&filter=tags%2F&peelTags=true",
			Response: raw(`{"value":[{"name":"refs/tags/v1.0.0","objectId":"` + commitOf("9") + `","peeledObjectId":"` +
				commitOf("3") + `"}]}`)}},
		requests: []exchange{{Request: "GET dev.azure.com/org/project/_apis/git/repositories/app/pullrequests?" +
			"%24skip=0&%24top=100&api-version=7.1&searchCriteria.status=active",
			Response: raw(`{"value":[{"pullRequestId":42,"title":"Add","createdBy":{"displayName":"Norman Paulk",
				"uniqueName":"norman@example.com"},"forkSource":{"name":"refs/heads/feat/a"},
				"targetRefName":"refs/heads/main","sourceRefName":"refs/heads/feat/a",
				"lastMergeSourceCommit":{"commitId":"` + commitOf("4") + `"}}]}`)},
			{Request: "GET dev.azure.com/org/project/_apis/git/repositories/app/pullRequests/42/labels?api-version=7.1",
				Response: raw(`{"value":[{"name":"preview","active":true},{"name":"old","active":false},
					{"name":"x"}]}`)}}},
}

func TestLists(t *testing.T) {
	t.Parallel()
	for _, c := range listCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := append(append(append([]exchange{}, c.branches...), c.tags...), c.requests...)
			host := newClient(t, startScript(t, c.login, all...), c.kind, c.address, "username", "git", "password",
				"s3cret")
			ctx := testContext(t)
			branches, err := collectAll(host.Branches(ctx))
			if want := []Ref{{"main", commitOf("1")}, {"feat/a", commitOf("2")}}; err != nil ||
				!reflect.DeepEqual(branches, want) {
				t.Errorf("branches: %v, %v", branches, err)
			}
			tags, err := collectAll(host.Tags(ctx))
			if want := []Ref{{"v1.0.0", commitOf("3")}}; err != nil || !reflect.DeepEqual(tags, want) {
				t.Errorf("tags: %v, %v", tags, err)
			}
			requests, err := collectAll(host.Requests(ctx))
			if err != nil || len(requests) != 1 {
				t.Fatalf("requests: %v, %v", requests, err)
			}
			got := requests[0]
			if got.Labels, err = host.LabelsOf(ctx, got); err != nil {
				t.Error(err)
			}
			want := ListedRequest{Number: 42, Title: "Add", Branch: "feat/a", Commit: commitOf("4"), Author: c.author,
				Login: cmp.Or(c.unique, c.author), Base: "main", Fork: true,
				Labels: []string{"preview", "x"}}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestRequestsOfBitbucket reads pages as Bitbucket Cloud and Data Center document them.
func TestRequestsOfBitbucket(t *testing.T) {
	t.Parallel()
	cloud := "GET api.bitbucket.org/2.0/repositories/org/app/pullrequests?page=%d&pagelen=50&state=OPEN"
	server := "GET git.example.com/rest/api/latest/projects/ORG/repos/app/pull-requests?limit=100&start=%d&state=OPEN"
	for name, c := range map[string]struct {
		kind    Kind
		address string
		pages   []exchange
		want    []ListedRequest
	}{
		"Cloud": {Bitbucket, "https://bitbucket.org/org/app", []exchange{
			{Request: fmt.Sprintf(cloud, 1), Response: raw(`{"next":"https://api.bitbucket.org/x","values":[{"id":1,
				"title":"A","author":{"display_name":"Mona","uuid":"{1}"},
				"source":{"branch":{"name":"a"},"commit":{"hash":"0123456789ab"},"repository":{"full_name":"org/app"}},
				"destination":{"branch":{"name":"main"}}}]}`)},
			{Request: fmt.Sprintf(cloud, 2), Response: raw(`{"values":[{"id":2,"title":"B",
				"author":{"display_name":"Mona","uuid":"{2}"},"source":{"branch":{"name":"b"},
				"commit":{"hash":"aaaaaaaaaaaa"},"repository":{"full_name":"fork/app"}},
				"destination":{"branch":{"name":"main"}}}]}`)}},
			[]ListedRequest{{Number: 1, Title: "A", Branch: "a", Base: "main", Commit: "0123456789ab", Author: "Mona",
				Login: "{1}"}, {Number: 2, Title: "B", Branch: "b", Base: "main", Commit: "aaaaaaaaaaaa",
				Author: "Mona", Login: "{2}", Fork: true}}},
		"Data Center": {BitbucketServer, "https://git.example.com/scm/ORG/app", []exchange{
			{Request: fmt.Sprintf(server, 0), Response: raw(`{"isLastPage":false,"nextPageStart":100,"values":[{"id":1,
				"title":"A","author":{"user":{"name":"mona","displayName":"Mona"}},
				"fromRef":{"displayId":"a","latestCommit":"` + commit + `","repository":{"id":1}},
				"toRef":{"displayId":"main","repository":{"id":1}}}]}`)},
			{Request: fmt.Sprintf(server, 100), Response: raw(`{"isLastPage":true,"values":[]}`)}},
			[]ListedRequest{{Number: 1, Title: "A", Branch: "a", Base: "main", Commit: commit, Author: "Mona",
				Login: "mona"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newClient(t, startScript(t, "Bearer x", c.pages...), c.kind, c.address, "token", "x")
			got, err := collectAll(host.Requests(testContext(t)))
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestWebPages compares the addresses of pages with what browsers show; those of change requests must parse.
func TestWebPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind                Kind
		address, page, file string
	}{
		{GitHub, "https://github.com/o/r", "https://github.com/o/r/pull/7",
			"https://github.com/o/r/blob/C/a/b%23.yaml#L3"},
		{GitLab, "https://gitlab.com/g/s/r", "https://gitlab.com/g/s/r/-/merge_requests/7",
			"https://gitlab.com/g/s/r/-/blob/C/a/b%23.yaml#L3"},
		{Gitea, "https://git.example.com/o/r", "https://git.example.com/o/r/pulls/7",
			"https://git.example.com/o/r/src/commit/C/a/b%23.yaml#L3"},
		{Bitbucket, "https://bitbucket.org/o/r", "https://bitbucket.org/o/r/pull-requests/7",
			"https://bitbucket.org/o/r/src/C/a/b%23.yaml#lines-3"},
		{BitbucketServer, "https://git.example.com/scm/O/r",
			"https://git.example.com/projects/O/repos/r/pull-requests/7",
			"https://git.example.com/projects/O/repos/r/browse/a/b%23.yaml?at=C#3"},
		{AzureDevOps, "https://dev.azure.com/o/p/_git/r", "https://dev.azure.com/o/p/_git/r/pullrequest/7",
			"https://dev.azure.com/o/p/_git/r?line=3&lineEnd=4&lineEndColumn=1&lineStartColumn=1" +
				"&path=%2Fa%2Fb%23.yaml&version=GCC"},
	} {
		r, err := Parse(c.kind, c.address)
		if err != nil {
			t.Fatal(err)
		}
		page := r.RequestURL(7)
		parsed, number, err := ParsePull(page)
		if page != c.page || err != nil || number != 7 || parsed != r {
			t.Errorf("%s: got %s, which is %+v, %d, %v", c.kind, page, parsed, number, err)
		}
		if got := r.FileURL("C", "a/b#.yaml", 3); got != c.file {
			t.Errorf("%s: got %s, want %s", c.kind, got, c.file)
		}
	}
}

// TestEnvironments has an environment that is being deployed, one that was, and one that never was.
func TestEnvironments(t *testing.T) {
	t.Parallel()
	deployments := func(name, status, answer string) exchange {
		return exchange{Request: "GET gitlab.com/api/v4/projects/group%2Fapp/deployments?environment=" + name +
			"&order_by=id&per_page=1&sort=desc&status=" + status, Response: raw(answer)}
	}
	deployment := `[{"ref":"feat/a","sha":"` + commitOf("4") + `","user":{"username":"root"}}]`
	host := newClient(t, startScript(t, "Bearer s3cret",
		exchange{Request: "GET gitlab.com/api/v4/projects/group%2Fapp/environments?" +
			"page=1&per_page=100&states=available",
			Response: raw(`[{"id":1,"name":"review/a","slug":"review-a-1x"},{"id":2,"name":"b","slug":"b"},
				{"id":3,"name":"c","slug":"c"}]`)},
		deployments("review%2Fa", "running", deployment),
		deployments("b", "running", "[]"), deployments("b", "success", deployment),
		deployments("c", "running", "[]"), deployments("c", "success", "[]"),
	), GitLab, "https://gitlab.com/group/app", "token", "s3cret")
	all, err := collectAll(host.Environments(testContext(t)))
	if err != nil || len(all) != 3 {
		t.Fatalf("environments: %v, %v", all, err)
	}
	for i, want := range []bool{true, true, false} {
		e, ok, err := host.Deployed(testContext(t), all[i])
		if err != nil || ok != want ||
			ok && (e.Branch != "feat/a" || e.Commit != commitOf("4") || e.DeployedBy != "root") {
			t.Errorf("environment %d: %+v, %t, %v", i, e, ok, err)
		}
	}
}

// TestListsEnd has a host whose list never ends, and one that fails on the second page.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	requests := 0
	endless := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("Link", nextPage)
		_, _ = fmt.Fprintf(w, `[{"name":"b%d","commit":{"sha":"%s"}}]`, requests, commitOf("1"))
	})
	const address = "https://github.com/org/app"
	_, err := collectAll(newClient(t, endless, GitHub, address, "token", "x").Branches(testContext(t)))
	if err == nil || !strings.Contains(err.Error(), "more than 1000 pages") {
		t.Errorf("got %v after %d requests", err, requests)
	}
	failing := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", nextPage)
		if r.URL.Query().Get("page") == "2" {
			w.WriteHeader(http.StatusBadGateway)
		}
		_, _ = w.Write([]byte(`[{"name":"main","commit":{"sha":"` + commitOf("1") + `"}}]`))
	})
	_, err = collectAll(newClient(t, failing, GitHub, address, "token", "x").Tags(testContext(t)))
	if err == nil || !strings.Contains(err.Error(), "status 502") {
		t.Errorf("got %v", err)
	}
}

// TestAnonymousLists checks that no login is sent if there is none, and that one which is incomplete is an error.
func TestAnonymousLists(t *testing.T) {
	t.Parallel()
	repo, err := Parse(GitHub, "https://github.com/org/app")
	if err != nil {
		t.Fatal(err)
	}
	transport := startScript(t, "", exchange{Request: "GET api.github.com/repos/org/app/tags?page=1&per_page=100",
		Response: raw(`[]`)})
	host, err := New(Options{Repository: repo, Transport: transport, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	if tags, err := collectAll(host.Tags(testContext(t))); err != nil || len(tags) > 0 {
		t.Errorf("tags: %v, %v", tags, err)
	}
	if _, err := New(Options{Repository: repo, Transport: transport, Anonymous: true,
		Secret: map[string][]byte{"user": []byte("x")}}); err == nil {
		t.Error("a Secret without a login is accepted")
	}
}

func TestHostsWithoutLists(t *testing.T) {
	t.Parallel()
	none := startScript(t, "")
	bitbucket := newClient(t, none, Bitbucket, "https://bitbucket.org/org/app", "token", "x")
	_, err := collectAll(bitbucket.Branches(testContext(t)))
	_ = expectTerminal(t, err)
	if !strings.Contains(err.Error(), "Use a repository of GitHub, GitLab, Gitea or Azure DevOps") {
		t.Errorf("got %v", err)
	}
	_, err = collectAll(bitbucket.Environments(testContext(t)))
	_ = expectTerminal(t, err)
}
