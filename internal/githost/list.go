package githost

import (
	"context"
	"iter"
	"strconv"
)

// Ref is a branch or a tag.
type Ref struct {
	Name   string
	Commit string // of an annotated tag, the commit that it refers to
}

// ListedRequest is an open change request.
type ListedRequest struct {
	Number int64
	Title  string
	Branch string // source
	Base   string // branch that it lands on
	Fork   bool   // the source is another repository
	Commit string // head; Bitbucket abbreviates it
	Author string // name of the user
	Login  string // of the user: unique on the host, unlike names that users choose
	Labels []string
}

// Environment is an environment of GitLab. See [Client.Deployed] for its deployment.
type Environment struct {
	ID         int64
	Name, Slug string
	Branch     string // of the deployment
	Commit     string
	DeployedBy string // name of the user
}

// lister is a host whose branches, tags and change requests can be listed. A page is identified by a cursor that only
// the host understands: empty for the first page, and empty after the last one.
type lister interface {
	branches(ctx context.Context, cursor string) (all []Ref, next string, err error)
	tags(ctx context.Context, cursor string) (all []Ref, next string, err error)
	requestLister
}

// requestLister is a host whose change requests can be listed.
type requestLister interface {
	requests(ctx context.Context, cursor string) (all []ListedRequest, next string, err error)
}

// maxListPages is the maximum number of pages of a list.
const maxListPages = 1000

// list returns the elements of all pages. It ends with the first error.
func list[T any](ctx context.Context, host string, page func(context.Context, string) ([]T, string, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		seen := map[string]bool{"": true}
		for cursor, n := "", 1; ; n++ {
			all, next, err := page(ctx, cursor)
			if err != nil {
				yield(none, err)
				return
			}
			for _, e := range all {
				if !yield(e, nil) {
					return
				}
			}
			switch {
			case next == "":
				return
			case n == maxListPages, seen[next]:
				yield(none, failed("the list of %s does not end: it has more than %d pages", host, n))
				return
			}
			seen[next], cursor = true, next
		}
	}
}

// refused returns a sequence that is only an error.
func refused[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

func (c *Client) noLists() error {
	return failed("branches and tags of %s cannot be listed", c.repo.Kind).
		WithHint("Use a repository of GitHub, GitLab, Gitea or Azure DevOps").Final()
}

// Branches lists the branches, in the order of the host.
func (c *Client) Branches(ctx context.Context) iter.Seq2[Ref, error] {
	h, ok := c.host.(lister)
	if !ok {
		return refused[Ref](c.noLists())
	}
	return list(ctx, c.repo.Base.Host, h.branches)
}

// Tags lists the tags, in the order of the host.
func (c *Client) Tags(ctx context.Context) iter.Seq2[Ref, error] {
	h, ok := c.host.(lister)
	if !ok {
		return refused[Ref](c.noLists())
	}
	return list(ctx, c.repo.Base.Host, h.tags)
}

// Requests lists the open change requests, in the order of the host. Their labels may be missing: see
// [Client.LabelsOf].
func (c *Client) Requests(ctx context.Context) iter.Seq2[ListedRequest, error] {
	return list(ctx, c.repo.Base.Host, c.host.requests)
}

// LabelsOf returns the labels of a listed change request. It sends a request to hosts whose lists lack them.
func (c *Client) LabelsOf(ctx context.Context, r ListedRequest) ([]string, error) {
	h, ok := c.host.(*azureDevOps)
	if !ok {
		return r.Labels, nil
	}
	return h.labelsOf(ctx, r.Number)
}

// Environments lists the available environments of GitLab.
func (c *Client) Environments(ctx context.Context) iter.Seq2[Environment, error] {
	h, ok := c.host.(*gitlab)
	if !ok {
		return refused[Environment](failed("environments are supported for GitLab only").Final())
	}
	return list(ctx, c.repo.Base.Host, h.environments)
}

// Deployed completes an environment with its running deployment, or else with its last successful one. It reports
// whether there is one.
func (c *Client) Deployed(ctx context.Context, e Environment) (Environment, bool, error) {
	h, ok := c.host.(*gitlab)
	if !ok {
		return e, false, failed("environments are supported for GitLab only").Final()
	}
	return h.deployed(ctx, e)
}

// numbered lists pages by their number.
func numbered[T any](cursor string, page func(n int) ([]T, bool, error)) (all []T, next string, err error) {
	n := 1
	if cursor != "" {
		if n, err = strconv.Atoi(cursor); err != nil {
			return nil, "", failed("the page %q is not a number", cursor)
		}
	}
	all, more, err := page(n)
	if more {
		next = strconv.Itoa(n + 1)
	}
	return all, next, err
}
