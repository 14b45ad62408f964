package githost

import (
	"net/url"
	"strings"
	"testing"
)

// addressCases are addresses and the repositories they identify.
var addressCases = []struct {
	kind              Kind
	address           string
	base, owner, name string // all empty if the address is invalid
}{
	{kind: GitHub, address: "https://github.com/org/repo",
		base: "https://github.com", owner: "org", name: "repo"},
	{kind: GitHub, address: "https://user:s3cret@GitHub.com/org/repo.git/",
		base: "https://github.com", owner: "org", name: "repo"},
	{kind: GitHub, address: "ssh://git@github.com:22/org/repo.git",
		base: "https://github.com", owner: "org", name: "repo"},
	{kind: GitHub, address: "ssh://git@ssh.github.com:443/org/repo.git",
		base: "https://github.com", owner: "org", name: "repo"},
	{kind: GitHub, address: "git@github.com:org/repo.git",
		base: "https://github.com", owner: "org", name: "repo"},
	{kind: GitHub, address: "git@github.com:/org/repo.git",
		base: "https://github.com", owner: "org", name: "repo"},
	{kind: GitHub, address: "http://git.example.com:8080/org/repo",
		base: "http://git.example.com:8080", owner: "org", name: "repo"},
	{kind: GitHub, address: "https://[::1]:8080/org/repo",
		base: "https://[::1]:8080", owner: "org", name: "repo"},
	{kind: GitHub, address: "ssh://git@[::1]:22/org/repo",
		base: "https://[::1]", owner: "org", name: "repo"},
	{kind: GitHub, address: "https://github.com/org"},
	{kind: GitHub, address: "https://github.com/org/repo/tree"},
	{kind: GitHub, address: "https://github.com/org/.git"},
	{kind: GitHub, address: "https://github.com/../repo"},
	{kind: GitHub, address: "https://github.com/%2e%2e/repo"},
	{kind: GitHub, address: "https://github.com/a%2fb/repo"},
	{kind: GitHub, address: "https://github.com/a%00b/repo"},
	{kind: GitHub, address: "https://github.com//org/repo",
		base: "https://github.com", owner: "org", name: "repo"},
	{kind: GitHub, address: "https://github.com/org//repo"},
	{kind: GitHub, address: "https:///org/repo"},
	{kind: GitHub, address: "file:///org/repo"},
	{kind: GitHub, address: "org/repo"},
	{kind: GitHub, address: ""},
	{kind: GitHub, address: "https://github.com/org/" + strings.Repeat("r", 300)},
	{kind: GitHub, address: "https://github.com/" + strings.Repeat("r", 3000)},
	{kind: GitLab, address: "https://gitlab.com/group/sub/sub2/repo.git",
		base: "https://gitlab.com", owner: "group/sub/sub2", name: "repo"},
	{kind: GitLab, address: "git@gitlab.example.com:group/repo.git",
		base: "https://gitlab.example.com", owner: "group", name: "repo"},
	{kind: GitLab, address: "ssh://git@altssh.gitlab.com:443/group/repo",
		base: "https://gitlab.com", owner: "group", name: "repo"},
	{kind: GitLab, address: "https://gitlab.com/1234", base: "https://gitlab.com", name: "1234"},
	{kind: GitLab, address: "https://gitlab.com/repo"},
	{kind: Gitea, address: "https://codeberg.org/org/repo",
		base: "https://codeberg.org", owner: "org", name: "repo"},
	{kind: Gitea, address: "https://example.com/a%20b/gitea/org/repo.git",
		base: "https://example.com/a%20b/gitea", owner: "org", name: "repo"},
	{kind: Gitea, address: "https://example.com/repo"},
	{kind: Bitbucket, address: "https://user@bitbucket.org/team/repo.git",
		base: "https://bitbucket.org", owner: "team", name: "repo"},
	{kind: Bitbucket, address: "git@bitbucket.org:team/repo.git",
		base: "https://bitbucket.org", owner: "team", name: "repo"},
	{kind: Bitbucket, address: "https://bitbucket.example.com/team/repo"},
	{kind: BitbucketServer, address: "https://git.example.com/scm/prj/repo.git",
		base: "https://git.example.com", owner: "prj", name: "repo"},
	{kind: BitbucketServer, address: "https://git.example.com/a/b/scm/~jane/repo.git",
		base: "https://git.example.com/a/b", owner: "~jane", name: "repo"},
	{kind: BitbucketServer, address: "https://git.example.com/projects/PRJ/repos/repo/browse",
		base: "https://git.example.com", owner: "PRJ", name: "repo"},
	{kind: BitbucketServer, address: "https://git.example.com/ctx/users/jane/repos/repo",
		base: "https://git.example.com/ctx", owner: "~jane", name: "repo"},
	{kind: BitbucketServer, address: "https://git.example.com/scm/scm/scm.git",
		base: "https://git.example.com", owner: "scm", name: "scm"},
	{kind: BitbucketServer, address: "ssh://git@git.example.com:7999/prj/repo.git",
		base: "https://git.example.com", owner: "prj", name: "repo"},
	{kind: BitbucketServer, address: "https://git.example.com/scm/repo",
		base: "https://git.example.com", owner: "scm", name: "repo"},
	{kind: BitbucketServer, address: "https://git.example.com/a/b/c/d"},
	{kind: AzureDevOps, address: "https://dev.azure.com/org/project/_git/repo",
		base: "https://dev.azure.com/org", owner: "project", name: "repo"},
	{kind: AzureDevOps, address: "https://org@dev.azure.com/org/my%20project/_git/my%20repo",
		base:  "https://dev.azure.com/org",
		owner: "my project", name: "my repo"},
	{kind: AzureDevOps, address: "https://dev.azure.com/org/_git/repo",
		base: "https://dev.azure.com/org", owner: "repo", name: "repo"},
	{kind: AzureDevOps, address: "https://org.visualstudio.com/project/_git/repo",
		base: "https://org.visualstudio.com", owner: "project", name: "repo"},
	{kind: AzureDevOps, address: "https://org.visualstudio.com/_git/repo",
		base: "https://org.visualstudio.com", owner: "repo", name: "repo"},
	{kind: AzureDevOps, address: "https://org.visualstudio.com/DefaultCollection/_git/repo",
		base: "https://org.visualstudio.com/DefaultCollection", owner: "repo", name: "repo"},
	{kind: AzureDevOps, address: "git@ssh.dev.azure.com:v3/org/project/repo",
		base: "https://dev.azure.com/org", owner: "project", name: "repo"},
	{kind: AzureDevOps, address: "ssh://git@ssh.dev.azure.com/v3/org/project/repo",
		base: "https://dev.azure.com/org", owner: "project", name: "repo"},
	{kind: AzureDevOps, address: "org@vs-ssh.visualstudio.com:v3/org/project/repo",
		base: "https://dev.azure.com/org", owner: "project", name: "repo"},
	{kind: AzureDevOps, address: "https://tfs.example.com/tfs/Collection/project/_git/repo",
		base: "https://tfs.example.com/tfs/Collection", owner: "project", name: "repo"},
	{kind: AzureDevOps, address: "https://dev.azure.com/_git/repo"},
	{kind: AzureDevOps, address: "https://dev.azure.com/org/project/_git/repo/pullrequests"},
	{kind: AzureDevOps, address: "https://dev.azure.com/org/repo"},
	{kind: "gitbucket", address: "https://example.com/org/repo"},
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range addressCases {
		got, err := Parse(c.kind, c.address)
		if c.name == "" {
			if err == nil {
				t.Errorf("%s %s is accepted as %+v", c.kind, c.address, got)
				continue
			}
			_ = expectTerminal(t, err)
			want := "Use an address such as " + addressFormats[c.kind].example
			if c.kind == "gitbucket" {
				want = "Use github, gitlab, gitea, bitbucket, bitbucketserver or azuredevops"
			}
			if !strings.HasSuffix(err.Error(), ". "+want) {
				t.Errorf("%s %s: got %v, want the hint %q", c.kind, c.address, err, want)
			}
			if strings.Contains(err.Error(), "repo/") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s %s: unexpected error %v", c.kind, c.address, err)
			}
		} else if err != nil || got.Base.String() != c.base || got.Owner != c.owner || got.Name != c.name {
			t.Errorf("%s %s: got %s, %s, %s: %v", c.kind, c.address, got.Base.String(), got.Owner, got.Name, err)
		}
	}
}

