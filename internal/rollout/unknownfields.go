package rollout

import (
	"fmt"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// maxUnknownFields is the number of unknown fields that a condition names.
const maxUnknownFields = 3

// UnknownFields reports the fields that applies left out, as the kinds do not have them. It is kept between passes.
type UnknownFields struct {
	fields string // that the last apply left out, one a line; empty if there are none
	note   string // what the condition says about them
}

// Note reports the fields that were left out, once in an event, and in the messages of all passes until they are gone.
func (u *UnknownFields) Note(r *Report, changes []apply.Change, veil *redact.Veil) {
	var lines []string
	for _, c := range changes {
		for _, f := range c.Unknown {
			lines = append(lines, veil.Text(fmt.Sprintf("%s: %s", c.Ref, f)))
		}
	}
	previous := u.fields
	if u.fields = strings.Join(FirstLines(lines), "\n"); len(lines) == 0 {
		u.note = ""
		return
	}
	noun := "fields were"
	if len(lines) == 1 {
		noun = "field was"
	}
	u.note = fmt.Sprintf("%d unknown %s left out: %s", len(lines), noun,
		strings.Join(lines[:min(len(lines), maxUnknownFields)], "; "))
	if more := len(lines) - maxUnknownFields; more > 0 {
		u.note += fmt.Sprintf("; and %d more", more)
	}
	if u.fields != previous {
		r.Warn(meta.AppliedWithWarningsReason, fmt.Sprintf("unknown %s left out. Correct or remove them; "+
			"--strict-fields of the controller refuses them\n%s", noun, u.fields))
	}
}

// String returns what the condition says about them; empty if there are none.
func (u *UnknownFields) String() string { return u.note }
