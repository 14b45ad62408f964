package ui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Sizes of a page of items.
const (
	defaultPage    = 100
	defaultChanges = 50
	maxPage        = 1000
	maxGroupsShown = 50 // of a user
)

// me describes the user and what the server can show.
type me struct {
	User    string   `json:"user"`
	Groups  []string `json:"groups,omitempty"`
	Version string   `json:"version"`
	// Cluster is its name, as the kubeconfig or the administrator calls it, and Kubernetes its version; both may be
	// empty.
	Cluster    string `json:"cluster,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`

	Kinds    []string          `json:"kinds"`
	Loading  []string          `json:"loading"`           // kinds that are not listed yet
	Problems map[string]string `json:"problems"`          // why kinds cannot be watched
	CSRF     string            `json:"csrf"`              // to send with every write, in the header [csrfHeader]
	Logout   bool              `json:"logout"`            // whether the user can log out
	Reviews  bool              `json:"reviews,omitempty"` // whether the server reviews pull requests
}

func (s *Server) me(_ context.Context, u *User, _ *http.Request) (any, error) {
	m := me{User: u.Name, Groups: u.Groups[:min(len(u.Groups), maxGroupsShown)], Version: s.Version,
		Cluster: s.Cluster, Kubernetes: s.Kubernetes, Kinds: []string{}, CSRF: u.CSRF, Logout: u.CanLogOut,
		Reviews: s.Reviews != nil}
	m.Loading, m.Problems = s.Model.Status()
	for _, k := range kind.All() {
		m.Kinds = append(m.Kinds, k.Name())
	}
	return m, nil
}

// controllers returns why the controllers may not work, as far as the user may see it.
func (s *Server) controllers(ctx context.Context, u *User, _ *http.Request) (any, error) {
	problems := append([]string{}, state.Problems(ctx, u.Client, s.Namespace, s.Now())...)
	return map[string][]string{"problems": problems}, nil
}

// filter returns what the user may see of the model now.
func (s *Server) filter(ctx context.Context, u *User) (view.Filter, error) {
	return u.See(ctx, s.Model.Scopes())
}

// filtered returns a handler that answers with what the user may see of the model.
func (s *Server) filtered(answer func(may view.Filter, r *http.Request) (any, error)) handler {
	return func(ctx context.Context, u *User, r *http.Request) (any, error) {
		may, err := s.filter(ctx, u)
		if err != nil {
			return nil, err
		}
		return answer(may, r)
	}
}

func (s *Server) overview(may view.Filter, _ *http.Request) (any, error) {
	return view.NewOverview(s.Model.List(may), s.Now()), nil
}

// page is a part of the items that match a query.
type page struct {
	Items []*view.Item `json:"items"`
	Total int          `json:"total"`
	Next  string       `json:"next,omitempty"` // value of `after` for the next page
}

// clusters groups what deploys to clusters by the cluster.
func (s *Server) clusters(may view.Filter, _ *http.Request) (any, error) {
	return map[string]any{"clusters": view.Clusters(s.Model.List(may))}, nil
}

// groups counts objects by namespace, source or label. Parameters: by, and the filters of items.
func (s *Server) groups(may view.Filter, r *http.Request) (any, error) {
	all := r.Clone(r.Context())
	q := r.URL.Query()
	q.Del("by")
	all.URL.RawQuery = q.Encode()
	return view.NewGroups(s.Model.List(matching(may, all)), r.URL.Query().Get("by")), nil
}

// orders are those of items, by their name.
var orders = map[string]func(a, b *view.Item) int{
	"state": func(a, b *view.Item) int {
		return cmp.Compare(slices.Index(view.States, a.State), slices.Index(view.States, b.State))
	},
	"changed": func(a, b *view.Item) int { return b.Changed.Compare(a.Changed) },
}

// items lists items by ID. Parameters: kind, namespace, state, cluster, by and group, q (words), limit and after. With
// order=state the worst come first, and with order=changed the last changed, without further pages.
func (s *Server) items(may view.Filter, r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, err := number(q.Get("limit"), defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	found := s.Model.List(matching(may, r))
	p := page{Items: []*view.Item{}, Total: len(found)}
	if order := orders[q.Get("order")]; order != nil {
		slices.SortStableFunc(found, order)
		p.Items = append(p.Items, found[:min(limit, len(found))]...)
		return p, nil
	}
	start, _ := slices.BinarySearchFunc(found, q.Get("after")+"\x00",
		func(i *view.Item, id string) int { return strings.Compare(i.ID, id) })
	if q.Get("after") == "" {
		start = 0
	}
	end := min(start+limit, len(found))
	p.Items = append(p.Items, found[start:end]...)
	if end < len(found) {
		p.Next = found[end-1].ID
	}
	return p, nil
}

// matching returns the filter of a request, within what the user may see.
func matching(may view.Filter, r *http.Request) view.Filter {
	q := r.URL.Query()
	kinds, namespace, states, words := q["kind"], q.Get("namespace"), q["state"], strings.ToLower(q.Get("q"))
	cluster, by, group := q.Get("cluster"), q.Get("by"), q.Get("group")
	return func(i *view.Item) bool {
		return (len(kinds) == 0 || slices.Contains(kinds, i.Kind)) &&
			(namespace == "" || i.Namespace == namespace) &&
			(len(states) == 0 || slices.Contains(states, string(i.State))) &&
			(cluster == "" || i.Target() == cluster) &&
			(by == "" || slices.Contains(i.By(by), group)) &&
			(words == "" || i.Matches(words)) && may(i)
	}
}

// number parses a parameter between 1 and a maximum.
func number(text string, byDefault, maximum int) (int, error) {
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maximum {
		return 0, badRequest("%q is not a number between 1 and %d", text, maximum)
	}
	return n, nil
}

// pageOf returns the first element and the length of a part of a list whose elements are numbered, from the parameters
// after and limit.
func pageOf(q url.Values) (start, limit int, err error) {
	if limit, err = number(q.Get("limit"), defaultPage, maxPage); err != nil {
		return 0, 0, err
	}
	start, err = number(q.Get("after"), 0, 1<<30)
	return start, limit, err
}

// graph connects items. Parameters: root (an ID), or the filters of items.
func (s *Server) graph(may view.Filter, r *http.Request) (any, error) {
	if root := r.URL.Query().Get("root"); root != "" {
		return view.NewGraph(s.Model.List(may), root), nil
	}
	return view.NewGraph(s.Model.List(matching(may, r)), ""), nil
}

// changes lists what waits and what was changed, newest first, in groups of one revision. Parameters: q (words, which
// are searched in all objects of a revision), limit and after, and the other filters of items.
func (s *Server) changes(may view.Filter, r *http.Request) (any, error) {
	objects := r.Clone(r.Context())
	q := r.URL.Query()
	words := strings.ToLower(q.Get("q"))
	q.Del("q")
	objects.URL.RawQuery = q.Encode()
	limit, err := number(q.Get("limit"), defaultChanges, maxPage)
	if err != nil {
		return nil, err
	}
	page, err := view.PageOfChanges(s.Model.List(matching(may, objects)), words, limit, q.Get("after"))
	if err != nil {
		return nil, badRequest("after: %v", err)
	}
	return page, nil
}
