// Package event defines the documented event: controllers emit it, third parties post it, and generic providers
// receive it. It is plain data and does not depend on senders or receivers.
package event

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Severities.
const (
	Info  = "info"
	Error = "error"
	Trace = "trace" // accepted, below Info: no alert selects it
)

// Keys of Metadata.
const (
	Revision       = meta.EventRevisionKey
	OriginRevision = meta.EventOriginRevisionKey
	OriginURL      = meta.EventOriginURLKey
	Token          = "token" // distinguishes changes with the same revision; not a secret
	Summary        = "summary"
	Commit         = "commit" // takes precedence over the commit in revisions
	CommitStatus   = "commit_status"
	ChangeRequest  = "change_request"

	CommitAuthor  = meta.EventCommitAuthorKey
	CommitMessage = meta.EventCommitMessageKey
	Note          = meta.EventNoteKey
)

// CommitStatusUpdate is the value of [CommitStatus] of an event that only updates a commit status.
const CommitStatusUpdate = "update"

// AnnotationGroup is the group of the object annotations that are copied to the metadata of its events.
const AnnotationGroup = "event.toolkit.fluxcd.io"

// Bounds of an event. Longer messages and metadata values are truncated; other fields are rejected.
const (
	MaxSize     = 256 << 10 // bytes of its JSON
	MaxMessage  = 32 << 10  // bytes
	MaxMetadata = 64        // entries
	maxValue    = 8 << 10   // bytes of a metadata value
	maxName     = 317       // bytes of names, kinds, reasons and keys: group, slash and name
)

// Event is something that happened to an object.
type Event struct {
	InvolvedObject corev1.ObjectReference `json:"involvedObject"`
	Severity       string                 `json:"severity"`
	Timestamp      metav1.Time            `json:"timestamp"`
	Message        string                 `json:"message"`
	Reason         string                 `json:"reason"`
	// Metadata keys have no group of the object; alerts remove [AnnotationGroup].
	Metadata            map[string]string `json:"metadata,omitempty"`
	ReportingController string            `json:"reportingController"`
	ReportingInstance   string            `json:"reportingInstance,omitempty"`

	// Alert is the Alert that an event is sent for, if the expression of the Provider may read it.
	Alert map[string]any `json:"-"`
}

// Parse decodes and checks a posted event. Unknown fields are ignored, since later versions may add some. The
// error is safe to return to the sender.
func Parse(body []byte) (Event, error) {
	if len(body) > MaxSize {
		return Event{}, fmt.Errorf("the event has more than %d bytes", MaxSize)
	}
	var e Event
	if err := json.Unmarshal(body, &e); err != nil {
		return Event{}, fmt.Errorf("the body is not a JSON event: %w", err)
	}
	e.Severity = cmp.Or(strings.ToLower(e.Severity), Info)
	if err := e.check(); err != nil {
		return Event{}, err
	}
	return e.Clean(), nil
}

// check reports all fields that are missing or invalid.
func (e *Event) check() error {
	o := e.InvolvedObject
	var errs []error
	for _, f := range []struct{ field, value string }{
		{field: "involvedObject.kind", value: o.Kind}, {field: "involvedObject.namespace", value: o.Namespace},
		{field: "involvedObject.name", value: o.Name},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s is not set", f.field))
		}
	}
	for _, f := range []struct{ field, value string }{
		{field: "involvedObject.apiVersion", value: o.APIVersion}, {field: "involvedObject.kind", value: o.Kind},
		{field: "involvedObject.namespace", value: o.Namespace},
		{field: "involvedObject.name", value: o.Name}, {field: "involvedObject.uid", value: string(o.UID)},
		{field: "reason", value: e.Reason},
		{field: "reportingController", value: e.ReportingController},
		{field: "reportingInstance", value: e.ReportingInstance},
	} {
		errs = append(errs, checkName(f.field, f.value))
	}
	if !slices.Contains([]string{Info, Error, Trace}, e.Severity) {
		errs = append(errs, fmt.Errorf("severity is %.20q: must be %s or %s", e.Severity, Info, Error))
	}
	if len(e.Metadata) > MaxMetadata {
		errs = append(errs, fmt.Errorf("metadata has more than %d entries", MaxMetadata))
	} else {
		for _, k := range slices.Sorted(maps.Keys(e.Metadata)) {
			errs = append(errs, checkName("a metadata key", k))
		}
	}
	return errors.Join(errs...)
}

func checkName(field, value string) error {
	switch {
	case len(value) > maxName:
		return fmt.Errorf("%s has more than %d bytes", field, maxName)
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("%s contains a line break or another control character", field)
	}
	return nil
}

// Clean returns the event as it is accepted: credentials are masked, texts are truncated to their bounds, and
// metadata keeps only the keys of the object: keys of its group (the group is removed), keys without a group, and
// keys of [AnnotationGroup], which have the lowest precedence.
func (e Event) Clean() Event {
	e.Message = excerpt.Bytes(Mask(printable(e.Message)), MaxMessage)
	metadata := make(map[string]string, len(e.Metadata))
	// Sorted, so that the result is the same each time if two keys become equal.
	for _, k := range slices.Sorted(maps.Keys(e.Metadata)) {
		group, key, grouped := cutLast(k, "/")
		if grouped && group != AnnotationGroup && group != e.Group() || key == "" {
			continue
		}
		value := excerpt.Bytes(maskValue(key, printable(e.Metadata[k])), maxValue)
		if group == AnnotationGroup {
			key = k
		}
		metadata[key] = value
	}
	e.Metadata = metadata
	if len(metadata) == 0 {
		e.Metadata = nil
	}
	return e
}

// Group returns the API group of the object; empty for the core group.
func (e *Event) Group() string {
	group, _, grouped := strings.Cut(e.InvolvedObject.APIVersion, "/")
	if !grouped {
		return "" // core group: apiVersion is only a version
	}
	return group
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

// printable removes control characters except line breaks and tabs, since terminals and chats interpret them.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
