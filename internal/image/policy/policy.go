// Package policy selects and orders the tags of an image repository by the spec of an ImagePolicy, best first. It needs
// neither a cluster nor a registry.
package policy

import (
	"cmp"
	"context"
	"iter"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxExtract  = 1024 // bytes of an extract template
	maxExpanded = 4096 // bytes of an expanded template

	chunk    = 4096             // tags per goroutine
	maxOrder = 30 * time.Second // bounds the time to order tags
)

// Tag is a tag with the details of its image. Only the name is set until a policy requires details.
type Tag struct {
	Name      string
	Digest    string            // sha256:<hex>
	Created   time.Time         // according to the image; zero: unknown
	Labels    map[string]string // of the image
	Platforms []string          // such as linux/arm64/v8

	Unreadable bool // the details cannot be read: deleted, not an image, or its digest does not match
}

// Known reports whether the details of the tag were read.
func (t Tag) Known() bool { return t.Digest != "" || t.Unreadable }

// Estimates of the memory of a tag, in bytes.
const (
	tagBytes    = 112 // of a Tag in a list
	stringBytes = 32  // of a string, besides its text
	mapBytes    = 320 // of a map with some entries, besides their strings
	slotBytes   = 48  // of each entry of a map, besides its strings
)

// Memory estimates the memory in bytes that the tag takes, with all it refers to.
func (t Tag) Memory() int64 {
	n := tagBytes + 2*stringBytes + len(t.Name) + len(t.Digest)
	for _, p := range t.Platforms {
		n += stringBytes + len(p)
	}
	if len(t.Labels) > 0 {
		n += mapBytes
	}
	for key, value := range t.Labels {
		n += slotBytes + 2*stringBytes + len(key) + len(value)
	}
	return int64(n)
}

// Policy is a compiled ImagePolicy. It is safe for concurrent use.
type Policy struct {
	pattern *regexp.Regexp // nil: all tags match
	extract string         // template of the text to order by; empty: the tag
	filter  *condition     // nil: no CEL filter
	order   order
	details bool
}

// order sorts candidates, best first, and drops those that it does not apply to.
type order func(ctx context.Context, candidates []candidate) ([]candidate, error)

// candidate is a tag with the text to order by.
type candidate struct {
	*Tag
	text string
}

// New compiles the spec of an ImagePolicy. The error is a terminal fault that names the invalid field.
func New(spec imagev1.ImagePolicySpec) (*Policy, error) {
	p := &Policy{}
	if err := p.setFilterTags(spec.FilterTags); err != nil {
		return nil, err
	}
	if cel := spec.Policy.CEL; cel != nil && cel.Filter != "" {
		var err error
		if p.filter, err = newCondition(cel.Filter); err != nil {
			return nil, err
		}
		p.details = p.filter.details
	}
	return p, p.setOrder(spec.Policy)
}

func (p *Policy) setFilterTags(filter *imagev1.TagFilter) error {
	if filter == nil || filter.Pattern == "" {
		return nil // extract is documented to require a pattern
	}
	if len(filter.Extract) > maxExtract {
		return invalid("spec.filterTags.extract is longer than %d bytes", maxExtract)
	}
	var err error
	if p.pattern, err = regex.Compile(filter.Pattern); err != nil {
		return invalid("spec.filterTags.pattern is not a valid regular expression").Because(err)
	}
	p.extract = filter.Extract
	return checkGroups(p.pattern, filter.Extract)
}

// groupName matches a reference to a group in a template.
var groupName = regexp.MustCompile(`\$(?:\$|\{(\w+)\}|(\w+))`)

// checkGroups refuses a template whose groups the pattern does not have: it would give all tags the same text.
func checkGroups(pattern *regexp.Regexp, template string) error {
	missing := ""
	for _, m := range groupName.FindAllStringSubmatch(template, -1) {
		name := cmp.Or(m[1], m[2])
		number, err := strconv.Atoi(name)
		if name != "" && (err == nil && number <= pattern.NumSubexp() || pattern.SubexpIndex(name) >= 0) {
			return nil
		}
		missing = cmp.Or(missing, name)
	}
	if missing == "" {
		return nil
	}
	return invalid("spec.filterTags.extract names group '%s', which spec.filterTags.pattern does not have", missing).
		WithHint("Name a group of the pattern by (?P<name>…), and write ${name}. Without braces, letters, digits and " +
			"underscores that follow are part of the name")
}

