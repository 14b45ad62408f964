package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
)

// Annotations of workloads, as they have been known since the first days of GitOps.
const (
	automated   = "fluxcd.io/automated" // "true": the images are updated
	locked      = "fluxcd.io/locked"    // "true": they are not, whatever automated says
	filterGroup = "filter.fluxcd.io/"   // with the name of a container: which tags count
	tagPrefix   = "fluxcd.io/tag."      // the older name of it
	notLatest   = `tag != "latest"`     // a tag that moves tells nobody what runs
	semverKind  = "semver:"             // a range of versions, of which the highest is the latest
	globKind    = "glob:"               // a pattern with *; the image that was made last is the latest
)

var regexKinds = []string{"regex:", "regexp:"} // as glob

// wish is what a workload asks for a container.
type wish struct {
	automated bool
	spec      imagev1.ImagePolicySpec
}

// wishesOf reads the annotations of a workload: wishes by container, and what is wrong with them.
func wishesOf(w Workload) (map[string]wish, []error) {
	wishes, containers := map[string]wish{}, w.containers()
	var errs []error
	auto := w.Annotations[automated] == "true" && w.Annotations[locked] != "true"
	if auto {
		for _, c := range containers {
			wishes[c] = wish{automated: true, spec: newest("", notLatest)}
		}
	}
	for _, prefix := range []string{tagPrefix, filterGroup} { // the newer name counts more
		for _, key := range w.sorted() {
			container, ok := strings.CutPrefix(key, prefix)
			if !ok {
				continue
			}
			spec, err := specOf(w.Annotations[key])
			switch {
			case !slices.Contains(containers, container):
				errs = append(errs, fmt.Errorf("annotation %s: there is no container of that name", key))
			case err != nil:
				delete(wishes, container) // rather no policy than one that lets everything pass
				errs = append(errs, fmt.Errorf("annotation %s: %w", key, err))
			default:
				wishes[container] = wish{auto, spec}
			}
		}
	}
	return wishes, errs
}

// specOf makes a policy of a filter.
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

// newest takes the image that was made last, of those whose tag matches.
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
