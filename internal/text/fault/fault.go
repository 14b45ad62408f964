// Package fault defines an error for users: what failed, the likely cause, and what to do next. Domain packages
// return it; the reconcile kernel converts it to a condition and an event. It does not depend on API kinds.
package fault

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Fault is an error with a condition reason and a hint.
// Its texts must not contain secrets: pass URLs through [RedactURL].
type Fault struct {
	// Reason is the CamelCase condition reason, such as AuthenticationFailed.
	Reason string
	// What is what failed, and for which object.
	What string
	// Err is the cause; may be nil.
	Err error
	// Hint says what to do next; may be empty.
	Hint string
	// Terminal is true if a retry cannot succeed until the object or its configuration changes.
	Terminal bool
	// RetryAfter is how long the remote server asked us to wait; zero if it did not.
	RetryAfter time.Duration
	// Temporary is true if the cause is expected to pass by itself soon: the object keeps its Ready condition.
	Temporary bool
}

// New returns a fault. Reason is the condition reason; format and args describe what failed.
func New(reason, format string, args ...any) *Fault {
	return &Fault{Reason: reason, What: fmt.Sprintf(format, args...)}
}

// Because sets the cause. If the cause contains a fault with a longer RetryAfter, f gets that one.
func (f *Fault) Because(err error) *Fault {
	f.Err = err
	if cause := As(err); cause != nil {
		f.RetryAfter = max(f.RetryAfter, cause.RetryAfter)
	}
	return f
}

// WithHint sets the hint: what to do next.
func (f *Fault) WithHint(format string, args ...any) *Fault {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

// Final marks the fault as terminal.
func (f *Fault) Final() *Fault { f.Terminal = true; return f }

// Passing marks the fault as temporary: it is tried again after a time, and no failure until then.
func (f *Fault) Passing(after time.Duration) *Fault { f.Temporary = true; return f.After(after) }

// After sets RetryAfter.
func (f *Fault) After(d time.Duration) *Fault { f.RetryAfter = d; return f }

func (f *Fault) Error() string {
	s := f.What
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	if f.Hint != "" {
		s = strings.TrimSuffix(s, ".") + ". " + f.Hint // the cause may already end with a period
	}
	return s
}

func (f *Fault) Unwrap() error { return f.Err }

// As returns the outermost fault in err's chain, or nil.
func As(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// Reason returns the reason of the fault in err's chain, or fallback.
func Reason(err error, fallback string) string {
	if f := As(err); f != nil && f.Reason != "" {
		return f.Reason
	}
	return fallback
}

// WithoutURL returns the cause of an error of an HTTP client, which contains the URL: its query may be secret.
func WithoutURL(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// RedactURL returns raw without user info, query and fragment, so that it is safe for logs and conditions.
func RedactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
