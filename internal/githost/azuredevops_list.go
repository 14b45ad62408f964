package githost

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// continuationHeader names the next page of a list of references.
const continuationHeader = "X-Ms-Continuationtoken"

func (h *azureDevOps) branches(ctx context.Context, cursor string) ([]Ref, string, error) {
	return h.refs(ctx, "the branches", "heads/", cursor)
}

// tags lists the tags with the commits that annotated tags refer to.
func (h *azureDevOps) tags(ctx context.Context, cursor string) ([]Ref, string, error) {
	return h.refs(ctx, "the tags", "tags/", cursor)
}

func (h *azureDevOps) refs(ctx context.Context, what, prefix, cursor string) ([]Ref, string, error) {
	var list struct {
		Value []struct {
			Name           string
			ObjectID       string `json:"objectId"`
			PeeledObjectID string `json:"peeledObjectId"`
		}
	}
	query := url.Values{"filter": {prefix}, "$top": {strconv.Itoa(pageSize)}}
	if prefix == "tags/" {
		query.Set("peelTags", "true")
	}
	if cursor != "" {
		query.Set("continuationToken", cursor)
	}
	header, err := h.send(ctx, what, http.MethodGet, []string{"refs"}, query, nil, &list)
	if err != nil {
		return nil, "", err
	}
	refs := make([]Ref, len(list.Value))
	for i, r := range list.Value {
		refs[i] = Ref{Name: strings.TrimPrefix(r.Name, "refs/"+prefix), Commit: cmp.Or(r.PeeledObjectID, r.ObjectID)}
	}
	return refs, header.Get(continuationHeader), nil
}

// requests lists active pull requests, without their labels.
func (h *azureDevOps) requests(ctx context.Context, cursor string) ([]ListedRequest, string, error) {
	skip := 0
	if cursor != "" {
		var err error
		if skip, err = strconv.Atoi(cursor); err != nil {
			return nil, "", failed("the page %q is not a number", cursor)
		}
	}
	var list struct {
		Value []struct {
			ID        int64 `json:"pullRequestId"`
			Title     string
			Source    string    `json:"sourceRefName"`
			Target    string    `json:"targetRefName"`
			Fork      *struct{} `json:"forkSource"`
			CreatedBy struct {
				DisplayName string `json:"displayName"`
				UniqueName  string `json:"uniqueName"`
			} `json:"createdBy"`
			Commit struct {
				ID string `json:"commitId"`
			} `json:"lastMergeSourceCommit"`
		}
	}
	query := url.Values{"searchCriteria.status": {"active"}, "$top": {strconv.Itoa(pageSize)},
		"$skip": {strconv.Itoa(skip)}}
	if err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pullrequests"}, query, nil,
		&list); err != nil {
		return nil, "", err
	}
	requests := make([]ListedRequest, len(list.Value))
	for i, p := range list.Value {
		requests[i] = ListedRequest{Number: p.ID, Title: p.Title, Branch: strings.TrimPrefix(p.Source, "refs/heads/"),
			Commit: p.Commit.ID, Author: p.CreatedBy.DisplayName, Login: p.CreatedBy.UniqueName,
			Base: strings.TrimPrefix(p.Target, "refs/heads/"), Fork: p.Fork != nil}
	}
	next := ""
	if len(list.Value) == pageSize {
		next = strconv.Itoa(skip + pageSize)
	}
	return requests, next, nil
}

func (h *azureDevOps) labelsOf(ctx context.Context, number int64) ([]string, error) {
	var list struct {
		Value []struct {
			Name   string
			Active *bool
		}
	}
	err := h.do(ctx, "the labels of the pull request", http.MethodGet,
		[]string{"pullRequests", strconv.FormatInt(number, 10), "labels"}, nil, nil, &list)
	var labels []string
	for _, l := range list.Value {
		if l.Active == nil || *l.Active {
			labels = append(labels, l.Name)
		}
	}
	return labels, err
}
