// Package oci fetches artifacts from OCI registries: it resolves a reference to a digest, and reads one layer
// of what the digest names. It knows no controller.
package oci

import (
	"cmp"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Scheme is how the URLs of repositories begin.
const Scheme = "oci://"

const (
	defaultTag          = "latest"
	invalidSemverReason = "InvalidSemver"
)

// repositoryPath is how the distribution specification writes the names of repositories.
var repositoryPath = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

const maxPath = 255

// Reference says which artifact of a repository counts. The first that is set wins: digest, semver, tag; the
// tag latest if none is.
type Reference struct {
	Digest       string // sha256:<hex>
	SemVer       string // range of versions; the highest tag in it counts
	SemverFilter string // regular expression; of a range only the tags that it matches count
	Tag          string
}

// Revision is what a reference resolved to.
type Revision struct {
	Tag    string // empty when a digest was asked for
	Digest v1.Hash
}

// String gives the revision in the documented form: <tag>@sha256:<hex>, or sha256:<hex> of a digest.
func (r Revision) String() string {
	if r.Tag == "" {
		return r.Digest.String()
	}
	return r.Tag + "@" + r.Digest.String()
}

// ParseURL reads the URL of a repository: oci://host[:port]/path, without a tag or digest.
func ParseURL(raw string, insecure bool) (name.Repository, error) {
	bad := func(what string) (name.Repository, error) {
		return name.Repository{}, fault.New(meta.URLInvalidReason, "the URL %s", what).
			WithHint("Write it as oci://host/path, without a tag").Final()
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return bad("cannot be read")
	case u.Scheme+"://" != Scheme || u.Host == "":
		return bad("'" + fault.RedactURL(raw) + "' names no OCI registry")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return bad("'" + fault.RedactURL(raw) + "' holds more than a host and a path")
	}
	options := []name.Option{name.StrictValidation}
	if insecure {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(u.Host, options...)
	if _, portErr := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16); err != nil || portErr != nil {
		return bad("'" + fault.RedactURL(raw) + "' names no OCI registry")
	}
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	if !repositoryPath.MatchString(path) || len(path) > maxPath {
		return bad("'" + fault.RedactURL(raw) + "' names no repository")
	}
	return registry.Repo(path), nil
}

// digest returns the digest that the reference pins, if it does.
func (r Reference) digest() (v1.Hash, bool, error) {
	if r.Digest == "" {
		return v1.Hash{}, false, nil
	}
	h, err := v1.NewHash(r.Digest)
	if err != nil {
		return h, true, fault.New(meta.URLInvalidReason, "the digest '%.100s' cannot be read", r.Digest).
			WithHint("Write it as sha256:<64 hexadecimal digits> in spec.ref.digest").Final()
	}
	return h, true, nil
}

// highest returns the tag of the highest version in a range. Tags that are no versions are passed over, and
// those that filter, a regular expression, does not match. Versions before a release count only if the range
// names one.
func highest(tags []string, versions, filter string) (string, error) {
	constraint, err := semver.NewConstraint(versions)
	if err != nil {
		return "", fault.New(invalidSemverReason, "'%.100s' is no range of versions", versions).Because(err).
			WithHint("Correct spec.ref.semver; >=1.0.0 <2.0.0 is one").Final()
	}
	matches, err := regexp.Compile(filter)
	if err != nil {
		return "", fault.New(invalidSemverReason, "'%.100s' is no regular expression", filter).Because(err).
			WithHint("Correct spec.ref.semverFilter").Final()
	}
	var best *semver.Version
	for _, tag := range tags {
		v, err := semver.NewVersion(tag)
		if err != nil || !matches.MatchString(tag) || !constraint.Check(v) {
			continue
		}
		if best == nil || cmp.Or(v.Compare(best), strings.Compare(v.Original(), best.Original())) > 0 {
			best = v
		}
	}
	if best == nil {
		return "", fault.New(sourcev1.OCIPullFailedReason, "no tag of %d is a version in '%.100s'", len(tags),
			versions).
			WithHint("Push one, or correct spec.ref.semver and spec.ref.semverFilter")
	}
	return best.Original(), nil
}
