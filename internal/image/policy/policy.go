// Package policy orders the tags of a repository of images, best first, as an ImagePolicy says. A policy is a
// view: it changes nothing, and needs neither a cluster nor a registry.
package policy

import (
	"context"
	"iter"
	"regexp"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	maxPattern  = 4096 // bytes of a regular expression, which takes time linear in the length of a tag (RE2)
	maxExtract  = 1024 // bytes of a template
	maxExpanded = 4096 // bytes that a template makes of a tag

	chunk    = 4096             // tags that are looked at by one goroutine
	maxOrder = 30 * time.Second // that ordering takes
)

// Tag is a tag with what is known of what it points to. All but the name is empty as long as nobody needed it.
type Tag struct {
	Name      string
	Digest    string            // sha256:<hex>
	Created   time.Time         // as the image says
	Labels    map[string]string // of the image
	Platforms []string          // such as linux/arm64/v8

	Unreadable bool // there is nothing to know: it is gone, is no image, or is not what the registry says
}

// Known tells whether it was looked at what the tag points to.
func (t Tag) Known() bool { return t.Digest != "" || t.Unreadable }

// Policy is a compiled policy. It is safe for concurrent use.
type Policy struct {
	matches *regexp.Regexp // nil: all tags count
	extract string         // empty: the whole tag is ordered
	filter  *condition     // nil: as matches says
	order   order
	details bool
}

// order sorts candidates, best first, and leaves out those that have no place in it.
type order func(ctx context.Context, candidates []candidate) ([]candidate, error)

// candidate is a tag, and the text of it that is ordered.
type candidate struct {
	*Tag
	text string
}

// New compiles the filters and the order of an ImagePolicy. The error is a terminal fault that names the field.
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
		return nil // as documented, there is nothing to extract without a pattern
	}
	if len(filter.Pattern) > maxPattern || len(filter.Extract) > maxExtract {
		return invalid("spec.filterTags is longer than %d bytes of pattern and %d of extract", maxPattern, maxExtract)
	}
	var err error
	if p.matches, err = regexp.Compile(filter.Pattern); err != nil {
		return invalid("spec.filterTags.pattern is no regular expression").Because(err)
	}
	p.extract = filter.Extract
	return nil
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
		return invalid("spec.policy names no order of tags").
			WithHint("Set one of semver, alphabetical, numerical, createdAt and cel.order")
	}
	return err
}

// NeedsDetails tells whether the policy asks for more than the names of tags.
func (p *Policy) NeedsDetails() bool { return p.details }

// Counts tells whether a tag of that name may count, as far as the name says.
func (p *Policy) Counts(name string) bool { return p.matches == nil || p.matches.MatchString(name) }

// Order returns the tags that count, best first. Tags that have no place in the order, such as those that are
// no versions, are left out; there may be none left. The error is a fault.
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

// candidates returns the tags that pass the filters, with the text that is ordered.
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

// text returns the part of a tag that is ordered, and whether the tag counts.
func (p *Policy) text(tag string) (string, bool) {
	if p.matches == nil {
		return tag, true
	}
	if p.extract == "" {
		return tag, p.matches.MatchString(tag)
	}
	groups := p.matches.FindStringSubmatchIndex(tag)
	if groups == nil {
		return "", false
	}
	text := p.matches.ExpandString(nil, p.extract, tag, groups)
	return string(text), len(text) <= maxExpanded
}

// each calls do for every value, some at once, and returns what it gave in the order of the values; what is
// not ok is left out.
func each[A, B any](ctx context.Context, values []A, do func(context.Context, A) (B, bool)) ([]B, error) {
	parts := slices.Collect(slices.Chunk(values, chunk))
	found := make([][]B, len(parts))
	group, ctx := errgroup.WithContext(ctx)
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

// rank sorts candidates by a key, the greatest first; those without a key are left out. Equal ones are in the
// reverse order of their names.
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
