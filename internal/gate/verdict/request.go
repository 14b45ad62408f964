package verdict

import (
	"cmp"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// MaxWindow bounds how long a request holds that does not hold until the opposite one.
const MaxWindow = 87600 * time.Hour

// maxText bounds what is kept of a reason or a name, in bytes.
const maxText = 256

// Request is what somebody asked of a gate.
type Request struct {
	At       time.Time
	Window   time.Duration // instead of the gate's; zero: as the gate's
	By       string        // who asked, if the annotation says so in this very request
	From     string        // the client that wrote the annotation
	Reason   string
	Revision string // the only one that is let through; any when empty
}

// Requests are the latest of each verb; nil where nobody asked.
type Requests struct{ Open, Close, Override *Request }

// ReadRequests reads the annotations of a gate. The error is a final fault with the reason InvalidRequest.
func ReadRequests(annotations map[string]string) (Requests, error) {
	var r Requests
	var err error
	if r.Open, err = readRequest(annotations, gatingv1.OpenPrefix); err != nil {
		return Requests{}, err
	}
	if r.Close, err = readRequest(annotations, gatingv1.ClosePrefix); err != nil {
		return Requests{}, err
	}
	if r.Override, err = readRequest(annotations, gatingv1.OverridePrefix); err != nil {
		return Requests{}, err
	}
	if o := r.Override; o != nil && (o.Reason == "" || o.By == "") {
		return Requests{}, invalid("annotation %s takes a reason, and the name of who asks for this very time",
			gatingv1.OverrideRequestedAtAnnotation).
			WithHint("Set %s and %s with it, as `sluice gate open --override --reason` does",
				gatingv1.OverridePrefix+gatingv1.ReasonSuffix, gatingv1.OverridePrefix+gatingv1.RequestedBySuffix)
	}
	for _, opening := range []*Request{r.Open, r.Override} {
		if opening != nil && r.Close != nil && opening.At.Equal(r.Close.At) {
			return Requests{}, invalid("the gate is asked to open and to close at the same time, %s",
				stamp(r.Close.At)).
				WithHint("Set one of the annotations to a later time")
		}
	}
	return r, nil
}

func readRequest(annotations map[string]string, prefix string) (*Request, error) {
	raw, asked := annotations[prefix+gatingv1.RequestedAtSuffix]
	if !asked {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, raw)
	if err != nil || at.Year() < 1970 {
		return nil, invalid("annotation %s%s is %q, which is no time", prefix, gatingv1.RequestedAtSuffix, clip(raw)).
			WithHint("Write it as 2006-01-02T15:04:05Z (RFC 3339)")
	}
	r := &Request{At: at.UTC(), Reason: clip(annotations[prefix+gatingv1.ReasonSuffix]),
		Revision: annotations[prefix+gatingv1.RevisionSuffix]}
	if when, by, ok := strings.Cut(annotations[prefix+gatingv1.RequestedBySuffix], " "); ok && when == raw {
		r.By = clip(by)
	}
	if window, ok := annotations[prefix+gatingv1.WindowSuffix]; ok {
		if r.Window, err = time.ParseDuration(window); err != nil || r.Window <= 0 || r.Window > MaxWindow {
			return nil, invalid("annotation %s%s is %q, which is no window", prefix, gatingv1.WindowSuffix,
				clip(window)).
				WithHint("Write it as 2h, and no longer than %s", MaxWindow)
		}
	}
	return r, nil
}

// end returns when a request ends, given the window of its gate; zero when only the opposite one ends it.
func (r *Request) end(window time.Duration) time.Time {
	w := cmp.Or(r.Window, window)
	if w == 0 {
		return time.Time{}
	}
	return r.At.Add(w)
}

// holds tells whether a request is in force at t.
func (r *Request) holds(window time.Duration, t time.Time) bool {
	end := r.end(window)
	return !r.At.After(t) && (end.IsZero() || end.After(t))
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(gatingv1.InvalidRequestReason, format, args...).Final()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func clip(s string) string { return excerpt.Bytes(s, maxText) }
