// Package event is the documented event: what controllers tell of objects, what third parties post, and what
// generic providers get. It is plain data, and knows neither who sends it nor who wants it.
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

	"github.com/sluice-gitops/sluice/internal/excerpt"
)

// Severities.
const (
	Info  = "info"
	Error = "error"
	Trace = "trace" // understood, and less than Info: no alert asks for it
)

// Keys of Metadata.
const (
	Revision       = "revision"
	OriginRevision = "originRevision"
	OriginURL      = "originURL" // of the repository that the revision is of, without a login
	Token          = "token"     // tells changes apart that have the same revision; no secret
	Summary        = "summary"
	Commit         = "commit" // that the event is about, before what revisions say
	CommitStatus   = "commit_status"
	ChangeRequest  = "change_request"

	CommitAuthor  = "commit_author"
	CommitMessage = "commit_message"
	Note          = "note" // content of refs/notes/sluice of the commit that was applied
)

// AnnotationGroup is the group of the annotations of an object that are metadata of its events.
const AnnotationGroup = "event.toolkit.fluxcd.io"

// Bounds of an event. What is longer is cut or refused, as [Parse] says.
const (
	MaxSize     = 256 << 10 // bytes of its JSON
	MaxMessage  = 32 << 10  // bytes
	MaxMetadata = 64        // entries
	maxValue    = 8 << 10   // bytes of a value of the metadata
	maxName     = 317       // bytes of names, kinds, reasons and keys: group, slash and name at most
)

// Event is something that happened to an object.
type Event struct {
	InvolvedObject corev1.ObjectReference `json:"involvedObject"`
	Severity       string                 `json:"severity"`
	Timestamp      metav1.Time            `json:"timestamp"`
	Message        string                 `json:"message"`
	Reason         string                 `json:"reason"`
	// keys stand without the group of the object; an alert takes [AnnotationGroup] off
	Metadata            map[string]string `json:"metadata,omitempty"`
	ReportingController string            `json:"reportingController"`
	ReportingInstance   string            `json:"reportingInstance,omitempty"`
}

// Parse reads an event that was posted. An unknown field is left out, as later versions may have more. The
// error is for whoever posted it.
func Parse(body []byte) (Event, error) {
	if len(body) > MaxSize {
		return Event{}, fmt.Errorf("the event has more than %d bytes", MaxSize)
	}
	var e Event
	if err := json.Unmarshal(body, &e); err != nil {
		return Event{}, fmt.Errorf("the body is not the JSON of an event: %w", err)
	}
	e.Severity = cmp.Or(strings.ToLower(e.Severity), Info)
	if err := e.check(); err != nil {
		return Event{}, err
	}
	return e.Clean(), nil
}

// check refuses what cannot be told of anything.
func (e *Event) check() error {
	o := e.InvolvedObject
	var errs []error
	for _, f := range []struct{ field, value string }{
		{"involvedObject.kind", o.Kind}, {"involvedObject.namespace", o.Namespace}, {"involvedObject.name", o.Name},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s is not set", f.field))
		}
	}
	for _, f := range []struct{ field, value string }{
		{"involvedObject.apiVersion", o.APIVersion}, {"involvedObject.kind", o.Kind},
		{"involvedObject.namespace", o.Namespace},
		{"involvedObject.name", o.Name}, {"involvedObject.uid", string(o.UID)}, {"reason", e.Reason},
		{"reportingController", e.ReportingController}, {"reportingInstance", e.ReportingInstance},
	} {
		errs = append(errs, checkName(f.field, f.value))
	}
	if !slices.Contains([]string{Info, Error, Trace}, e.Severity) {
		errs = append(errs, fmt.Errorf("severity is %.20q: choose %s or %s", e.Severity, Info, Error))
	}
	if len(e.Metadata) > MaxMetadata {
		errs = append(errs, fmt.Errorf("metadata has more than %d entries", MaxMetadata))
	} else {
		for _, k := range slices.Sorted(maps.Keys(e.Metadata)) {
			errs = append(errs, checkName("a key of metadata", k))
		}
	}
	return errors.Join(errs...)
}

func checkName(field, value string) error {
	switch {
	case len(value) > maxName:
		return fmt.Errorf("%s has more than %d bytes", field, maxName)
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("%s has a line break or another control character", field)
	}
	return nil
}

// Clean returns the event as it is taken up: credentials are masked, texts cut to their bounds, and metadata
// is what belongs to the object (keys of its group, which are left without it, keys without a group, and
// those of [AnnotationGroup], which count less than what an alert says).
func (e Event) Clean() Event {
	e.Message = excerpt.Bytes(Mask(printable(e.Message)), MaxMessage)
	metadata := make(map[string]string, len(e.Metadata))
	// those without a group last, if two come to the same key: sorted, so always the same
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

// Group is the API group of the object.
func (e *Event) Group() string {
	group, _, grouped := strings.Cut(e.InvolvedObject.APIVersion, "/")
	if !grouped {
		return "" // of the core group, whose apiVersion is a version
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

// printable leaves line breaks and tabs, and no other control character: terminals and chats act on those.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
