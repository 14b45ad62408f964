package spec

import (
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
)

// Inventory translates status.inventory; nil when there is none.
func Inventory(in *meta.ResourceInventory) apply.Inventory {
	if in == nil {
		return nil
	}
	var out apply.Inventory
	for _, e := range in.Entries {
		out = append(out, apply.Entry{ID: e.ID, Version: e.Version})
	}
	return out
}