// FuzzParse checks that requests stay below the API path of the host in the address.
func FuzzParse(f *testing.F) {
	for kind, address := range hosts {
		f.Add(string(kind), address)
	}
	f.Add("azuredevops", "git@ssh.dev.azure.com:v3/o/p/r")
	f.Add("gitlab", "https://h/1234")
	f.Add("gitea", "https://h/%2e%2e/%2e%2e/a/b")
	f.Fuzz(func(t *testing.T, kind, address string) {
		r, err := Parse(Kind(kind), address)
		if err != nil {
			return
		}
		if r.Base.User != nil || r.Base.Host == "" || r.Base.RawQuery != "" || r.Base.Fragment != "" || r.Name == "" {
			t.Fatalf("%q is parsed as %+v", address, r)
		}
		c, err := New(Options{Repository: r, Secret: map[string][]byte{"token": []byte("t")}})
		if err != nil {
			t.Fatal(err)
		}
		path := apiOf(t, c).EscapedPath()
		for _, part := range strings.Split(path, "/") {
			if part == ".." || part == "." {
				t.Fatalf("requests for %q have the path %s", address, path)
			}
		}
	})
}

func apiOf(t *testing.T, c *Client) *url.URL {
	switch h := c.host.(type) {
	case *github:
		return &h.api
	case *gitlab:
		return &h.api
	case *gitea:
		return &h.api
	case *bitbucket:
		return &h.api
	case *bitbucketServer:
		return &h.api
	case *azureDevOps:
		return &h.api
	}
	t.Fatal("unknown host")
	return nil
}
