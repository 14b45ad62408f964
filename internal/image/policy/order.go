package policy

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
)

// bySemVer takes the highest version within a range. Of versions that differ by build metadata alone, the
// last one in the order of bytes comes first.
func bySemVer(versions string) (order, error) {
	within, err := semver.NewConstraint(versions)
	if err != nil {
		return nil, invalid("spec.policy.semver.range '%.100s' is no range of versions", versions).Because(err).
			WithHint("Write it as >=1.0.0 <2.0.0, or >=1.0.0-0 for prereleases too")
	}
	key := func(_ context.Context, c candidate) (*semver.Version, bool) {
		v, err := parseVersion(c.text)
		return v, err == nil && within.Check(v)
	}
	return func(ctx context.Context, candidates []candidate) ([]candidate, error) {
		return rank(ctx, candidates, key, compareVersions)
	}, nil
}

// parseVersion reads a version, which may be short as 1.2 is. Most are whole, and most of what is none does
// not begin as one: only the rest pays for a regular expression.
func parseVersion(s string) (*semver.Version, error) {
	number := strings.TrimPrefix(s, "v")
	if number == "" || !digits(number[:1]) {
		return nil, semver.ErrInvalidSemVer
	}
	if v, err := semver.StrictNewVersion(number); err == nil {
		return v, nil
	}
	return semver.NewVersion(s)
}

func compareVersions(a, b *semver.Version) int {
	return cmp.Or(a.Compare(b), compareText(a.Original(), b.Original()))
}

func byText(order string) order {
	return directed(order, func(_ context.Context, c candidate) (string, bool) { return c.text, true }, compareText)
}

func byNumber(order string) order {
	return directed(order, func(_ context.Context, c candidate) (number, bool) { return parseNumber(c.text) },
		number.compare)
}

// byCreation takes the image that was made last, or first. One that does not say when has no place.
func byCreation(order string) order {
	if order == imagev1.OrderOldest {
		order = imagev1.OrderDescending
	}
	return directed(order, func(_ context.Context, c candidate) (time.Time, bool) {
		return c.Created,
			!c.Created.IsZero()
	}, time.Time.Compare)
}

// directed takes the greatest, or with desc the least.
func directed[K any](direction string, key func(context.Context, candidate) (K, bool), compare func(a, b K) int) order {
	ahead := compare
	if direction == imagev1.OrderDescending {
		ahead = func(a, b K) int { return compare(b, a) }
	}
	return func(ctx context.Context, candidates []candidate) ([]candidate, error) {
		return rank(ctx, candidates, key, ahead)
	}
}

func compareText(a, b string) int { return strings.Compare(a, b) }

// number is a decimal number of any length: build times and run numbers do not fit a float.
type number struct {
	negative       bool
	whole, decimal string // without zeros that mean nothing
}

// parseNumber reads a decimal number, such as 20261121, -1 or 1.25. What else stands for numbers elsewhere,
// as 1e5, is part of a hash more often than not.
func parseNumber(s string) (number, bool) {
	var n number
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		n.negative, s = true, rest
	} else {
		s = strings.TrimPrefix(s, "+")
	}
	var point bool
	n.whole, n.decimal, point = strings.Cut(s, ".")
	if n.whole == "" || point && n.decimal == "" || !digits(n.whole) || !digits(n.decimal) {
		return number{}, false
	}
	n.whole, n.decimal = strings.TrimLeft(n.whole, "0"), strings.TrimRight(n.decimal, "0")
	if n.whole == "" && n.decimal == "" {
		n.negative = false
	}
	return n, true
}

func digits(s string) bool {
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
