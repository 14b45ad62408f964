package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
)

// AnnotationPart is in the keys of all annotations that a plan reads.
const AnnotationPart = "fluxcd.io/"

// Annotations of workloads, as in Flux v1.
const (
	automated   = "fluxcd.io/automated" // "true": updates are automated
	locked      = "fluxcd.io/locked"    // "true": takes precedence: updates are not automated
	filterGroup = "filter.fluxcd.io/"   // followed by a container: filter of its tags
	tagPrefix   = "fluxcd.io/tag."      // older form of filterGroup
	notLatest   = `tag != "latest"`     // this tag moves, so it does not identify an image
	semverKind  = "semver:"             // version range; the highest version is the latest
	globKind    = "glob:"               // pattern with *; the newest image is the latest
)

var regexKinds = []string{"regex:", "regexp:"} // regular expression; the newest image is the latest

// request is the policy that a workload requests for a container.
type request struct {
	automated bool
	spec      imagev1.ImagePolicySpec
}

// requestsOf returns the requests of the annotations of a workload by container, and the errors in annotations.
func requestsOf(w Workload) (map[string]request, []error) {
	requests, containers := map[string]request{}, w.containers()
	var errs []error
	auto := w.Annotations[automated] == "true" && w.Annotations[locked] != "true"
	if auto {
		for _, c := range containers {
			requests[c] = request{automated: true, spec: newest("", notLatest)}
		}
	}
	for _, prefix := range []string{tagPrefix, filterGroup} { // the newer form takes precedence
		for _, key := range w.annotationKeys() {
			container, ok := strings.CutPrefix(key, prefix)
			if !ok {
				continue
			}
			spec, err := specOf(w.Annotations[key])
			switch {
			case !slices.Contains(containers, container):
				errs = append(errs, fmt.Errorf("annotation %s: the workload has no such container", key))
			case err != nil:
				delete(requests, container) // no policy is better than one without a filter
				errs = append(errs, fmt.Errorf("annotation %s: %w", key, err))
			default:
				requests[container] = request{automated: auto, spec: spec}
			}
		}
	}
	return requests, errs
}

// specOf returns the spec of a policy for a filter.
func specOf(filter string) (imagev1.ImagePolicySpec, error) {
	filter = strings.TrimSpace(filter)
	var spec imagev1.ImagePolicySpec
	if versions, ok := strings.CutPrefix(filter, semverKind); ok {
		spec.Policy.SemVer = &imagev1.SemVerPolicy{Range: versions}
	} else if pattern, ok := cutAny(filter, regexKinds); ok {
		spec = newest(pattern, "")
	} else {
		pattern := strings.TrimPrefix(filter, globKind)
		spec = newest("^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$", "")
	}
	_, err := policy.New(spec)
	return spec, err
}

// newest returns a spec that chooses the newest image. Pattern and CEL filter may be empty.
func newest(pattern, filter string) imagev1.ImagePolicySpec {
	spec := imagev1.ImagePolicySpec{Policy: imagev1.ImagePolicyChoice{
		CreatedAt: &imagev1.CreatedAtPolicy{Order: imagev1.OrderNewest}}}
	if pattern != "" {
		spec.FilterTags = &imagev1.TagFilter{Pattern: pattern}
	}
	if filter != "" {
		spec.Policy.CEL = &imagev1.CELPolicy{Filter: filter}
	}
	return spec
}

func cutAny(s string, prefixes []string) (string, bool) {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(s, p); ok {
			return rest, true
		}
	}
	return s, false
}
