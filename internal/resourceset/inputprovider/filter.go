package inputprovider

import (
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/limits/version"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// maxRange is the maximum length of a range of versions, in bytes.
const maxRange = 512

// filter is spec.filter.
type filter struct {
	include, exclude *regexp.Regexp // nil if not set
	labels           []string
	versions         *semver.Constraints // nil if not set
}

// newFilter compiles a filter. As in Flux Operator, the last of the expressions for branches, tags and environments
// that is set counts for all types.
func newFilter(spec *controlplanev1.InputFilter) (*filter, error) {
	f := &filter{}
	if spec == nil {
		return f, nil
	}
	f.labels = spec.Labels
	for _, e := range []struct {
		field, expression string
		compiled          **regexp.Regexp
	}{
		{"includeBranch", spec.IncludeBranch, &f.include}, {"includeTag", spec.IncludeTag, &f.include},
		{"includeEnvironment", spec.IncludeEnvironment, &f.include},
		{"excludeBranch", spec.ExcludeBranch, &f.exclude}, {"excludeTag", spec.ExcludeTag, &f.exclude},
		{"excludeEnvironment", spec.ExcludeEnvironment, &f.exclude},
	} {
		if e.expression == "" {
			continue
		}
		var err error
		if *e.compiled, err = regex.Compile(e.expression); err != nil {
			return nil, invalidSpec("spec.filter.%s '%s' is not a regular expression", e.field,
				excerpt.Chars(e.expression, 100)).Because(err)
		}
	}
	if spec.Semver == "" {
		return f, nil
	}
	var err error
	if len(spec.Semver) > maxRange {
		return nil, invalidSpec("spec.filter.semver is longer than %d bytes", maxRange)
	}
	if f.versions, err = semver.NewConstraint(spec.Semver); err != nil {
		return nil, invalidSpec("spec.filter.semver '%s' is not a range of versions", excerpt.Chars(spec.Semver, 100)).
			Because(err)
	}
	return f, nil
}

// selects reports whether a name matches the expressions.
func (f *filter) selects(name string) bool {
	return (f.include == nil || f.include.MatchString(name)) && (f.exclude == nil || !f.exclude.MatchString(name))
}

// hasLabels reports whether labels include all that are required.
func (f *filter) hasLabels(labels []string) bool {
	return !slices.ContainsFunc(f.labels, func(l string) bool { return !slices.Contains(labels, l) })
}

// order returns the selected tags: by version if there is a range, the highest first, and else in descending order.
func (f *filter) order(tags []string) []string {
	var selected []string
	versions := map[string]*semver.Version{}
	for _, tag := range tags {
		if !f.selects(tag) {
			continue
		}
		if f.versions != nil {
			v, err := version.Parse(tag)
			if err != nil || !f.versions.Check(v) {
				continue
			}
			versions[tag] = v
		}
		selected = append(selected, tag)
	}
	slices.SortFunc(selected, func(a, b string) int {
		if f.versions != nil {
			if order := version.Compare(versions[b], versions[a]); order != 0 {
				return order
			}
		}
		return strings.Compare(b, a)
	})
	return slices.Compact(selected)
}

// skips reports whether the labels of a change request keep its input set as it is.
func (p *provider) skips(labels []string) bool {
	if p.obj.Spec.Skip == nil {
		return false
	}
	return slices.ContainsFunc(p.obj.Spec.Skip.Labels, func(l string) bool {
		name, negated := strings.CutPrefix(l, "!")
		return slices.Contains(labels, name) != negated
	})
}

// ignored names, for the status, fields that have no effect on the type.
func (p *provider) ignored() string {
	t, spec := p.obj.Spec.Type, p.obj.Spec
	isRequest := strings.HasSuffix(t, "Request")
	var fields []string
	if f := spec.Filter; f != nil {
		switch {
		case t == controlplanev1.InputStatic || t == controlplanev1.InputExternalService ||
			t == controlplanev1.InputExternalArtifact:
			fields = append(fields, "spec.filter")
		default:
			if len(f.Labels) > 0 && !isRequest {
				fields = append(fields, "spec.filter.labels")
			}
			if f.Semver != "" && !strings.HasSuffix(t, "Tag") {
				fields = append(fields, "spec.filter.semver")
			}
		}
	}
	if spec.Skip != nil && !isRequest {
		fields = append(fields, "spec.skip")
	}
	if len(fields) == 0 {
		return ""
	}
	return "; no effect on the type " + t + ": " + strings.Join(fields, ", ")
}
