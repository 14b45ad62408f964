package meta

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a duration in the text form of Go, such as 1h30m.
//
// Decoding never fails. The API server accepts text that is not a duration, for example if an older version
// of a kind has no pattern. One object that fails to decode would stop every informer of its kind. Text that
// does not parse is kept and written back unchanged, the duration is zero, and [InvalidFields] reports the
// field.
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration such as 10m
// +>  or 1h30m, of at most 2562047h"
type Duration struct {
	time.Duration `json:"-"`
	Invalid       RawText `json:"-"`
}

// DurationOf returns d as a field value.
func DurationOf(d time.Duration) Duration { return Duration{Duration: d} }

// UnmarshalJSON implements [json.Unmarshaler]. The error is always nil.
func (d *Duration) UnmarshalJSON(b []byte) error {
	d.Duration, d.Invalid = parseDuration(b)
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (d Duration) MarshalJSON() ([]byte, error) { return d.Invalid.or(d.String()) }

// ToUnstructured implements the interface that the unstructured converter uses for values that are not JSON objects.
func (d Duration) ToUnstructured() any { return d.Invalid.value(d.String()) }

func (d Duration) invalid() string { return d.Invalid.problem("a duration such as 10m or 1h30m") }

// Elapsed is a recorded duration of an operation. Decoding never fails: text that does not parse is kept and
// written back unchanged, and the duration is zero.
// +kubebuilder:validation:Type=string
type Elapsed struct {
	time.Duration `json:"-"`
	Invalid       RawText `json:"-"`
}

// UnmarshalJSON implements [json.Unmarshaler]. The error is always nil.
func (e *Elapsed) UnmarshalJSON(b []byte) error {
	e.Duration, e.Invalid = parseDuration(b)
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (e Elapsed) MarshalJSON() ([]byte, error) { return e.Invalid.or(e.String()) }

// ToUnstructured implements the interface that the unstructured converter uses for values that are not JSON objects.
func (e Elapsed) ToUnstructured() any { return e.Invalid.value(e.String()) }

func parseDuration(b []byte) (time.Duration, RawText) {
	text, isNull := textOf(b)
	if isNull {
		return 0, ""
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d, ""
	}
	return 0, RawText(b)
}

// RawText is the JSON of a value that did not parse; empty if the value parsed.
type RawText string

// or returns the kept JSON if there is any, else text as JSON.
func (r RawText) or(text string) ([]byte, error) {
	if r != "" {
		return []byte(r), nil
	}
	return json.Marshal(text)
}

// value returns the decoded kept JSON if there is any, else text.
func (r RawText) value(text string) any {
	if r == "" {
		return text
	}
	var v any
	if err := json.Unmarshal([]byte(r), &v); err != nil {
		return string(r)
	}
	return v
}

// problem describes why the kept JSON is invalid; empty if the value parsed.
func (r RawText) problem(expected string) string {
	if r == "" {
		return ""
	}
	text := []rune(string(r))
	if len(text) > maxQuoted {
		text = append(text[:maxQuoted], '…')
	}
	return fmt.Sprintf("%s is not %s", string(text), expected)
}

// maxQuoted bounds, in characters, how much of an invalid value a message repeats.
const maxQuoted = 64

// textOf returns the text of a JSON string, and reports whether the JSON is null. Other JSON is returned as it is.
func textOf(b []byte) (text string, isNull bool) {
	if string(b) == "null" {
		return "", true
	}
	if err := json.Unmarshal(b, &text); err != nil {
		return string(b), false
	}
	return text, false
}
