// Package version reads the versions in tags as Flux does. A tag with fewer than two dots, such as 20240215 or 1.2, is
// a date or a moving tag, and no range selects it.
package version

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Parse returns the version in a text. A leading v and leading zeros of the three numbers are allowed, as in
// v2025.02.03-rc.1. The Original of the result may lack the v.
func Parse(text string) (*semver.Version, error) {
	number := strings.TrimPrefix(text, "v")
	if strings.Count(number, ".") < 2 || number[0] < '0' || number[0] > '9' {
		return nil, semver.ErrInvalidSemVer
	}
	// This parser is faster than the regular expression of the other one.
	if v, err := semver.StrictNewVersion(number); err == nil {
		return v, nil
	}
	return semver.NewVersion(text)
}

// Compare compares versions. Versions that differ in their build metadata only, which semantic versioning does not
// order, are compared like prereleases: part by part, and numbers numerically. A version without build metadata
// precedes others.
func Compare(a, b *semver.Version) int {
	build := func(v *semver.Version) *semver.Version {
		return semver.New(0, 0, 0, strings.TrimSuffix("0."+v.Metadata(), "."), "")
	}
	return cmp.Or(a.Compare(b), build(a).Compare(build(b)))
}

// Checked says in a message how many tags were compared with a range.
func Checked(tags int) string {
	if tags == 1 {
		return "1 tag checked"
	}
	return fmt.Sprintf("%d tags checked", tags)
}
