package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
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

// DeletedOf returns the entries of deleted objects.
func DeletedOf(changes []apply.Change) (deleted apply.Inventory) {
	for _, c := range changes {
		if c.Action == apply.Deleted {
			deleted = append(deleted, c.Ref.Entry())
		}
	}
	return deleted
}

// LeftWithoutCredentials returns the message about objects that cannot be deleted any more.
func LeftWithoutCredentials(left apply.Inventory, err error) string {
	return fmt.Sprintf("%s left in the cluster, because the credentials to delete them no longer exist: %s: %v",
		excerpt.Count(len(left), "object"), NameObjects(left), err)
}

// maxListed is the number of objects that a message about objects which are left in the cluster names.
const maxListed = 10

// NameObjects names the objects of an inventory, first those without a namespace: the deletion of a namespace does not
// delete them.
func NameObjects(inventory apply.Inventory) string {
	var cluster, namespaced []string
	for _, e := range inventory {
		switch ref, err := e.Ref(); {
		case err != nil:
			namespaced = append(namespaced, e.ID)
		case ref.Namespace == "":
			cluster = append(cluster, ref.String())
		default:
			namespaced = append(namespaced, ref.String())
		}
	}
	names := slices.Concat(cluster, namespaced)
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed:maxListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
