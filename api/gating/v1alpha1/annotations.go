package v1alpha1

import "strings"

// Annotations of a Gate by which people and programs ask something of it. A verb, such as open, is asked at
// one time; the other annotations of the verb say more of that request, and are void without it.
const (
	// OpenRequestedAtAnnotation opens the gate from that time (RFC 3339) on, for the window.
	OpenRequestedAtAnnotation = OpenPrefix + RequestedAtSuffix
	// CloseRequestedAtAnnotation closes the gate from that time (RFC 3339) on.
	CloseRequestedAtAnnotation = ClosePrefix + RequestedAtSuffix
	// OverrideRequestedAtAnnotation opens the gate whatever schedules, approvals and checks say. It takes a
	// reason, the name of who asks, and the right to `override` the gate.
	OverrideRequestedAtAnnotation = OverridePrefix + RequestedAtSuffix

	// OpenRevisionAnnotation is the only revision that the request to open lets through.
	OpenRevisionAnnotation = OpenPrefix + RevisionSuffix

	OpenPrefix     = "open.gate.fluxcd.io/"
	ClosePrefix    = "close.gate.fluxcd.io/"
	OverridePrefix = "override.gate.fluxcd.io/"

	RequestedAtSuffix = "requestedAt"
	// RequestedBySuffix ends the annotation of who asks: the request's requestedAt, a space, and the user's
	// name. The API server refuses it where it names somebody else.
	RequestedBySuffix = "requestedBy"
	// WindowSuffix ends the annotation of how long the request holds, instead of spec.window.
	WindowSuffix = "window"
	// ReasonSuffix ends the annotation of why somebody asks, for the record.
	ReasonSuffix = "reason"
	// RevisionSuffix ends the annotation of the only revision that is let through.
	RevisionSuffix = "revision"
)

// Requests returns the annotations by which something is asked of the gate.
func (g *Gate) Requests() map[string]string {
	asked := map[string]string{}
	for key, value := range g.Annotations {
		for _, prefix := range []string{OpenPrefix, ClosePrefix, OverridePrefix} {
			if strings.HasPrefix(key, prefix) {
				asked[key] = value
			}
		}
	}
	return asked
}
