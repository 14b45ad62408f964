package reflector

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/image/store"
)

const (
	lookedAtOnce = 4    // images of a repository
	lookedAPass  = 2000 // images that nothing is known of
	lookedAnew   = 100  // images a pass that are known: tags move

	policiesOfRepository = "spec.imageRepositoryRef"
)

// IndexPolicies lets policies be found by the repository that they refer to.
func IndexPolicies(ctx context.Context, fields client.FieldIndexer) error {
	return fields.IndexField(ctx, &imagev1.ImagePolicy{}, policiesOfRepository, func(o client.Object) []string {
		return []string{repositoryOf(o.(*imagev1.ImagePolicy)).String()}
	})
}

// look reads what tags point to, if there is a policy that asks for it, and returns how many are left to
// read. Of tags that are known some are looked at again, in turns. It changes pages, which are this pass's
// own.
func (r *Repositories) look(ctx context.Context, obj *imagev1.ImageRepository, repo *keptRepository,
	found *store.Repository) (left int, err error) {
	asking, err := r.asking(ctx, obj)
	if err != nil || len(asking) == 0 {
		return 0, err
	}
	var fresh, known []*policy.Tag
	for i := range found.Pages {
		for j := range found.Pages[i].Tags {
			t := &found.Pages[i].Tags[j]
			switch {
			case !wanted(asking, t.Name):
			case t.Known():
				known = append(known, t)
			default:
				fresh = append(fresh, t)
			}
		}
	}
	now := fresh[:min(len(fresh), lookedAPass)]
	if len(now) == len(fresh) {
		now = append(now, repo.turn(known)...)
	}
	done, err := r.lookAt(ctx, repo, now, digests(known))
	return max(0, len(fresh)-done), err
}

// asking returns the policies of a repository that ask for more than names.
func (r *Repositories) asking(ctx context.Context, obj *imagev1.ImageRepository) ([]*policy.Policy, error) {
	var list imagev1.ImagePolicyList
	if err := r.Objects.List(ctx, &list, client.MatchingFields{policiesOfRepository: keyOf(obj).String()}); err != nil {
		return nil, fault.New(imagev1.ReadOperationFailedReason, "cannot list the policies of the repository").
			Because(err)
	}
	var asking []*policy.Policy
	for i := range list.Items {
		p, err := policy.New(list.Items[i].Spec)
		if err == nil && p.NeedsDetails() && !list.Items[i].Spec.Suspend { // one that is wrong says so itself
			asking = append(asking, p)
		}
	}
	return asking, nil
}

func wanted(asking []*policy.Policy, name string) bool {
	for _, p := range asking {
		if p.Counts(name) {
			return true
		}
	}
	return false
}

// turn returns the tags whose turn it is to be looked at again.
func (k *keptRepository) turn(known []*policy.Tag) []*policy.Tag {
	if len(known) <= lookedAnew {
		return known
	}
	var turn []*policy.Tag
	for range lookedAnew {
		k.cursor = (k.cursor + 1) % len(known)
		turn = append(turn, known[k.cursor])
	}
	return turn
}

// lookAt reads what tags point to, until half of the time of the pass is over, and returns at how many it looked.
func (r *Repositories) lookAt(ctx context.Context, repo *keptRepository, tags []*policy.Tag,
	known func(string) (policy.Tag, bool)) (int, error) {
	deadline, bounded := ctx.Deadline()
	half := time.Until(deadline) / 2
	var mu sync.Mutex
	done := 0
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookedAtOnce)
	for _, t := range tags {
		if ctx.Err() != nil || bounded && time.Until(deadline) < half {
			break
		}
		group.Go(func() error {
			now, err := repo.Look(ctx, *t, known)
			if errors.Is(err, registry.ErrUnreadable) {
				now, err = policy.Tag{Name: t.Name, Unreadable: true}, nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			*t = now
			done++
			return nil
		})
	}
	err := group.Wait()
	return done, err
}

// digests finds what is known by its digest.
func digests(known []*policy.Tag) func(string) (policy.Tag, bool) {
	byDigest := make(map[string]policy.Tag, len(known))
	for _, t := range known {
		if !t.Unreadable {
			byDigest[t.Digest] = *t
		}
	}
	return func(digest string) (policy.Tag, bool) {
		t, ok := byDigest[digest]
		return t, ok
	}
}
