package preview

import (
	"context"
	"maps"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Asker is an object that asks its gates before it takes the change.
type Asker struct {
	Kind   string
	Object reconcile.Gated // as the change declares it
	Owner  *Owner          // what it would do; nil for a source
	Change *risk.Change    // nil if it is not known
}

// Askers returns the objects that ask gates about the change: the sources of the repository, and the owners that are
// neither suspended nor deleted.
func (r *Result) Askers() []Asker {
	var out []Asker
	for _, s := range r.sources {
		out = append(out, Asker{Kind: s.kind, Object: s.object})
	}
	for _, o := range r.Owners {
		if o.object != nil {
			out = append(out, Asker{Kind: o.Kind, Object: o.object, Owner: o, Change: o.change})
		}
	}
	return out
}

// askedSources returns the sources that hold the repository, in order.
func (r *run) askedSources() []*source {
	var out []*source
	for _, key := range slices.Sorted(maps.Keys(r.sources)) {
		if s := r.sources[key]; s.object != nil {
			out = append(out, s)
		}
	}
	return out
}

// commitOf returns what gates know of the commit, if it is that of a source which holds the repository.
func (r *run) commitOf(ctx context.Context, key string) risk.Change {
	s := r.sources[key]
	if s == nil || s.object == nil {
		return risk.Change{}
	}
	out := risk.Change{Author: r.To.Author, Message: r.To.subject,
		Signed: apimeta.IsStatusConditionTrue(s.object.CommonStatus().Conditions, sourcev1.SourceVerifiedCondition)}
	if files, err := r.changed(ctx, s); err == nil {
		out.Files = files.list
	}
	return out
}

// asked returns the change that gates are asked about; nil if it is not known.
func (o *Owner) asked() *risk.Change {
	if o.Error != "" || o.Note != "" {
		return nil
	}
	c := o.commit
	c.Owner, c.Inventory, c.Secrets = o.Owner, o.inventory, o.secrets
	for n := range o.Objects {
		c.Objects = append(c.Objects, o.Objects[n].Object)
	}
	return &c
}
