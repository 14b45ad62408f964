package githost

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// bitbucketPage is the maximum size of a page of pull requests in Bitbucket Cloud.
const bitbucketPage = "50"

func (h *bitbucket) requests(ctx context.Context, cursor string) ([]ListedRequest, string, error) {
	type side struct {
		Branch     struct{ Name string }
		Commit     struct{ Hash string }
		Repository struct {
			FullName string `json:"full_name"`
		}
	}
	var list struct {
		Values []struct {
			ID     int64
			Title  string
			Author struct {
				DisplayName string `json:"display_name"`
				UUID        string
			}
			Source, Destination side
		}
		Next string
	}
	all, next, err := numbered(cursor, func(n int) ([]ListedRequest, bool, error) {
		query := url.Values{"state": {"OPEN"}, "pagelen": {bitbucketPage}, "page": {strconv.Itoa(n)}}
		err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pullrequests"}, query, nil, &list)
		var all []ListedRequest
		for _, p := range list.Values {
			all = append(all, ListedRequest{Number: p.ID, Title: p.Title, Branch: p.Source.Branch.Name,
				Base: p.Destination.Branch.Name, Commit: p.Source.Commit.Hash, Author: p.Author.DisplayName,
				Login: p.Author.UUID, Fork: !strings.EqualFold(p.Source.Repository.FullName, h.repo)})
		}
		return all, list.Next != "", err
	})
	return all, next, err
}

func (h *bitbucketServer) requests(ctx context.Context, cursor string) ([]ListedRequest, string, error) {
	type side struct {
		DisplayID    string `json:"displayId"`
		LatestCommit string `json:"latestCommit"`
		Repository   struct{ ID int64 }
	}
	var list struct {
		Values []struct {
			ID     int64
			Title  string
			Author struct {
				User struct {
					Name        string
					DisplayName string `json:"displayName"`
				}
			}
			FromRef, ToRef side
		}
		IsLastPage bool  `json:"isLastPage"`
		Next       int64 `json:"nextPageStart"`
	}
	query := url.Values{"state": {"OPEN"}, "limit": {strconv.Itoa(pageSize)}, "start": {cmp.Or(cursor, "0")}}
	err := h.do(ctx, "the open pull requests", http.MethodGet, []string{"pull-requests"}, query, nil, &list)
	var all []ListedRequest
	for _, p := range list.Values {
		all = append(all, ListedRequest{Number: p.ID, Title: p.Title, Branch: p.FromRef.DisplayID,
			Base: p.ToRef.DisplayID, Commit: p.FromRef.LatestCommit, Author: p.Author.User.DisplayName,
			Login: p.Author.User.Name, Fork: p.FromRef.Repository.ID != p.ToRef.Repository.ID})
	}
	if err != nil || list.IsLastPage {
		return all, "", err
	}
	return all, strconv.FormatInt(list.Next, 10), nil
}
