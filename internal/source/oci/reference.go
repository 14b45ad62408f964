package oci

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/limits/version"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Scheme is the prefix of repository URLs.
const Scheme = "oci://"

// ChartLayer is the media type of the layer that has a Helm chart.
const ChartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

const (
	defaultTag          = "latest"
	invalidSemverReason = "InvalidSemver"
)

// repositoryPath is the syntax of repository names in the OCI distribution specification.
var repositoryPath = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// tagName is the syntax of tags in the OCI distribution specification.
var tagName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// IsTag reports whether a text is a tag as defined by the OCI distribution specification. Others cannot be pulled.
func IsTag(text string) bool { return tagName.MatchString(text) }

// valid removes the texts that are not tags from a list, which may be of any length in responses.
func valid(tags []string) []string {
	return slices.DeleteFunc(tags, func(tag string) bool { return !IsTag(tag) })
}

// maxPath bounds the name of a repository, in bytes.
const maxPath = 255

// Reference selects an artifact of a repository. Digest takes precedence over SemVer, and SemVer over Tag. The zero
// value is the tag latest.
type Reference struct {
	Digest       string // sha256:<hex>
	SemVer       string // range of versions; selects the highest matching tag
	SemverFilter string // regular expression that tags of a range must match
	Tag          string
	// Layer is the media type of the layer that is read; empty: any. With [ChartLayer], tags are versions of charts.
	Layer string
}

// Revision is a resolved reference.
type Revision struct {
	Tag    string // empty if the reference was a digest
	Digest v1.Hash
}

// String returns the revision in the documented form: <tag>@sha256:<hex>, or sha256:<hex> without a tag.
func (r Revision) String() string {
	if r.Tag == "" {
		return r.Digest.String()
	}
	return r.Tag + "@" + r.Digest.String()
}

// ParseURL parses the URL of a repository: oci://host[:port]/path, without a tag or digest. The error is a fault.
func ParseURL(raw string, insecure bool) (name.Repository, error) {
	bad := func(what string) (name.Repository, error) {
		return name.Repository{}, fault.New(meta.URLInvalidReason, "the URL %s", what).
			WithHint("Write it as oci://host/path, without a tag").Final()
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return bad("cannot be parsed")
	case u.Scheme+"://" != Scheme || u.Host == "" || !utf8.ValidString(u.Host) || strings.Contains(u.Host, ".."):
		return bad("'" + fault.RedactURL(raw) + "' is not the URL of an OCI registry")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return bad("'" + fault.RedactURL(raw) + "' contains more than a host and a path")
	}
	options := []name.Option{name.StrictValidation}
	if insecure {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(u.Host, options...)
	if _, portErr := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16); err != nil || portErr != nil {
		return bad("'" + fault.RedactURL(raw) + "' is not the URL of an OCI registry")
	}
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	if !repositoryPath.MatchString(path) || len(path) > maxPath {
		return bad("'" + fault.RedactURL(raw) + "' does not contain a valid repository name")
	}
	return registry.Repo(path), nil
}

// digest returns the digest of the reference, and whether it has one.
func (r Reference) digest() (v1.Hash, bool, error) {
	if r.Digest == "" {
		return v1.Hash{}, false, nil
	}
	h, err := v1.NewHash(r.Digest)
	if err != nil {
		return h, true, fault.New(meta.URLInvalidReason, "the digest '%.100s' is invalid", r.Digest).
			WithHint("Write it as sha256:<64 hexadecimal digits> in spec.ref.digest").Final()
	}
	return h, true, nil
}

// highest returns the tag with the highest version in the range. Tags that are not versions, or do not match the
// regular expression filter, are ignored. Prereleases are ignored unless the range contains one.
func (r Reference) highest(tags []string) (string, error) {
	constraint, err := semver.NewConstraint(r.SemVer)
	if err != nil {
		return "", fault.New(invalidSemverReason, "'%.100s' is not a range of versions", r.SemVer).Because(err).
			WithHint("Correct spec.ref.semver; an example is >=1.0.0 <2.0.0").Final()
	}
	matches, err := regex.Compile(r.SemverFilter)
	if err != nil {
		return "", fault.New(invalidSemverReason, "'%.100s' is not a valid regular expression", r.SemverFilter).
			Because(err).
			WithHint("Correct spec.ref.semverFilter; an example is .*-prod$").Final()
	}
	var best *semver.Version
	var selected string
	for _, tag := range tags {
		v, err := version.Parse(r.versionIn(tag))
		if err != nil || !matches.MatchString(tag) || !constraint.Check(v) {
			continue
		}
		if best == nil || cmp.Or(version.Compare(v, best), strings.Compare(tag, selected)) > 0 {
			best, selected = v, tag
		}
	}
	if best == nil {
		return "", fault.New(sourcev1.OCIPullFailedReason, "no tag matches semver '%.100s' (%s)", r.SemVer,
			version.Checked(len(tags))).
			WithHint("Push a tag of three numbers in this range, or correct spec.ref.semver and spec.ref.semverFilter")
	}
	return selected, nil
}

// versionIn returns the version that a tag stands for. Helm pushes a chart with an underscore in its tag in place of
// the plus sign, which tags cannot contain.
func (r Reference) versionIn(tag string) string {
	if r.Layer == ChartLayer {
		return strings.ReplaceAll(tag, "_", "+")
	}
	return tag
}
