package v1alpha1

import (
	"strings"
	"time"
)

// Annotations of a Gate that request an action: open, close, override or refuse. The annotation requestedAt makes the
// request. The other annotations of the action add details to the request, and have no effect without it.
const (
	// OpenRequestedAtAnnotation opens the gate at the given time (RFC 3339), for the duration of the window.
	OpenRequestedAtAnnotation = OpenPrefix + RequestedAtSuffix
	// CloseRequestedAtAnnotation closes the gate at the given time (RFC 3339).
	CloseRequestedAtAnnotation = ClosePrefix + RequestedAtSuffix
	// OverrideRequestedAtAnnotation opens the gate regardless of schedule, approvals and checks. It requires
	// a reason, the name of the requester, and permission for the verb `override` on the gate.
	OverrideRequestedAtAnnotation = OverridePrefix + RequestedAtSuffix

	// RefuseRequestedAtAnnotation makes an object behind a gate with spec.onFailure Revert go back from a revision to
	// what was healthy before it. It requires the revision and the object, and lapses after [RefuseLapse].
	RefuseRequestedAtAnnotation = RefusePrefix + RequestedAtSuffix

	// OpenRevisionAnnotation is the only revision that an open request allows.
	OpenRevisionAnnotation = OpenPrefix + RevisionSuffix

	OpenPrefix     = "open.gate.fluxcd.io/"
	ClosePrefix    = "close.gate.fluxcd.io/"
	OverridePrefix = "override.gate.fluxcd.io/"
	RefusePrefix   = "refuse.gate.fluxcd.io/"

	RequestedAtSuffix = "requestedAt"
	// RequestedBySuffix is the suffix of the annotation that names the requester: the value of requestedAt, a
	// space, and the user name. The API server rejects the name of another user.
	RequestedBySuffix = "requestedBy"
	// WindowSuffix is the suffix of the annotation that sets how long the request is in effect. It replaces
	// spec.window.
	WindowSuffix = "window"
	// ReasonSuffix is the suffix of the annotation that records the reason of the request.
	ReasonSuffix = "reason"
	// RevisionSuffix is the suffix of the annotation that holds the only allowed revision, or the refused one.
	RevisionSuffix = "revision"
	// ObjectSuffix is the suffix of the annotation that names the object for which a revision is refused, as
	// <kind>/<namespace>/<name>.
	ObjectSuffix = "object"
)

// RefuseLapse is how long a request to refuse a revision waits for the object to be reconciled.
const RefuseLapse = 10 * time.Minute

// Requests returns the annotations of the gate that request an action.
func (g *Gate) Requests() map[string]string {
	asked := map[string]string{}
	for key, value := range g.Annotations {
		for _, prefix := range []string{OpenPrefix, ClosePrefix, OverridePrefix, RefusePrefix} {
			if strings.HasPrefix(key, prefix) {
				asked[key] = value
			}
		}
	}
	return asked
}
