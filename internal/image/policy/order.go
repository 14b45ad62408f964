package policy

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/limits/version"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// bySemVer orders versions within a range, highest first. Versions that differ only in build metadata are in
// reverse byte order.
func bySemVer(versions string) (order, error) {
	within, err := semver.NewConstraint(versions)
	if err != nil {
		return nil, invalid("spec.policy.semver.range '%.100s' is not a version range", versions).Because(err).
			WithHint("Write it as >=1.0.0 <2.0.0, or as >=1.0.0-0 to include prereleases")
	}
	key := func(_ context.Context, c candidate) (*semver.Version, bool) {
		v, err := version.Parse(c.text)
		return v, err == nil && within.Check(v)
	}
	return func(ctx context.Context, candidates []candidate) ([]candidate, error) {
		return rank(ctx, candidates, key, compareVersions)
	}, nil
}

func compareVersions(a, b *semver.Version) int {
	return cmp.Or(a.Compare(b), compareText(a.Original(), b.Original()))
}

func byText(order string) order {
	return directed(order, func(_ context.Context, c candidate) (string, bool) { return c.text, true }, compareText)
}

// byNumber orders by numbers, and drops other texts. It fails if none is a number.
func byNumber(direction string) order {
	byValue := directed(direction, func(_ context.Context, c candidate) (number, bool) { return parseNumber(c.text) },
		number.compare)
	return func(ctx context.Context, candidates []candidate) ([]candidate, error) {
		ordered, err := byValue(ctx, candidates)
		if err == nil && len(ordered) == 0 && len(candidates) > 0 {
			err = fault.New(imagev1.InvalidPolicyReason, "no tag is a number, for example '%.100s' is none",
				candidates[0].text).
				WithHint("Select tags with numbers by spec.filterTags.pattern, and extract the number by " +
					"spec.filterTags.extract")
		}
		return ordered, err
	}
}

// byCreation orders images by creation time, newest or oldest first. Images without a creation time are dropped.
func byCreation(order string) order {
	if order == imagev1.OrderOldest {
		order = imagev1.OrderDescending
	}
	return directed(order, func(_ context.Context, c candidate) (time.Time, bool) {
		return c.Created, !c.Created.IsZero()
	}, time.Time.Compare)
}

// directed orders by a key, greatest first, or least first if the direction is desc.
func directed[K any](direction string, key func(context.Context, candidate) (K, bool), compare func(a, b K) int) order {
	directedCompare := compare
	if direction == imagev1.OrderDescending {
		directedCompare = func(a, b K) int { return compare(b, a) }
	}
	return func(ctx context.Context, candidates []candidate) ([]candidate, error) {
		return rank(ctx, candidates, key, directedCompare)
	}
}

func compareText(a, b string) int { return strings.Compare(a, b) }

// number is a decimal number of any length, as build times and run numbers may exceed the precision of a float.
type number struct {
	negative       bool
	whole, decimal string // without insignificant zeros
}

// parseNumber parses a decimal number, such as 20261121, -1 or 1.25. It rejects exponents, as a text such as
// 1e5 is usually part of a hash.
func parseNumber(s string) (number, bool) {
	var n number
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		n.negative, s = true, rest
	} else {
		s = strings.TrimPrefix(s, "+")
	}
	var point bool
	n.whole, n.decimal, point = strings.Cut(s, ".")
	if n.whole == "" || point && n.decimal == "" || !isDigits(n.whole) || !isDigits(n.decimal) {
		return number{}, false
	}
	n.whole, n.decimal = strings.TrimLeft(n.whole, "0"), strings.TrimRight(n.decimal, "0")
	if n.whole == "" && n.decimal == "" {
		n.negative = false
	}
	return n, true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func (n number) compare(other number) int {
	if n.negative != other.negative {
		if n.negative {
			return -1
		}
		return 1
	}
	order := cmp.Or(cmp.Compare(len(n.whole), len(other.whole)), strings.Compare(n.whole, other.whole),
		strings.Compare(n.decimal, other.decimal))
	if n.negative {
		return -order
	}
	return order
}
