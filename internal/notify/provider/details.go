package provider

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// internal are entries of the metadata that say something to git hosts only.
var internal = []string{event.Token, event.CommitStatus, event.ChangeRequest}

// details are the entries of the metadata for machines, at most so many and so long in characters: those that
// come first by name.
func details(e event.Event, entries, length int) map[string]string {
	out := make(map[string]string, len(e.Metadata))
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		if len(out) == entries {
			break
		}
		if value := excerpt.Chars(line(e.Metadata[key]), length); value != "" && !slices.Contains(internal, key) {
			out[excerpt.Chars(line(key), maxName)] = value
		}
	}
	return out
}

// eventJSON is the event as it is documented, for machines. What looks like a credential is masked, wherever
// the event is from.
func eventJSON(e event.Event) ([]byte, error) {
	e.Message, e.Metadata = event.Mask(e.Message), maps.Clone(e.Metadata)
	for key, value := range e.Metadata {
		e.Metadata[key] = event.Mask(value)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fault.New(SendFailed, "the event cannot be written as JSON").Because(err).Final()
	}
	return b, nil
}

// described is the text of a message for hosts that have one field for it.
func described(m Message) string {
	text := m.Text
	if m.Summary != "" {
		text = m.Summary + "\n\n" + text
	}
	if m.Hint != "" {
		text += "\n\n" + m.Hint
	}
	return text
}

// objectTags are what an event is of, for hosts that know fields by name.
func objectTags(e event.Event) map[string]string {
	o := e.InvolvedObject
	return map[string]string{"kind": line(o.Kind), "name": line(o.Name), "namespace": line(o.Namespace),
		"severity": line(e.Severity), "reason": line(e.Reason)}
}
