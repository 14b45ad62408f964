package reflector

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
)

// viewBytes is the memory of a tag in a view, in bytes, and of a view without tags.
const viewBytes = 128

// View is the tags of a repository at a revision, as a policy selects and orders them. It is shared and must
// not be modified.
type View struct {
	Image    string
	Revision string
	Total    int          // number of tags of the repository
	Unknown  int          // number of tags that match the pattern and whose required details were not read yet
	Tags     []policy.Tag // selected tags, best first

	of *store.Repository // has the texts of the tags, and their memory
}

// Views orders the tags of repositories, and caches the views until the tags change. It is safe for concurrent use.
type Views struct {
	Store *store.Store

	cache lru.Cache[viewKey, *View] // size is bytes of memory
}

type viewKey struct {
	repository store.Key
	policy     string // the relevant part of the spec as JSON; empty: all tags by name
}

// Of returns the view of a policy on a repository. The error is [store.ErrNotFound] if the repository was not scanned.
func (v *Views) Of(ctx context.Context, key store.Key, spec imagev1.ImagePolicySpec, p *policy.Policy) (*View, error) {
	relevant, err := json.Marshal([]any{spec.Policy, spec.FilterTags})
	if err != nil {
		return nil, err
	}
	return v.of(ctx, viewKey{key, string(relevant)}, func(ctx context.Context, r *store.Repository, view *View) error {
		if p.NeedsDetails() {
			for t := range r.Tags() {
				if !t.Known() && p.Matches(t.Name) {
					view.Unknown++
				}
			}
		}
		var err error
		view.Tags, err = p.Order(ctx, r.Tags())
		return err
	})
}

// All returns all tags of a repository in alphabetical order.
func (v *Views) All(ctx context.Context, key store.Key) (*View, error) {
	return v.of(ctx, viewKey{repository: key}, func(_ context.Context, r *store.Repository, view *View) error {
		view.Tags = make([]policy.Tag, 0, r.Len())
		for t := range r.Tags() {
			view.Tags = append(view.Tags, *t)
		}
		slices.SortFunc(view.Tags, func(a, b policy.Tag) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
}

func (v *Views) of(ctx context.Context, key viewKey,
	order func(context.Context, *store.Repository, *View) error) (*View, error) {
	r, err := v.Store.Load(ctx, key.repository)
	if err != nil {
		return nil, err
	}
	if cached, ok := v.cache.Get(key); ok && cached.Revision == r.Revision {
		return cached, nil
	}
	view := &View{Image: r.Image, Revision: r.Revision, Total: r.Len(), of: r}
	if err := order(ctx, r, view); err != nil {
		return nil, err
	}
	// Views of the same repository share its texts, but each of them may be the last one that has them.
	size, most := viewBytes*int64(len(view.Tags)+1)+r.Memory(), store.MaxMemory()
	v.cache.Add(key, view, min(size, most), lru.Limits{Size: most})
	return view, nil
}

// DropCache removes all views from the cache.
func (v *Views) DropCache() { v.cache.Clear() }
