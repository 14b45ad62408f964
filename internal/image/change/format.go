package change

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/text/diff"
)

const (
	maxListed  = 10       // changes that an event lists
	maxDiff    = 64 << 10 // bytes
	maxUncut   = 1 << 20  // bytes of a diff before it is cut
	maxSummary = 200      // bytes
)

// Summary returns the revision that gates approve: the images, such as "apps/web=1.2.3", or their number and
// a digest if that is longer than 200 bytes.
func Summary(changes []edit.Change) string {
	var all []string
	for _, policy := range scan.Policies(changes) {
		for _, c := range changes {
			if c.Policy == policy {
				all = append(all, strings.Replace(policy, ":", "/", 1)+"="+c.New)
				break
			}
		}
	}
	if text := strings.Join(all, ","); len(text) <= maxSummary {
		return text
	}
	return fmt.Sprintf("%d images@%s", len(all), Digest(changes))
}

// Digest identifies a set of changes.
func Digest(changes []edit.Change) string {
	h := sha256.New()
	for _, c := range changes {
		fmt.Fprintf(h, "%q %q %q\n", c.File, c.Setter, c.New)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Diff returns changes as a diff of at most 64 KiB. It shows only the changed values, as other lines of the
// files may be secret.
func Diff(changes []edit.Change) string {
	var b strings.Builder
	file := ""
	for _, c := range changes {
		if b.Len() > maxUncut {
			break
		}
		if c.File != file {
			file = c.File
			fmt.Fprintf(&b, "--- a/%s\n+++ b/%s\n", file, file)
		}
		fmt.Fprintf(&b, "@@ -%d +%d @@ %s\n-%s\n+%s\n", c.Line, c.Line,
			strings.TrimSpace(c.Object.String()+" "+c.Container), c.Old, c.New)
	}
	return diff.Cut(b.String(), maxDiff)
}

// listed returns changes for an event, one per line.
func listed(changes []edit.Change) string {
	var b strings.Builder
	for i, c := range changes {
		if i == maxListed {
			fmt.Fprintf(&b, "\nand %d more", len(changes)-maxListed)
			break
		}
		fmt.Fprintf(&b, "\n%s:%d: %s -> %s", c.File, c.Line, c.Old, c.New)
	}
	return b.String()
}
