package git

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/sluice-gitops/sluice/internal/limits/version"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// DefaultBranch is the branch of an empty reference.
const DefaultBranch = "master"

const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
	maxNamed     = 5 // alternatives in an error
)

// Reference selects a revision. Precedence: Commit, Name, Tag, SemVer, Branch.
type Reference struct{ Branch, Tag, SemVer, Name, Commit string }

// LeadsToTag reports whether the reference selects a tag.
func (r Reference) LeadsToTag() bool {
	switch {
	case r.Commit != "":
		return false
	case r.Name != "":
		return strings.HasPrefix(r.Name, tagPrefix)
	}
	return r.SemVer != "" || r.Tag != ""
}

// Revision is a commit and its reference.
type Revision struct {
	Ref    string // short name of a branch or tag, full name of other references, empty for a commit
	Commit string
	Tag    string // hash of the annotated tag, if there is one
}

// String returns the revision as main@sha1:<commit>, or as sha1:<commit> without a reference.
func (r Revision) String() string {
	if r.Ref == "" {
		return "sha1:" + r.Commit
	}
	return r.Ref + "@sha1:" + r.Commit
}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// ParseRevision parses the form of [Revision.String], and main/<commit> of v1beta1 and v1beta2.
func ParseRevision(s string) (Revision, error) {
	r := Revision{}
	if rest, ok := strings.CutPrefix(s, "sha1:"); ok {
		r.Commit = rest
	} else if i := strings.LastIndex(s, "@sha1:"); i > 0 {
		r.Ref, r.Commit = s[:i], s[i+len("@sha1:"):]
	} else if i := strings.LastIndex(s, "/"); i > 0 {
		r.Ref, r.Commit = s[:i], s[i+1:]
	} else {
		r.Commit = s
	}
	if !commitPattern.MatchString(r.Commit) {
		return Revision{}, fmt.Errorf("revision %q contains no commit", s)
	}
	return r, nil
}

// target is a resolved reference.
type target struct {
	Revision
	// want is the hash to request. For an annotated tag it is that of the tag, since servers may not send its commit.
	want plumbing.Hash
	// hidden is set if the remote does not list want.
	hidden bool
}

// pinned returns the revision of a reference to a commit, which needs no listing of references.
func (r Reference) pinned() (Revision, bool, error) {
	if r.Commit == "" {
		return Revision{}, false, nil
	}
	if !commitPattern.MatchString(r.Commit) {
		return Revision{}, false, gitFault("spec.ref.commit '%s' is not a full commit hash", r.Commit).
			WithHint("Use all 40 hexadecimal digits, in lower case").Final()
	}
	return Revision{Ref: r.Branch, Commit: r.Commit}, true, nil
}

// resolve returns the target of the reference in a listing.
func (r Reference) resolve(refs *packp.AdvRefs) (target, error) {
	switch {
	case r.Commit != "":
		return r.resolveCommit(refs)
	case r.Name != "":
		return find(refs, r.Name, r.Name, "reference", "")
	case r.Tag != "":
		return find(refs, tagPrefix+r.Tag, r.Tag, "tag", tagPrefix)
	case r.SemVer != "":
		return r.resolveSemVer(refs)
	case r.Branch != "":
		return find(refs, branchPrefix+r.Branch, r.Branch, "branch", branchPrefix)
	default:
		return find(refs, branchPrefix+DefaultBranch, DefaultBranch, "branch", branchPrefix)
	}
}

// resolveCommit looks for a reference to the pinned commit, since listed hashes can always be requested.
func (r Reference) resolveCommit(refs *packp.AdvRefs) (target, error) {
	revision, _, err := r.pinned()
	commit := plumbing.NewHash(revision.Commit)
	for full, h := range refs.References {
		if h == commit || refs.Peeled[full] == commit {
			return target{Revision: revision, want: h, hidden: false}, err
		}
	}
	return target{Revision: revision, want: commit, hidden: true}, err
}

// find returns the target of a full name.
func find(refs *packp.AdvRefs, full, short, what, prefix string) (target, error) {
	if want, ok := refs.References[full]; ok {
		revision := Revision{Ref: short, Commit: want.String()}
		if commit, ok := refs.Peeled[full]; ok {
			revision.Commit, revision.Tag = commit.String(), want.String()
		}
		return target{Revision: revision, want: want, hidden: false}, nil
	}
	var others []string
	for name := range refs.References {
		if rest, ok := strings.CutPrefix(name, prefix); ok && (prefix != "" || strings.HasPrefix(name, "refs/")) {
			others = append(others, rest)
		}
	}
	return target{}, gitFault("%s '%s' not found on the remote", what, short).
		WithHint("%s", alternatives(short, others, what))
}

// alternatives returns a hint with existing references, the most similar first.
func alternatives(name string, others []string, what string) string {
	if len(others) == 0 {
		return fmt.Sprintf("The remote has no %s", what)
	}
	sort.Slice(others, func(i, j int) bool {
		a, b := commonPrefix(name, others[i]), commonPrefix(name, others[j])
		return a > b || a == b && others[i] < others[j]
	})
	more := ""
	if len(others) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(others)-maxNamed)
		others = others[:maxNamed]
	}
	return fmt.Sprintf("Correct spec.ref; the remote has: %s%s", wire.Printable(strings.Join(others, ", ")), more)
}

// commonPrefix returns the length of the common prefix.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// resolveSemVer returns the tag with the highest version in the range. Of versions that differ in their build metadata
// only, it takes the highest build, and of those the first by name.
func (r Reference) resolveSemVer(refs *packp.AdvRefs) (target, error) {
	constraint, err := semver.NewConstraint(r.SemVer)
	if err != nil {
		return target{}, gitFault("spec.ref.semver '%s' is not a version range", r.SemVer).
			Because(err).WithHint("Use a range such as '>=1.2.0 <2.0.0' or '~1.4'").Final()
	}
	type tag struct {
		name    string
		version *semver.Version
	}
	var tags []tag
	checked := 0
	for full := range refs.References {
		name, ok := strings.CutPrefix(full, tagPrefix)
		if !ok {
			continue
		}
		checked++
		if v, err := version.Parse(name); err == nil {
			tags = append(tags, tag{name, v})
		}
	}
	slices.SortFunc(tags, func(a, b tag) int {
		return cmp.Or(version.Compare(b.version, a.version), strings.Compare(a.name, b.name))
	})
	for _, t := range tags {
		if constraint.Check(t.version) {
			return find(refs, tagPrefix+t.name, t.name, "tag", tagPrefix)
		}
	}
	var highest []string
	for _, t := range tags[:min(len(tags), maxNamed)] {
		highest = append(highest, t.name)
	}
	hint := "The remote has no tag that is a version of three numbers, such as v1.2.0"
	if len(highest) > 0 {
		hint = "The highest versions are: " + wire.Printable(strings.Join(highest, ", "))
	}
	return target{}, gitFault("no tag matches semver '%s' (%s)", r.SemVer, version.Checked(checked)).
		WithHint("%s", hint)
}
