package githost

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// azureThread is a thread of comments. Comments of ours begin a thread each.
type azureThread struct {
	ID       int64          `json:"id,omitempty"`
	Status   string         `json:"status,omitempty"`
	Comments []azureComment `json:"comments"`
}

type azureComment struct {
	ID        int64  `json:"id,omitempty"`
	Content   string `json:"content"`
	Type      string `json:"commentType,omitempty"`
	IsDeleted bool   `json:"isDeleted,omitempty"`
}

func (h *azureDevOps) threads(request int, more ...string) []string {
	return append([]string{"pullRequests", strconv.Itoa(request), "threads"}, more...)
}

// comments returns the first comment of each thread, with the ID of the thread. The host returns all at once.
func (h *azureDevOps) comments(ctx context.Context, request, _ int) (all []comment, more bool, err error) {
	var list struct{ Value []azureThread }
	err = h.do(ctx, "the comments of the pull request", http.MethodGet, h.threads(request), nil, nil, &list)
	for _, t := range list.Value {
		if len(t.Comments) > 0 && t.Comments[0].ID == firstComment && !t.Comments[0].IsDeleted {
			all = append(all, comment{ID: t.ID, Body: t.Comments[0].Content})
		}
	}
	return all, false, err
}

const firstComment = 1 // of a thread

// createComment begins a closed thread, which does not keep the pull request from being completed.
func (h *azureDevOps) createComment(ctx context.Context, request int, body string) error {
	return h.do(ctx, "the comment", http.MethodPost, h.threads(request), nil,
		azureThread{Status: "closed", Comments: []azureComment{{Content: body, Type: "text"}}}, nil)
}

func (h *azureDevOps) updateComment(ctx context.Context, request int, id int64, body string) error {
	return h.do(ctx, "the update of the comment", http.MethodPatch, h.threads(request, strconv.FormatInt(id, 10),
		"comments", strconv.Itoa(firstComment)), nil, azureComment{Content: body}, nil)
}

func (h *azureDevOps) pull(ctx context.Context, number int) (Pull, error) {
	var p struct {
		Source string `json:"sourceRefName"`
		Target string `json:"targetRefName"`
		Commit struct {
			ID string `json:"commitId"`
		} `json:"lastMergeSourceCommit"`
		Fork *struct{ Name string } `json:"forkSource"`
	}
	err := h.do(ctx, "the pull request", http.MethodGet, []string{"pullrequests", strconv.Itoa(number)}, nil, nil, &p)
	ref := p.Source
	if p.Fork != nil {
		ref = "refs/pull/" + strconv.Itoa(number) + "/merge"
	}
	return Pull{Base: strings.TrimPrefix(p.Target, "refs/heads/"), Ref: ref, Head: p.Commit.ID}, err
}
