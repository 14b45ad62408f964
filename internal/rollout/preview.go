package rollout

import (
	"fmt"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
)

// maxPendingChanges is the maximum number of objects that status.pending names.
const maxPendingChanges = 20

// PendingPreview is the preview of a change that closed gates hold. It is kept between passes, so that each change is
// previewed once.
type PendingPreview struct {
	key     string
	pending meta.Pending
}

// Get returns the pending change to a revision. key identifies the change; a change with another key than the last one
// is previewed by plan. An error of plan becomes the message of the pending change, and plan is called again for the
// next pass.
func (p *PendingPreview) Get(key, revision string, plan func() ([]apply.Change, error)) meta.Pending {
	if p.key == key {
		return *p.pending.DeepCopy()
	}
	pending := meta.Pending{Revision: revision}
	planned, err := plan()
	if err != nil {
		pending.Message = err.Error()
		return pending
	}
	s := apply.Summarize(planned)
	pending.Created, pending.Configured, pending.Deleted = int32(s.Created), int32(s.Configured), int32(s.Deleted)
	planned = Effective(planned)
	for _, c := range planned[:min(len(planned), maxPendingChanges)] {
		pending.Changes = append(pending.Changes, fmt.Sprintf("%s %s", c.Ref, c.Action))
	}
	p.key, p.pending = key, pending
	return *pending.DeepCopy()
}
