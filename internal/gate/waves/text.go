package waves

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// Describe says how far a roll-out is, and what it waits for.
func (d *Decision) Describe(waves []Wave) string {
	if d.IsComplete(waves) {
		return "all objects have revision '" + d.Revision + "'" + d.describeEmpty()
	}
	w := waves[d.Current]
	text := fmt.Sprintf("%s: %d of %d have revision '%s' and are Ready", decision.WaveTitle(w.Name), d.Done,
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

// Waits returns what a member that may not take a revision waits for. It changes with the wave in progress and with
// what holds that wave, but not with the number of members that have the revision.
func (d *Decision) Waits(waves []Wave, m *Member, revision string) decision.Cause {
	switch {
	case revision != d.Revision:
		return decision.Cause{Code: decision.WaveOtherRevision, Args: decision.Args{Revision: d.Revision}}
	case m.Wave < 0 || m.Wave >= len(waves) || d.IsComplete(waves):
		return decision.Cause{Code: decision.WaveUndecided}
	}
	own := waves[m.Wave]
	args := decision.Args{Wave: own.Name, Current: waves[d.Current].Name, Message: d.Held}
	switch {
	case d.Current >= m.Wave && d.Held != "":
		return decision.Cause{Code: decision.WaveObstructed, Args: args}
	case d.Current >= m.Wave && own.Max != nil:
		args.Max = own.Max.String()
		return decision.Cause{Code: decision.WaveFull, Args: args}
	case d.Current >= m.Wave:
		return decision.Cause{Code: decision.WaveBusy, Args: args}
	case !d.Until.IsZero():
		args.Until = d.Until
		return decision.Cause{Code: decision.WaveSoaks, Args: args}
	}
	return decision.Cause{Code: decision.WaveNotReady, Args: args}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
