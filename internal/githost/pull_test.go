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
		if host.CommentMax() < 60_000 {
			t.Errorf("%s: comments have %d characters", address, host.CommentMax())
		}
	}
	for _, address := range []string{"https://github.com/o/r", "https://github.com/o/r/pull/x", "git@github.com:o/r",
		"https://github.com/pull/1", "https://github.com/o/r/pull/-1", "", "https://github.com/o/../pull/1"} {
		if _, _, err := ParsePull(address); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
	azure := newClient(t, startScript(t, ""), AzureDevOps, "https://dev.azure.com/o/p/_git/r", "token", "s3cret")
	if _, err := azure.Pull(testContext(t), 1); err == nil {
		t.Error("a host without change requests is accepted")
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
