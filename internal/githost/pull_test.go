package githost

import (
	"strings"
	"testing"
)

const headCommit = "0123456789012345678901234567890123456789"

func TestPull(t *testing.T) {
	t.Parallel()
	for address, c := range map[string]struct{ login, request, response, ref, clone string }{
		"https://github.com/o/r/pull/42/files": {login: "Bearer s3cret",
			request:  "GET api.github.com/repos/o/r/pulls/42",
			response: `{"base":{"ref":"main"},"head":{"sha":"` + headCommit + `"}}`, ref: "refs/pull/42/head",
			clone: "https://github.com/o/r.git"},
		"https://gitea.example.com/o/r/pulls/42": {login: "token s3cret",
			request:  "GET gitea.example.com/api/v1/repos/o/r/pulls/42",
			response: `{"base":{"ref":"main"},"head":{"sha":"` + headCommit + `"}}`, ref: "refs/pull/42/head",
			clone: "https://gitea.example.com/o/r.git"},
		"https://git.example.com/sub/projects/p/repos/r/pull-requests/42/overview": {login: "Bearer s3cret",
			request:  "GET git.example.com/sub/rest/api/latest/projects/p/repos/r/pull-requests/42",
			response: `{"toRef":{"id":"refs/heads/main"},"fromRef":{"latestCommit":"` + headCommit + `"}}`,
			ref:      "refs/pull-requests/42/from", clone: "https://git.example.com/sub/scm/p/r.git"},
		"https://dev.azure.com/o/p/_git/r/pullrequest/42": {login: "Basic OnMzY3JldA==",
			request: "GET dev.azure.com/o/p/_apis/git/repositories/r/pullrequests/42?api-version=7.1",
			response: `{"sourceRefName":"refs/heads/x","targetRefName":"refs/heads/main","lastMergeSourceCommit":` +
				`{"commitId":"` + headCommit + `"}}`, ref: "refs/heads/x", clone: "https://dev.azure.com/o/p/_git/r"},
		"https://gitlab.com/g/s/r/-/merge_requests/42": {login: "Bearer s3cret",
			request:  "GET gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42",
			response: `{"target_branch":"main","sha":"` + headCommit + `"}`, ref: "refs/merge-requests/42/head",
			clone: "https://gitlab.com/g/s/r.git"},
	} {
		repository, number, err := ParsePull(address)
		if err != nil || number != 42 || repository.CloneURL() != c.clone {
			t.Fatalf("%s: %+v, %d, %v", address, repository, number, err)
		}
		plain := strings.TrimSuffix(c.clone, ".git")
		host := newClient(t, startScript(t, c.login, exchange{Request: c.request, Response: raw(c.response)},
			exchange{Request: c.request, Response: raw(`{}`)}), repository.Kind, plain, "token", "s3cret")
		p, err := host.Pull(testContext(t), 42)
		if err != nil || p != (Pull{Base: "main", Ref: c.ref, Head: headCommit}) {
			t.Errorf("%s: %+v, %v", address, p, err)
		}
		if _, err := host.Pull(testContext(t), 42); err == nil {
			t.Errorf("%s: an empty response is accepted", address)
		}
		if host.CommentMax() < 32_000 {
			t.Errorf("%s: comments have %d characters", address, host.CommentMax())
		}
	}
	for _, address := range []string{"https://github.com/o/r", "https://github.com/o/r/pull/x", "git@github.com:o/r",
		"https://github.com/pull/1", "https://github.com/o/r/pull/-1", "", "https://github.com/o/../pull/1"} {
		if _, _, err := ParsePull(address); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

// TestPullOfBitbucket checks that the whole ID of a commit is read, and that forks are refused.
func TestPullOfBitbucket(t *testing.T) {
	t.Parallel()
	repository, number, err := ParsePull("https://bitbucket.org/w/r/pull-requests/42/diff")
	if err != nil || number != 42 || repository.Kind != Bitbucket ||
		repository.CloneURL() != "https://bitbucket.org/w/r.git" {
		t.Fatal(repository, number, err)
	}
	const api = "GET api.bitbucket.org/2.0/repositories/w/r/"
	response := `{"destination":{"branch":{"name":"main"}},"source":{"branch":{"name":"x"},"commit":{"hash":"0123"},` +
		`"repository":{"full_name":"w/NAME"}}}`
	host := newClient(t, startScript(t, "Bearer s3cret",
		exchange{Request: api + "pullrequests/42", Response: raw(strings.Replace(response, "NAME", "r", 1))},
		exchange{Request: api + "commit/0123", Response: raw(`{"hash":"` + headCommit + `"}`)},
		exchange{Request: api + "pullrequests/42", Response: raw(strings.Replace(response, "NAME", "fork", 1))},
		exchange{Request: api + "pullrequests/42", Response: raw(`{}`)},
	), Bitbucket, "https://bitbucket.org/w/r", "token", "s3cret")
	if p, err := host.Pull(testContext(t), 42); err != nil ||
		p != (Pull{Base: "main", Ref: "refs/heads/x", Head: headCommit}) {
		t.Error(p, err)
	}
	if _, err := host.Pull(testContext(t), 42); err == nil || !strings.Contains(err.Error(), "Fetch the branch of the "+
		"fork into a clone, and name it with --to") {
		t.Error(err)
	}
	if _, err := host.Pull(testContext(t), 42); err == nil {
		t.Error("an empty response is accepted")
	}
}

func FuzzParsePull(f *testing.F) {
	f.Add("https://github.com/o/r/pull/1")
	f.Add("https://gitlab.com/g/r/-/merge_requests/1")
	f.Fuzz(func(t *testing.T, address string) {
		r, n, err := ParsePull(address)
		if err == nil && (n <= 0 || r.Name == "" || r.Base.Host == "") {
			t.Errorf("%q: %+v, %d", address, r, n)
		}
	})
}
