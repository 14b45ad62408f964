// Package fault holds the error that is made for the person who reads it: what failed, the likely cause, what
// to do next. Domain packages return it; the reconcile kernel turns it into a condition and an event. It
// knows no kind.
package fault

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Fault is an error with a condition reason and a way forward.
// Neither text may hold a secret: pass URLs through [RedactURL].
type Fault struct {
	// Reason is the CamelCase condition reason, such as AuthenticationFailed.
	Reason string
	// What failed, on which object.
	What string
	// Err is the cause; may be nil.
	Err error
	// Hint says what to do next; may be empty.
	Hint string
	// Terminal tells that a retry cannot help before the object or its configuration changes.
	Terminal bool
	// RetryAfter is how long the remote asked us to wait; zero when it did not.
	RetryAfter time.Duration
}

// New returns a fault: reason is the condition reason, the rest says what failed.
func New(reason, format string, args ...any) *Fault {
	return &Fault{Reason: reason, What: fmt.Sprintf(format, args...)}
}

// Because adds the cause. A wait that the remote asked for in the cause is the fault's too.
func (f *Fault) Because(err error) *Fault {
	f.Err = err
	if cause := As(err); cause != nil {
		f.RetryAfter = max(f.RetryAfter, cause.RetryAfter)
	}
	return f
}

// WithHint adds what to do next.
func (f *Fault) WithHint(format string, args ...any) *Fault {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

// Final marks the fault as one that a retry cannot help.
func (f *Fault) Final() *Fault { f.Terminal = true; return f }

// After records the wait that the remote asked for.
func (f *Fault) After(d time.Duration) *Fault { f.RetryAfter = d; return f }

func (f *Fault) Error() string {
	s := f.What
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	if f.Hint != "" {
		s = strings.TrimSuffix(s, ".") + ". " + f.Hint // what others say may end a sentence
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

// RedactURL returns raw with user info and query removed, safe for logs and conditions.
func RedactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
