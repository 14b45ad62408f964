package meta

import (
	"strings"
	"time"
)

// Time is a time in RFC 3339, to the second.
//
// Decoding never fails, for the reason that [Duration] gives: the format date-time of the API server accepts
// text that Go rejects, such as 2027-01-01t00:00:00z. Text that does not parse is kept and written back
// unchanged, the time is zero, and [InvalidFields] reports the field.
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
type Time struct {
	time.Time `json:"-"`
	Invalid   RawText `json:"-"`
}

// TimeOf returns t as a field value.
func TimeOf(t time.Time) Time { return Time{Time: t} }

// UnmarshalJSON implements [json.Unmarshaler]. The error is always nil.
func (t *Time) UnmarshalJSON(b []byte) error {
	t.Time, t.Invalid = time.Time{}, ""
	text, isNull := textOf(b)
	if isNull {
		return nil
	}
	// RFC 3339 allows 't' and 'z' in lower case, which Go does not parse.
	parsed, err := time.Parse(time.RFC3339, strings.ToUpper(text))
	if err != nil {
		t.Invalid = RawText(b)
		return nil
	}
	t.Time = parsed.Local()
	return nil
}

// MarshalJSON implements [json.Marshaler]. A zero time is null.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.Invalid == "" && t.IsZero() {
		return []byte("null"), nil
	}
	return t.Invalid.or(t.text())
}

// ToUnstructured implements the interface that the unstructured converter uses for values that are not JSON objects.
func (t Time) ToUnstructured() any {
	if t.Invalid == "" && t.IsZero() {
		return nil
	}
	return t.Invalid.value(t.text())
}

// Equal reports whether both are the same time; two nil times are equal.
func (t *Time) Equal(o *Time) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Time.Equal(o.Time)
}

// DeepCopyInto copies the time into out.
func (t *Time) DeepCopyInto(out *Time) { *out = *t }

func (t Time) text() string { return t.UTC().Format(time.RFC3339) }

func (t Time) invalid() string { return t.Invalid.problem("a time such as 2027-01-02T15:04:05Z") }

// DeepCopy returns a copy of the time; nil for nil.
func (t *Time) DeepCopy() *Time {
	if t == nil {
		return nil
	}
	out := *t
	return &out
}
