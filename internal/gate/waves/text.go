package waves

import (
	"fmt"
	"strings"
	"time"
)

// title returns the name of a wave for messages.
func (w Wave) title() string {
	if w.Name == "" {
		return "the last wave (objects that no wave selects)"
	}
	return "wave '" + w.Name + "'"
}

// Describe says how far a roll-out is, and what it waits for.
func (d *Decision) Describe(waves []Wave) string {
	if d.IsComplete(waves) {
		return "all objects have revision '" + d.Revision + "'" + d.describeEmpty()
	}
	w := waves[d.Current]
	text := fmt.Sprintf("%s: %d of %d have revision '%s' and are Ready", w.title(), d.Done,
		d.Total, d.Revision)
	switch {
	case !d.Until.IsZero():
		text += fmt.Sprintf(", soaks until %s (%s in total)", stamp(d.Until), w.Soak)
	case d.Hold != "":
		text += ", waits: " + d.Hold
	case w.Max != nil:
		text += fmt.Sprintf(", %s at a time", w.Max)
	}
	return text + d.describeEmpty()
}

// describeEmpty says which waves were passed over.
func (d *Decision) describeEmpty() string {
	switch len(d.Empty) {
	case 0:
		return ""
	case 1:
		return "; wave '" + d.Empty[0] + "' selects no object"
	}
	return "; waves '" + strings.Join(d.Empty, "', '") + "' select no object"
}

// Waits says what a member that may not take a revision waits for, after the name of the gate. It changes only with the
// wave in progress and with what holds it, not with the number of members that have the revision.
func (d *Decision) Waits(waves []Wave, m *Member, revision string) string {
	switch {
	case revision != d.Revision:
		return fmt.Sprintf("lets its waves move to revision '%s' first", d.Revision)
	case m.Wave < 0 || m.Wave >= len(waves) || d.IsComplete(waves):
		return "has not decided about the wave of the object yet"
	}
	own, current := waves[m.Wave], waves[d.Current]
	switch {
	case d.Current >= m.Wave && d.Held != "":
		return fmt.Sprintf("holds %s: %s", own.title(), d.Held)
	case d.Current >= m.Wave && own.Max != nil:
		return fmt.Sprintf("lets at most %s of %s move at a time", own.Max, own.title())
	case d.Current >= m.Wave:
		return "holds " + own.title() + " until its other objects are Ready"
	case !d.Until.IsZero():
		return fmt.Sprintf("holds %s until %s, when the soak of %s ends", own.title(), stamp(d.Until), current.title())
	case d.Held != "":
		return fmt.Sprintf("holds %s until %s is Ready: %s", own.title(), current.title(), d.Held)
	}
	return fmt.Sprintf("holds %s until %s is Ready", own.title(), current.title())
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
