package reflector

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxParallelReads = 4    // per repository
	maxReads         = 2000 // of unknown tags, per pass
	maxRereads       = 100  // of known tags, per pass, as tags may move

	policiesOfRepository = "spec.imageRepositoryRef"
)

// IndexPolicies indexes policies by the repository that they refer to.
func IndexPolicies(ctx context.Context, fields client.FieldIndexer) error {
	return fields.IndexField(ctx, &imagev1.ImagePolicy{}, policiesOfRepository, guard.Indexer("indexing policies",
		func(o client.Object) []string { return []string{repositoryOf(o.(*imagev1.ImagePolicy)).String()} }))
}

// readDetails reads the details of tags that policies require, and returns how many tags are left to read.
// Some of the known tags are read again, in turns. It modifies the tags in found.
func (r *Repositories) readDetails(ctx context.Context, obj *imagev1.ImageRepository, repo *openRepository,
	found *store.Repository, lease *guard.Lease) (left int, err error) {
	policies, err := r.detailPolicies(ctx, obj)
	if err != nil || len(policies) == 0 {
		return 0, err
	}
	var unknown, known []*policy.Tag
	for i := range found.Pages {
		for j := range found.Pages[i].Tags {
			t := &found.Pages[i].Tags[j]
			switch {
			case !anyMatches(policies, t.Name):
			case t.Known():
				known = append(known, t)
			default:
				unknown = append(unknown, t)
			}
		}
	}
	tags := unknown[:min(len(unknown), maxReads)]
	if len(tags) == len(unknown) {
		tags = append(tags, repo.nextRereads(known)...)
	}
	reading := &details{lease: lease, repository: repo.Name(), memory: found.Memory()}
	err = reading.read(ctx, repo, tags, byDigest(known))
	return max(0, len(unknown)-reading.done), err
}

// detailPolicies returns the policies of a repository that require details of tags.
func (r *Repositories) detailPolicies(ctx context.Context, obj *imagev1.ImageRepository) ([]*policy.Policy, error) {
	var list imagev1.ImagePolicyList
	if err := r.Objects.List(ctx, &list, client.MatchingFields{policiesOfRepository: keyOf(obj).String()}); err != nil {
		return nil, fault.New(imagev1.ReadOperationFailedReason, "cannot list the ImagePolicies of the repository").
			Because(err)
	}
	var policies []*policy.Policy
	for i := range list.Items {
		p, err := policy.New(list.Items[i].Spec)
		// invalid policies report their errors themselves
		if err == nil && p.NeedsDetails() && !list.Items[i].Spec.Suspend {
			policies = append(policies, p)
		}
	}
	return policies, nil
}

func anyMatches(policies []*policy.Policy, name string) bool {
	for _, p := range policies {
		if p.Matches(name) {
			return true
		}
	}
	return false
}

// nextRereads returns the known tags to read again, in turns.
func (r *openRepository) nextRereads(known []*policy.Tag) []*policy.Tag {
	if len(known) <= maxRereads {
		return known
	}
	var next []*policy.Tag
	for range maxRereads {
		r.cursor = (r.cursor + 1) % len(known)
		next = append(next, known[r.cursor])
	}
	return next
}

// details is the state of reading the details of tags.
type details struct {
	repository string // name of the image

	mu     sync.Mutex
	lease  *guard.Lease // for the memory
	memory int64        // bytes of all tags of the repository
	done   int          // tags that were read
}

// read reads the details of tags until half of the time of the pass is over. The error is [store.TooLarge] if the tags
// would take too much memory.
func (d *details) read(ctx context.Context, repo *openRepository, tags []*policy.Tag,
	known func(string) (policy.Tag, bool)) error {
	deadline, bounded := ctx.Deadline()
	half := time.Until(deadline) / 2
	group, ctx := guard.GroupWithContext(ctx, "reading the details of tags")
	group.SetLimit(maxParallelReads)
	for _, t := range tags {
		if ctx.Err() != nil || bounded && time.Until(deadline) < half {
			break
		}
		group.Go(func() error {
			tag, err := repo.Read(ctx, *t, known)
			if errors.Is(err, registry.ErrUnreadable) {
				tag, err = policy.Tag{Name: t.Name, Unreadable: true}, nil
			}
			if err != nil {
				return err
			}
			return d.set(ctx, t, tag)
		})
	}
	return group.Wait()
}

// set sets the details of a tag that was read. If they would take too much memory, the tag has none afterwards, as
// those from before may be wrong.
func (d *details) set(ctx context.Context, t *policy.Tag, read policy.Tag) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	more := read.Memory() - t.Memory()
	err := d.take(ctx, more)
	if err != nil {
		read = policy.Tag{Name: t.Name}
		more = read.Memory() - t.Memory()
	}
	d.memory += more
	*t = read
	if err == nil {
		d.done++
	}
	return err
}

// take takes memory for details from the budget.
func (d *details) take(ctx context.Context, more int64) error {
	switch now := d.memory + more; {
	case more <= 0:
		return nil
	case now > store.MaxMemory():
		return store.TooLarge(d.repository)
	}
	return d.lease.Take(ctx, more)
}

// byDigest returns a function that finds a tag with known details by its digest.
func byDigest(known []*policy.Tag) func(string) (policy.Tag, bool) {
	tags := make(map[string]policy.Tag, len(known))
	for _, t := range known {
		if !t.Unreadable {
			tags[t.Digest] = *t
		}
	}
	return func(digest string) (policy.Tag, bool) {
		t, ok := tags[digest]
		return t, ok
	}
}
