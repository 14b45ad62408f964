package reflector

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
)

// maxViewed is how many tags the views in memory have together: some 30 MB, of which the text is shared with the store.
const maxViewed = 200_000

// View is what a policy makes of a repository at a revision. It is shared: it must not be changed.
type View struct {
	Image    string
	Revision string
	Of       int // tags in the repository
	// tags that count, and of which it is not known yet what they point to though the policy asks for it
	Unknown int
	Tags    []policy.Tag // the ones that count, best first
}

// Views orders the tags of repositories, and keeps the result until they change. It is safe for concurrent use.
type Views struct {
	Store *store.Store

	mu   sync.Mutex
	kept map[viewKey]*View
	tags int // that they weigh
}

type viewKey struct {
	repository store.Key
	policy     string // what of its spec counts
}

// Of returns the tags of a repository as a policy orders them. The error is [store.ErrNotFound] if the
// repository was not scanned.
func (v *Views) Of(ctx context.Context, key store.Key, spec imagev1.ImagePolicySpec, p *policy.Policy) (*View, error) {
	which, err := json.Marshal([]any{spec.Policy, spec.FilterTags})
	if err != nil {
		return nil, err
	}
	return v.of(ctx, viewKey{key, string(which)}, func(ctx context.Context, r *store.Repository, view *View) error {
		if p.NeedsDetails() {
			for t := range r.Tags() {
				if !t.Known() && p.Counts(t.Name) {
					view.Unknown++
				}
			}
		}
		var err error
		view.Tags, err = p.Order(ctx, r.Tags())
		return err
	})
}

// All returns the tags of a repository in the order of their names.
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
	r, err := v.Store.Load(key.repository)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	kept := v.kept[key]
	v.mu.Unlock()
	if kept != nil && kept.Revision == r.Revision {
		return kept, nil
	}
	view := &View{Image: r.Image, Revision: r.Revision, Of: r.Len()}
	if err := order(ctx, r, view); err != nil {
		return nil, err
	}
	v.keep(key, view)
	return view, nil
}

// keep remembers a view. When there are too many, the longest goes first, since it is the one that most is gained by.
func (v *Views) keep(key viewKey, view *View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept == nil {
		v.kept = map[viewKey]*View{}
	}
	v.drop(key)
	for v.tags+view.weight() > maxViewed && len(v.kept) > 0 {
		var longest viewKey
		for k, other := range v.kept {
			if longest == (viewKey{}) || cmp.Compare(len(other.Tags), len(v.kept[longest].Tags)) > 0 {
				longest = k
			}
		}
		v.drop(longest)
	}
	v.kept[key] = view
	v.tags += view.weight()
}

func (v *Views) drop(key viewKey) {
	if gone := v.kept[key]; gone != nil {
		v.tags -= gone.weight()
		delete(v.kept, key)
	}
}

// weight is that of its tags, and of the view itself: one that has none takes memory as well.
func (v *View) weight() int { return len(v.Tags) + 1 }
