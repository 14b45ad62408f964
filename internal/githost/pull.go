package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Pull is an open change request, with what is needed to fetch and to compare it.
type Pull struct {
	Base string // branch that it lands on
	Ref  string // reference in the repository whose history has its head, such as refs/pull/42/head
	Head string // commit
}

// pullFormats are the paths of the web pages of change requests: what precedes the number, by kind.
var pullFormats = []struct {
	kind   Kind
	middle []string
}{
	{kind: GitLab, middle: []string{"-", "merge_requests"}},
	{kind: Gitea, middle: []string{"pulls"}},
	{kind: GitHub, middle: []string{"pull"}},
	{kind: AzureDevOps, middle: []string{"pullrequest"}},
	{kind: Bitbucket, middle: []string{"pull-requests"}},
	{kind: BitbucketServer, middle: []string{"pull-requests"}},
}

// pullFormat is how the addresses of change requests look.
var pullFormat = addressFormat{example: "https://github.com/OWNER/REPOSITORY/pull/NUMBER, " +
	"https://gitlab.com/GROUP/PROJECT/-/merge_requests/NUMBER, https://HOST/OWNER/REPOSITORY/pulls/NUMBER, " +
	"https://bitbucket.org/WORKSPACE/REPOSITORY/pull-requests/NUMBER, " +
	"https://HOST/projects/PROJECT/repos/REPOSITORY/pull-requests/NUMBER or " +
	"https://dev.azure.com/ORGANIZATION/PROJECT/_git/REPOSITORY/pullrequest/NUMBER"}

// ParsePull parses the address of the web page of a change request. The path tells the kind of the host: each kind has
// its own.
func ParsePull(address string) (repository Repository, number int, err error) {
	u, err := locate(address, pullFormat)
	if err != nil {
		return Repository{}, 0, err
	}
	parts, err := pathSegments(u, pullFormat)
	if err != nil {
		return Repository{}, 0, err
	}
	for _, f := range pullFormats {
		for at := len(parts) - len(f.middle) - 1; at > 0; at-- {
			if strings.Join(parts[at:at+len(f.middle)], "/") != strings.Join(f.middle, "/") {
				continue
			}
			number, err := strconv.Atoi(parts[at+len(f.middle)])
			if err != nil || number <= 0 {
				continue
			}
			if f.kind == Bitbucket && u.Host != "bitbucket.org" {
				continue
			}
			plain := url.URL{Scheme: u.Scheme, Host: u.Host}
			repository, err = Parse(f.kind, plain.JoinPath(escaped(parts[:at])...).String())
			return repository, number, err
		}
	}
	return Repository{}, 0, pullFormat.invalid("the address is not a pull request or merge request of a known host")
}

// CloneURL returns the address from which a repository is cloned.
func (r Repository) CloneURL() string {
	path := append(strings.Split(r.Owner, "/"), r.Name+".git")
	switch r.Kind {
	case AzureDevOps:
		path = []string{r.Owner, "_git", r.Name}
	case BitbucketServer:
		path = append([]string{"scm"}, path...)
	}
	return r.Base.JoinPath(escaped(path)...).String()
}

// Pull returns an open change request.
func (c *Client) Pull(ctx context.Context, number int) (Pull, error) {
	p, err := c.host.pull(ctx, number)
	if err == nil && (p.Base == "" || !commitID.MatchString(p.Head)) {
		err = failed("unexpected response of %s for change request %d", c.repo.Base.Host, number).
			WithHint(otherHostHint).Final()
	}
	return p, err
}

// CommentMax returns the maximum number of characters of a comment.
func (c *Client) CommentMax() int {
	const marker = 100
	return c.host.limits().comment() - marker
}

// RendersHTML reports whether comments may contain HTML.
func (c *Client) RendersHTML() bool { return !c.host.limits().plain }

func (h *githubLike) pull(ctx context.Context, number int) (Pull, error) {
	var p struct {
		Base struct{ Ref string }
		Head struct{ SHA string }
	}
	err := h.do(ctx, "the pull request", http.MethodGet, []string{"pulls", strconv.Itoa(number)}, nil, nil, &p)
	return Pull{Base: p.Base.Ref, Head: p.Head.SHA, Ref: "refs/pull/" + strconv.Itoa(number) + "/head"}, err
}

func (h *gitlab) pull(ctx context.Context, number int) (Pull, error) {
	var m struct {
		Target string `json:"target_branch"`
		SHA    string `json:"sha"`
	}
	err := h.do(ctx, "the merge request", http.MethodGet, []string{"merge_requests", strconv.Itoa(number)}, nil,
		nil, &m)
	return Pull{Base: m.Target, Head: m.SHA, Ref: "refs/merge-requests/" + strconv.Itoa(number) + "/head"}, err
}
