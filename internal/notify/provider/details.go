package provider

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// internalKeys are metadata keys for git hosts only.
var internalKeys = []string{event.Token, event.CommitStatus, event.ChangeRequest}

// details returns the metadata for machine-readable fields: the first entries by name, with values of at most
// length characters.
func details(e event.Event, entries, length int) map[string]string {
	out := make(map[string]string, len(e.Metadata))
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		if len(out) == entries {
			break
		}
		if value := excerpt.Chars(singleLine(e.Metadata[key]), length); value != "" &&
			!slices.Contains(internalKeys, key) {
			out[excerpt.Chars(singleLine(key), maxName)] = value
		}
	}
	return out
}

// eventJSON returns the event in the documented JSON format, with credentials masked.
func eventJSON(e event.Event) ([]byte, error) {
	e.Message, e.Metadata = event.Mask(e.Message), maps.Clone(e.Metadata)
	for key, value := range e.Metadata {
		e.Metadata[key] = event.Mask(value)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fault.New(SendFailed, "cannot encode the event as JSON").Because(err).Final()
	}
	return b, nil
}

// plainText returns a message as one text.
func plainText(m Message) string {
	text := m.Text
	if m.Summary != "" {
		text = m.Summary + "\n\n" + text
	}
	if m.Hint != "" {
		text += "\n\n" + m.Hint
	}
	return text
}

// objectTags returns the object, severity and reason of an event as named fields.
func objectTags(e event.Event) map[string]string {
	o := e.InvolvedObject
	return map[string]string{"kind": singleLine(o.Kind), "name": singleLine(o.Name),
		"namespace": singleLine(o.Namespace),
		"severity":  singleLine(e.Severity), "reason": singleLine(e.Reason)}
}
