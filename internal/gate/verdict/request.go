package verdict

import (
	"cmp"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// MaxWindow is the longest window of a request.
const MaxWindow = 87600 * time.Hour

// maxText bounds reasons and names, in bytes.
const maxText = 256

// Request is a request to open or close a gate.
type Request struct {
	At       time.Time
	Window   time.Duration // overrides that of the gate; zero: that of the gate
	By       string        // the requester; empty if the annotation does not name one for this request
	From     string        // field manager of the annotation
	Reason   string
	Revision string // the only revision to allow; empty: any
	Object   string // for which a revision is refused, as <kind>/<namespace>/<name>
}

// Requests is the latest request of each verb; nil if there is none.
type Requests struct{ Open, Close, Override, Refuse *Request }

// ReadRequests parses the annotations of a gate. The error is a terminal fault with the reason InvalidRequest.
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
	if r.Refuse, err = readRequest(annotations, gatingv1.RefusePrefix); err != nil {
		return Requests{}, err
	}
	if o := r.Override; o != nil && (o.Reason == "" || o.By == "") {
		return Requests{}, invalid("annotation %s requires a reason, and a requester for the same time",
			gatingv1.OverrideRequestedAtAnnotation).
			WithHint("Set %s and %s too, or use `sluice gate open --override --reason`",
				gatingv1.OverridePrefix+gatingv1.ReasonSuffix, gatingv1.OverridePrefix+gatingv1.RequestedBySuffix)
	}
	for _, opening := range []*Request{r.Open, r.Override} {
		if opening != nil && r.Close != nil && opening.At.Equal(r.Close.At) {
			return Requests{}, invalid("the gate is requested to open and to close at the same time, %s",
				stamp(r.Close.At)).
				WithHint("Set one of the two annotations to a later time")
		}
	}
	return r, nil
}

func readRequest(annotations map[string]string, prefix string) (*Request, error) {
	raw, found := annotations[prefix+gatingv1.RequestedAtSuffix]
	if !found {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, raw)
	if err != nil || at.Year() < 1970 {
		return nil, invalid("annotation %s%s is %q, which is not a valid time", prefix, gatingv1.RequestedAtSuffix,
			clip(raw)).
			WithHint("Write it in RFC 3339 format, such as 2006-01-02T15:04:05Z")
	}
	r := &Request{At: at.UTC(), Reason: clip(annotations[prefix+gatingv1.ReasonSuffix]),
		Revision: annotations[prefix+gatingv1.RevisionSuffix], Object: annotations[prefix+gatingv1.ObjectSuffix]}
	if when, by, ok := strings.Cut(annotations[prefix+gatingv1.RequestedBySuffix], " "); ok && when == raw {
		r.By = clip(by)
	}
	if window, ok := annotations[prefix+gatingv1.WindowSuffix]; ok {
		if r.Window, err = time.ParseDuration(window); err != nil || r.Window <= 0 || r.Window > MaxWindow {
			return nil, invalid("annotation %s%s is %q, which is not a valid window", prefix, gatingv1.WindowSuffix,
				clip(window)).
				WithHint("Set it to a positive duration such as 2h, at most %s", MaxWindow)
		}
	}
	return r, nil
}

// end returns when a request ends, given the window of its gate; zero: when the opposite is requested.
func (r *Request) end(window time.Duration) time.Time {
	w := cmp.Or(r.Window, window)
	if w == 0 {
		return time.Time{}
	}
	return r.At.Add(w)
}

// active reports whether a request is in force at t.
func (r *Request) active(window time.Duration, t time.Time) bool {
	end := r.end(window)
	return !r.At.After(t) && (end.IsZero() || end.After(t))
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(gatingv1.InvalidRequestReason, format, args...).Final()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func clip(s string) string { return excerpt.Bytes(s, maxText) }
