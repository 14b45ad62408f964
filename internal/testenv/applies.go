package testenv

import (
	"slices"
	"strings"
	"testing"
)

// Applies returns the successful patches of objects in a namespace, without dry runs and those of subresources. The key
// is "<resource>/<name>", and each list is in the order in which the API server received them.
func (a *AuditLog) Applies(tb testing.TB, namespace string, resources ...string) map[string][]Request {
	tb.Helper()
	found := map[string][]Request{}
	for _, r := range a.Requests(tb, Request{Verb: "patch", Namespace: namespace}) {
		if r.Code/100 == 2 && r.Subresource == "" && slices.Contains(resources, r.Resource) &&
			!strings.Contains(r.URI, "dryRun=All") {
			key := r.Resource + "/" + r.Name
			found[key] = append(found[key], r)
		}
	}
	for _, requests := range found {
		slices.SortStableFunc(requests, func(a, b Request) int { return a.Received.Compare(b.Received) })
	}
	return found
}

// Statuses returns the successful status patches of objects in a namespace, by the name of the object.
func (a *AuditLog) Statuses(tb testing.TB, namespace, resource string) map[string][]Request {
	tb.Helper()
	found := map[string][]Request{}
	for _, r := range a.Requests(tb, Request{Verb: "patch", Namespace: namespace, Resource: resource,
		Subresource: "status", Code: 200}) {
		found[r.Name] = append(found[r.Name], r)
	}
	return found
}

// RecordedBetween returns the first status patch that the process which sent an apply sent after the answer, and that
// was answered before a later request was sent. The process is recognized by its user agent.
func RecordedBetween(apply, later Request, statuses []Request) (Request, bool) {
	for _, r := range statuses {
		if r.UserAgent == apply.UserAgent && r.Received.After(apply.Answered) &&
			r.Answered.Before(later.Received) {
			return r, true
		}
	}
	return Request{}, false
}
