package githost

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

type bitbucketComment struct {
	ID      int64 `json:"id,omitempty"`
	Content struct {
		Raw string `json:"raw"`
	} `json:"content"`
	Deleted bool `json:"deleted,omitempty"`
}

func (h *bitbucket) commentsOf(request int, more ...string) []string {
	return append([]string{"pullrequests", strconv.Itoa(request), "comments"}, more...)
}

func (h *bitbucket) comments(ctx context.Context, request, page int) (all []comment, more bool, err error) {
	var list struct {
		Values []bitbucketComment
		Next   string
	}
	query := url.Values{"pagelen": {strconv.Itoa(pageSize)}, "page": {strconv.Itoa(page)}}
	err = h.do(ctx, "the comments of the pull request", http.MethodGet, h.commentsOf(request), query, nil, &list)
	for _, c := range list.Values {
		if !c.Deleted {
			all = append(all, comment{ID: c.ID, Body: c.Content.Raw})
		}
	}
	return all, list.Next != "", err
}

func (h *bitbucket) createComment(ctx context.Context, request int, body string) error {
	var c bitbucketComment
	c.Content.Raw = body
	return h.do(ctx, "the comment", http.MethodPost, h.commentsOf(request), nil, c, nil)
}

func (h *bitbucket) updateComment(ctx context.Context, request int, id int64, body string) error {
	var c bitbucketComment
	c.Content.Raw = body
	return h.do(ctx, "the update of the comment", http.MethodPut, h.commentsOf(request, strconv.FormatInt(id, 10)), nil,
		c, nil)
}

// pull reads a pull request. Its commit is abbreviated there, so the whole ID takes another request. The host has no
// reference for pull requests of forks.
func (h *bitbucket) pull(ctx context.Context, number int) (Pull, error) {
	type branch struct{ Name string }
	var p struct {
		Destination struct{ Branch branch }
		Source      struct {
			Branch     branch
			Commit     struct{ Hash string }
			Repository struct {
				FullName string `json:"full_name"`
			}
		}
	}
	if err := h.do(ctx, "the pull request", http.MethodGet, []string{"pullrequests", strconv.Itoa(number)}, nil, nil,
		&p); err != nil {
		return Pull{}, err
	}
	if p.Source.Commit.Hash == "" {
		return Pull{}, nil
	}
	if !strings.EqualFold(p.Source.Repository.FullName, h.repo) {
		return Pull{}, failed("pull request %d comes from a fork, which Bitbucket does not serve", number).
			WithHint("Fetch the branch of the fork into a clone, and name it with --to").Final()
	}
	var c struct{ Hash string }
	err := h.do(ctx, "the commit of the pull request", http.MethodGet, []string{"commit", p.Source.Commit.Hash}, nil,
		nil, &c)
	return Pull{Base: p.Destination.Branch.Name, Ref: "refs/heads/" + p.Source.Branch.Name, Head: c.Hash}, err
}

type serverComment struct {
	ID      int64  `json:"id,omitempty"`
	Version int    `json:"version"`
	Text    string `json:"text"`
}

func (h *bitbucketServer) request(number int, more ...string) []string {
	return append([]string{"pull-requests", strconv.Itoa(number)}, more...)
}

// comments reads the activities of a pull request: comments are listed by file only.
func (h *bitbucketServer) comments(ctx context.Context, request, page int) (all []comment, more bool, err error) {
	var list struct {
		Values []struct {
			Action  string
			Comment *serverComment
		}
		IsLastPage bool
	}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}, "start": {strconv.Itoa((page - 1) * pageSize)}}
	err = h.do(ctx, "the comments of the pull request", http.MethodGet, h.request(request, "activities"), query, nil,
		&list)
	for _, v := range list.Values {
		if v.Action == "COMMENTED" && v.Comment != nil {
			all = append(all, comment{ID: v.Comment.ID, Body: v.Comment.Text})
		}
	}
	return all, !list.IsLastPage, err
}

func (h *bitbucketServer) createComment(ctx context.Context, request int, body string) error {
	return h.do(ctx, "the comment", http.MethodPost, h.request(request, "comments"), nil,
		map[string]string{"text": body}, nil)
}

// updateComment sends the version that it read, as the host requires.
func (h *bitbucketServer) updateComment(ctx context.Context, request int, id int64, body string) error {
	var current serverComment
	path := h.request(request, "comments", strconv.FormatInt(id, 10))
	if err := h.do(ctx, "the comment of the pull request", http.MethodGet, path, nil, nil, &current); err != nil {
		return err
	}
	return h.do(ctx, "the update of the comment", http.MethodPut, path, nil,
		map[string]any{"text": body, "version": current.Version}, nil)
}

func (h *bitbucketServer) pull(ctx context.Context, number int) (Pull, error) {
	var p struct {
		ToRef   struct{ ID string }
		FromRef struct{ LatestCommit string }
	}
	err := h.do(ctx, "the pull request", http.MethodGet, h.request(number), nil, nil, &p)
	return Pull{Base: strings.TrimPrefix(p.ToRef.ID, "refs/heads/"), Head: p.FromRef.LatestCommit,
		Ref: "refs/pull-requests/" + strconv.Itoa(number) + "/from"}, err
}