func (p *Policy) setOrder(choice imagev1.ImagePolicyChoice) (err error) {
	switch {
	case choice.SemVer != nil:
		p.order, err = bySemVer(choice.SemVer.Range)
	case choice.Alphabetical != nil:
		p.order = byText(choice.Alphabetical.Order)
	case choice.Numerical != nil:
		p.order = byNumber(choice.Numerical.Order)
	case choice.CreatedAt != nil:
		p.order, p.details = byCreation(choice.CreatedAt.Order), true
	case choice.CEL != nil && choice.CEL.Order != "":
		var value *condition
		if value, err = newValue(choice.CEL.Order); err == nil {
			p.order, p.details = value.order, p.details || value.details
		}
	default:
		return invalid("spec.policy has no order").
			WithHint("Set one of semver, alphabetical, numerical, createdAt and cel.order")
	}
	return err
}

// NeedsDetails reports whether the policy needs more than the names of tags.
func (p *Policy) NeedsDetails() bool { return p.details }

// Matches reports whether the name of a tag matches the pattern of the policy.
func (p *Policy) Matches(name string) bool { return p.pattern == nil || p.pattern.MatchString(name) }

// Order returns the selected tags, best first. Tags that the order does not apply to, such as tags that are
// not versions, are dropped. The result may be empty. The error is a fault.
func (p *Policy) Order(ctx context.Context, tags iter.Seq[*Tag]) ([]Tag, error) {
	ctx, cancel := context.WithTimeout(ctx, maxOrder)
	defer cancel()
	candidates, err := p.candidates(ctx, slices.Collect(tags))
	if err != nil {
		return nil, err
	}
	if candidates, err = p.order(ctx, candidates); err != nil {
		return nil, err
	}
	ordered := make([]Tag, len(candidates))
	for i, c := range candidates {
		ordered[i] = *c.Tag
	}
	return ordered, nil
}

// candidates returns the tags that match the filters, with the text to order by.
func (p *Policy) candidates(ctx context.Context, tags []*Tag) ([]candidate, error) {
	found, err := each(ctx, tags, func(ctx context.Context, t *Tag) (candidate, bool) {
		text, ok := p.text(t.Name)
		if !ok {
			return candidate{}, false
		}
		c := candidate{t, text}
		return c, p.filter == nil || p.filter.holds(ctx, c)
	})
	if err == nil && len(found) == 0 && p.filter != nil {
		err = p.filter.explain()
	}
	return found, err
}

// text returns the text to order a tag by, and whether the tag matches.
func (p *Policy) text(tag string) (string, bool) {
	if p.pattern == nil {
		return tag, true
	}
	if p.extract == "" {
		return tag, p.pattern.MatchString(tag)
	}
	groups := p.pattern.FindStringSubmatchIndex(tag)
	if groups == nil {
		return "", false
	}
	text := p.pattern.ExpandString(nil, p.extract, tag, groups)
	return string(text), len(text) <= maxExpanded
}

// each calls do for every value, in parallel, and returns the results in the order of the values. Results
// that are not ok are dropped.
func each[A, B any](ctx context.Context, values []A, do func(context.Context, A) (B, bool)) ([]B, error) {
	parts := slices.Collect(slices.Chunk(values, chunk))
	found := make([][]B, len(parts))
	group, ctx := guard.GroupWithContext(ctx, "ordering tags")
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, part := range parts {
		group.Go(func() error {
			found[i] = make([]B, 0, len(part))
			for _, a := range part {
				if b, ok := do(ctx, a); ok {
					found[i] = append(found[i], b)
				}
			}
			return ctx.Err()
		})
	}
	err := group.Wait()
	return slices.Concat(found...), err
}

// rank sorts candidates by a key, greatest first, and drops those without a key. Candidates with equal keys
// are in reverse order of their names, and in order of their names if they have the same text: of 1.2.3 and
// 1.2.3-debug with the extracted text 1.2.3, the first is the plain one.
func rank[K any](ctx context.Context, candidates []candidate, key func(context.Context, candidate) (K, bool),
	compare func(a, b K) int) ([]candidate, error) {
	type keyed struct {
		candidate
		key K
	}
	ranked, err := each(ctx, candidates, func(ctx context.Context, c candidate) (keyed, bool) {
		k, ok := key(ctx, c)
		return keyed{c, k}, ok
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ranked, func(a, b keyed) int {
		if order := compare(b.key, a.key); order != 0 {
			return order
		}
		if a.text == b.text {
			return compareText(a.Name, b.Name)
		}
		return -compareText(a.Name, b.Name)
	})
	out := make([]candidate, len(ranked))
	for i, k := range ranked {
		out[i] = k.candidate
	}
	return out, nil
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(imagev1.InvalidPolicyReason, format, args...).Final()
}
