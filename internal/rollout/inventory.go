package rollout

import (
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
)

// Inventory converts status.inventory; nil if there is none.
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

// InventoryStatus converts an inventory to status.inventory.
func InventoryStatus(in apply.Inventory) *meta.ResourceInventory {
	entries := make([]meta.ResourceRef, 0, len(in))
	for _, e := range in {
		entries = append(entries, meta.ResourceRef{ID: e.ID, Version: e.Version})
	}
	return &meta.ResourceInventory{Entries: entries}
}
