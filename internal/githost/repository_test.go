package githost

import (
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind            Kind
		address         string
		base, owner, as string // all empty when it is refused
	}{
		{GitHub, "https://github.com/org/repo", "https://github.com", "org", "repo"},
		{GitHub, "https://user:s3cret@GitHub.com/org/repo.git/", "https://github.com", "org", "repo"},
		{GitHub, "ssh://git@github.com:22/org/repo.git", "https://github.com", "org", "repo"},
		{GitHub, "ssh://git@ssh.github.com:443/org/repo.git", "https://github.com", "org", "repo"},
		{GitHub, "git@github.com:org/repo.git", "https://github.com", "org", "repo"},
		{GitHub, "git@github.com:/org/repo.git", "https://github.com", "org", "repo"},
		{GitHub, "http://git.example.com:8080/org/repo", "http://git.example.com:8080", "org", "repo"},
		{GitHub, "https://[::1]:8080/org/repo", "https://[::1]:8080", "org", "repo"},
		{GitHub, "ssh://git@[::1]:22/org/repo", "https://[::1]", "org", "repo"},
		{GitHub, "https://github.com/org", "", "", ""},
		{GitHub, "https://github.com/org/repo/tree", "", "", ""},
		{GitHub, "https://github.com/org/.git", "", "", ""},
		{GitHub, "https://github.com/../repo", "", "", ""},
		{GitHub, "https://github.com/%2e%2e/repo", "", "", ""},
		{GitHub, "https://github.com/a%2fb/repo", "", "", ""},
		{GitHub, "https://github.com/a%00b/repo", "", "", ""},
		{GitHub, "https://github.com//org/repo", "https://github.com", "org", "repo"},
		{GitHub, "https://github.com/org//repo", "", "", ""},
		{GitHub, "https:///org/repo", "", "", ""},
		{GitHub, "file:///org/repo", "", "", ""},
		{GitHub, "org/repo", "", "", ""},
		{GitHub, "", "", "", ""},
		{GitHub, "https://github.com/org/" + strings.Repeat("r", 300), "", "", ""},
		{GitHub, "https://github.com/" + strings.Repeat("r", 3000), "", "", ""},
		{GitLab, "https://gitlab.com/group/sub/sub2/repo.git", "https://gitlab.com", "group/sub/sub2", "repo"},
		{GitLab, "git@gitlab.example.com:group/repo.git", "https://gitlab.example.com", "group", "repo"},
		{GitLab, "ssh://git@altssh.gitlab.com:443/group/repo", "https://gitlab.com", "group", "repo"},
		{GitLab, "https://gitlab.com/1234", "https://gitlab.com", "", "1234"},
		{GitLab, "https://gitlab.com/repo", "", "", ""},
		{Gitea, "https://codeberg.org/org/repo", "https://codeberg.org", "org", "repo"},
		{Gitea, "https://example.com/a%20b/gitea/org/repo.git", "https://example.com/a%20b/gitea", "org", "repo"},
		{Gitea, "https://example.com/repo", "", "", ""},
		{Bitbucket, "https://user@bitbucket.org/team/repo.git", "https://bitbucket.org", "team", "repo"},
		{Bitbucket, "git@bitbucket.org:team/repo.git", "https://bitbucket.org", "team", "repo"},
		{Bitbucket, "https://bitbucket.example.com/team/repo", "", "", ""},
		{BitbucketServer, "https://git.example.com/scm/prj/repo.git", "https://git.example.com", "prj", "repo"},
		{BitbucketServer, "https://git.example.com/a/b/scm/~jane/repo.git", "https://git.example.com/a/b", "~jane",
			"repo"},
		{BitbucketServer, "https://git.example.com/projects/PRJ/repos/repo/browse", "https://git.example.com", "PRJ",
			"repo"},
		{BitbucketServer, "https://git.example.com/ctx/users/jane/repos/repo", "https://git.example.com/ctx", "~jane",
			"repo"},
		{BitbucketServer, "https://git.example.com/scm/scm/scm.git", "https://git.example.com", "scm", "scm"},
		{BitbucketServer, "ssh://git@git.example.com:7999/prj/repo.git", "https://git.example.com", "prj", "repo"},
		{BitbucketServer, "https://git.example.com/scm/repo", "https://git.example.com", "scm", "repo"},
		{BitbucketServer, "https://git.example.com/a/b/c/d", "", "", ""},
		{AzureDevOps, "https://dev.azure.com/org/project/_git/repo", "https://dev.azure.com/org", "project", "repo"},
		{AzureDevOps, "https://org@dev.azure.com/org/my%20project/_git/my%20repo", "https://dev.azure.com/org",
			"my project", "my repo"},
		{AzureDevOps, "https://dev.azure.com/org/_git/repo", "https://dev.azure.com/org", "repo", "repo"},
		{AzureDevOps, "https://org.visualstudio.com/project/_git/repo", "https://org.visualstudio.com", "project",
			"repo"},
		{AzureDevOps, "https://org.visualstudio.com/_git/repo", "https://org.visualstudio.com", "repo", "repo"},
		{AzureDevOps, "https://org.visualstudio.com/DefaultCollection/_git/repo",
			"https://org.visualstudio.com/DefaultCollection", "repo", "repo"},
		{AzureDevOps, "git@ssh.dev.azure.com:v3/org/project/repo", "https://dev.azure.com/org", "project", "repo"},
		{AzureDevOps, "ssh://git@ssh.dev.azure.com/v3/org/project/repo", "https://dev.azure.com/org", "project",
			"repo"},
		{AzureDevOps, "org@vs-ssh.visualstudio.com:v3/org/project/repo", "https://dev.azure.com/org", "project",
			"repo"},
		{AzureDevOps, "https://tfs.example.com/tfs/Collection/project/_git/repo",
			"https://tfs.example.com/tfs/Collection", "project", "repo"},
		{AzureDevOps, "https://dev.azure.com/_git/repo", "", "", ""},
		{AzureDevOps, "https://dev.azure.com/org/project/_git/repo/pullrequests", "", "", ""},
		{AzureDevOps, "https://dev.azure.com/org/repo", "", "", ""},
		{"gitbucket", "https://example.com/org/repo", "", "", ""},
	} {
		got, err := Parse(c.kind, c.address)
		if c.as == "" {
			if err == nil {
				t.Errorf("%s %s is taken as %+v", c.kind, c.address, got)
				continue
			}
			_ = terminal(t, err)
			if strings.Contains(err.Error(), "repo/") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s %s: %v", c.kind, c.address, err)
			}
		} else if err != nil || got.Base.String() != c.base || got.Owner != c.owner || got.Name != c.as {
			t.Errorf("%s %s is %s, %s, %s: %v", c.kind, c.address, got.Base.String(), got.Owner, got.Name, err)
		}
	}
}

// FuzzParse: whatever the address, no request leaves the API of the host that it names.
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
			t.Fatalf("%q is %+v", address, r)
		}
		c, err := New(Options{Repository: r, Secret: map[string][]byte{"token": []byte("t")}})
		if err != nil {
			t.Fatal(err)
		}
		path := apiOf(t, c).EscapedPath()
		for _, part := range strings.Split(path, "/") {
			if part == ".." || part == "." {
				t.Fatalf("%q is asked at %s", address, path)
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
	t.Fatal("an unknown host")
	return nil
}
