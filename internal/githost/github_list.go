package githost

import (
	"context"
	"net/url"
)

// hostRef is a branch or a tag, with the commit as GitHub, GitLab and Gitea name it.
type hostRef struct {
	Name   string
	Commit struct {
		SHA string
		ID  string // branches of Gitea, and GitLab
	}
}

func toRefs(all []hostRef) []Ref {
	refs := make([]Ref, len(all))
	for i, r := range all {
		refs[i] = Ref{Name: r.Name, Commit: r.Commit.SHA + r.Commit.ID}
	}
	return refs
}

// listedPull is an open pull request of GitHub or Gitea.
type listedPull struct {
	Number int64
	Title  string
	User   struct{ Login string }
	Head   listedSide
	Base   listedSide
	Labels []struct{ Name string }
}

type listedSide struct {
	Ref, SHA string
	Repo     *struct { // nil if the fork was deleted
		FullName string `json:"full_name"`
	}
}

func toListed(all []listedPull) []ListedRequest {
	requests := make([]ListedRequest, len(all))
	for i, p := range all {
		requests[i] = ListedRequest{Number: p.Number, Title: p.Title, Branch: p.Head.Ref, Commit: p.Head.SHA,
			Author: p.User.Login, Login: p.User.Login, Base: p.Base.Ref,
			Fork: p.Head.Repo == nil || p.Base.Repo == nil || p.Head.Repo.FullName != p.Base.Repo.FullName}
		for _, l := range p.Labels {
			requests[i].Labels = append(requests[i].Labels, l.Name)
		}
	}
	return requests
}

// refs lists branches or tags by pages with a number, as GitHub, GitLab and Gitea do.
func (r *rest) refs(ctx context.Context, what string, path []string, cursor string) ([]Ref, string, error) {
	all, next, err := numbered(cursor, func(n int) (all []hostRef, more bool, err error) {
		more, err = r.page(ctx, what, path, nil, n, &all)
		return all, more, err
	})
	return toRefs(all), next, err
}

func (h *githubLike) requests(ctx context.Context, cursor string) ([]ListedRequest, string, error) {
	all, next, err := numbered(cursor, func(n int) (all []listedPull, more bool, err error) {
		more, err = h.page(ctx, "the open pull requests", []string{"pulls"}, url.Values{"state": {"open"}}, n,
			&all)
		return all, more, err
	})
	return toListed(all), next, err
}

func (h *githubLike) branches(ctx context.Context, cursor string) ([]Ref, string, error) {
	return h.refs(ctx, "the branches", []string{"branches"}, cursor)
}

func (h *githubLike) tags(ctx context.Context, cursor string) ([]Ref, string, error) {
	return h.refs(ctx, "the tags", []string{"tags"}, cursor)
}
