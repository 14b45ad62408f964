package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Bounds of status.pending.
const (
	maxPendingChanges = 20 // named objects
	maxPendingImages  = 50
	maxPendingImage   = 512 // bytes
)

// Proposal is what an object would change.
type Proposal struct {
	Planned []apply.Change // of a request that says Inspect
	Change  risk.Change    // has no objects if nothing changes
}

// NewProposal returns the proposal of an owner, which applied a number of objects before, to move to a revision. The
// caller adds what is known of the change, and then identifies it.
func NewProposal(owner reconcile.Ref, inventory int, revision string, planned []apply.Change,
	veil *redact.Veil) *Proposal {
	objects := slices.DeleteFunc(risk.FromPlan(planned, veil), func(o risk.Object) bool {
		return o.Action == risk.Unchanged // there is nothing to hold
	})
	return &Proposal{Planned: hideNames(planned, veil), Change: risk.Change{
		Owner:     risk.Owner{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name},
		Inventory: inventory, Revision: revision, Objects: objects, Secrets: veil.Texts(),
	}}
}

// hideNames returns changes without the names of new objects that come from secrets: no gate has admitted them yet.
func hideNames(planned []apply.Change, veil *redact.Veil) []apply.Change {
	out := slices.Clone(planned)
	for i := range out {
		c := &out[i]
		if c.Before != nil || c.After == nil || veil.ShowsName(c.After) {
			continue
		}
		c.Ref.Name = redact.Masked
		if c.Ref.Namespace != "" {
			c.Ref.Namespace = redact.Masked
		}
	}
	return out
}

// Pending returns the proposal as a change that waits.
func (p *Proposal) Pending(ctx context.Context) meta.Pending {
	pending := meta.Pending{Revision: p.Change.Revision}
	s := apply.Summarize(p.Planned)
	pending.Created, pending.Configured, pending.Deleted = int32(s.Created), int32(s.Configured), int32(s.Deleted)
	planned := Effective(p.Planned)
	for _, c := range planned[:min(len(planned), maxPendingChanges)] {
		pending.Changes = append(pending.Changes, fmt.Sprintf("%s %s", c.Ref, c.Action))
	}
	if lines := differences(planned); len(lines) > 0 {
		pending.Diff = diff.Cut(strings.Join(lines, "\n"), maxSummary)
	}
	pending.Images = p.images()
	if len(p.Change.Objects) > 0 {
		pending.Risk, pending.Change = p.Change.Level(ctx).String(), p.Change.Digest()
	}
	return pending
}

// images returns the images that the change would bring, in order and without repetitions.
func (p *Proposal) images() []string {
	var images []string
	for _, o := range p.Change.Objects {
		for _, i := range o.Images {
			if i.New != "" {
				images = append(images, excerpt.Bytes(p.Change.Redact(i.New), maxPendingImage))
			}
		}
	}
	slices.Sort(images)
	images = slices.Compact(images)
	return images[:min(len(images), maxPendingImages)]
}

// PendingPreview is the preview of a change that closed gates hold. It is kept between passes, so that each change is
// previewed once.
type PendingPreview struct {
	key     string
	pending meta.Pending
}

// Get returns the pending change to a revision. key identifies the change; a change with another key than the last one
// is previewed by propose, and each one if the key is empty. An error of propose becomes the message of the pending
// change, and propose is called again for the next pass.
func (p *PendingPreview) Get(ctx context.Context, key, revision string,
	propose func() (*Proposal, error)) meta.Pending {
	if p.key == key && key != "" {
		return *p.pending.DeepCopy()
	}
	proposed, err := propose()
	if err != nil {
		return meta.Pending{Revision: revision, Message: err.Error()}
	}
	p.key, p.pending = key, proposed.Pending(ctx)
	return *p.pending.DeepCopy()
}

// Decided is what gates with rules let through last. What was let through is not decided about again, so that a change
// that needs several passes is not held halfway.
type Decided struct{ what string }

// Admit asks the gates of a pass about a revision. what identifies what would be applied; it is called only if a gate
// has rules, and so is propose, if something else was decided about last.
func Admit[T reconcile.Object](d *Decided, pass *reconcile.Pass[T], revision string, what func() (string, error),
	propose func() (*Proposal, error)) error {
	asked := ""
	err := pass.AdmitChange(revision, func() (reconcile.Change, error) {
		var err error
		if asked, err = what(); err != nil {
			return nil, err
		}
		if asked == d.what ||
			d.what == "" && pass.InProgress && pass.WasAdmitted(revision) && pass.WasDecided(asked) {
			return nil, nil // also if an earlier process began with it
		}
		proposed, err := propose()
		if err != nil || len(proposed.Change.Objects) == 0 {
			return nil, err
		}
		return &proposed.Change, nil
	})
	if err == nil {
		d.what = asked
		if asked != "" {
			pass.Decide(asked)
		}
	}
	return err
}

// Allows reports whether gates with rules let through what is about to be applied. If not, the next pass asks again.
func (d *Decided) Allows(what string) bool {
	if d.what == what {
		return true
	}
	d.what = ""
	return false
}
