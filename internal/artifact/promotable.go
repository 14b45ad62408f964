package artifact

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
)

// maxPromotable bounds how many artifacts are kept for one owner.
const maxPromotable = 10

// PromotableStore keeps the artifacts that owners wait for at gates which allow only revisions that other objects have
// been Ready at. When a gate allows one, the source may have dropped it. It is safe for concurrent use.
type PromotableStore struct{ kept *AppliedStore }

// NewPromotableStore returns the store in dir. The directory is read and created when it is needed.
func NewPromotableStore(dir string, f *Fetcher) *PromotableStore {
	return &PromotableStore{kept: NewAppliedStore(dir, f)}
}

// ownedBy returns the name under which an artifact of an owner is kept.
func ownedBy(owner, digest string) string { return owner + "." + strings.ReplaceAll(digest, ":", "-") }

// Add keeps an artifact of a source for an owner. If too many are kept, the oldest is removed for which isAllowed
// reports false.
func (s *PromotableStore) Add(ctx context.Context, owner string, source Key, a meta.Artifact,
	isAllowed func(revision string) bool) error {
	name := ownedBy(owner, a.Digest)
	if s.kept.Get(name) == nil {
		if err := s.kept.Keep(ctx, name, Applied{Source: source, Artifact: a}); err != nil {
			return err
		}
	}
	all := s.List(owner, source)
	var problem error
	for i := len(all) - 1; i > 0 && len(all) > maxPromotable; i-- {
		if !isAllowed(all[i].Revision) || i == 1 {
			problem = errors.Join(problem, s.kept.Forget(ownedBy(owner, all[i].Digest)))
			all = slices.Delete(all, i, i+1)
		}
	}
	return problem
}

// List returns the artifacts of a source that are kept for an owner, newest first.
func (s *PromotableStore) List(owner string, source Key) []meta.Artifact {
	var found []meta.Artifact
	for _, a := range s.ofOwner(owner) {
		if a.Source == source {
			found = append(found, a.Artifact)
		}
	}
	slices.SortFunc(found, func(a, b meta.Artifact) int {
		return cmp.Or(b.LastUpdateTime.Compare(a.LastUpdateTime.Time), strings.Compare(b.Digest, a.Digest))
	})
	return found
}

// Tree returns the tree of an artifact that is kept for an owner.
func (s *PromotableStore) Tree(owner, digest string) (*Tree, error) {
	return s.kept.Tree(ownedBy(owner, digest))
}

// Drop removes the artifacts of an owner that are not newer than the applied one, and artifacts of other sources.
func (s *PromotableStore) Drop(owner string, source Key, applied meta.Artifact) error {
	var problem error
	for _, a := range s.ofOwner(owner) {
		if a.Source != source || !a.Artifact.LastUpdateTime.After(applied.LastUpdateTime.Time) {
			problem = errors.Join(problem, s.kept.Forget(ownedBy(owner, a.Artifact.Digest)))
		}
	}
	return problem
}

// Forget removes all artifacts of an owner.
func (s *PromotableStore) Forget(owner string) error {
	var problem error
	for _, a := range s.ofOwner(owner) {
		problem = errors.Join(problem, s.kept.Forget(ownedBy(owner, a.Artifact.Digest)))
	}
	return problem
}

func (s *PromotableStore) ofOwner(owner string) []Applied {
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	s.kept.load()
	var found []Applied
	for name, r := range s.kept.owners {
		if strings.HasPrefix(name, owner+".") {
			found = append(found, r.Applied)
		}
	}
	return found
}
