// Package ignore decides which files of a source are excluded from its artifact, by rules in .gitignore
// syntax. It reads no files: the caller passes the content of .sourceignore files.
//
// It differs from git in one point: a later pattern can include files from an excluded directory. For example, "/*" and
// "!/deploy/prod" include deploy/prod.
package ignore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
)

// File is the name of files with rules for their directory and the directories below.
const File = ".sourceignore"

// Each file of a source is compared with each rule of its directory until one matches.
const (
	MaxFile  = 1 << 20 // bytes of a file with rules
	MaxRules = 5_000   // of a directory, with those of the directories above it and of spec.ignore
)

// LimitHint is a hint for rules that exceed a limit.
const LimitHint = "Use fewer rules: one for a directory excludes everything in it"

// LimitError is the error of rules that exceed a limit.
type LimitError struct {
	of    string // where the rules are from
	limit string
}

func (e *LimitError) Error() string { return e.of + " exceeds the limit of " + e.limit }

// CheckSize returns a [LimitError] for a file of rules that is too large to be read.
func CheckSize(name string, bytes int64) error {
	if bytes <= MaxFile {
		return nil
	}
	return &LimitError{fmt.Sprintf("%.200q", name), fmt.Sprintf("%d bytes", MaxFile)}
}

// vcs is always excluded.
const vcs = ".git"

// repository is the files of git itself, which are excluded unless a rule includes them.
const repository = `.git/
.gitignore
.gitmodules
.gitattributes
`

// defaults is the documented exclusions. They apply if neither spec.ignore nor a .sourceignore has a rule; a file in a
// subdirectory ends them there.
const defaults = `*.jpg
*.jpeg
*.gif
*.png
*.wmv
*.flv
*.tar.gz
*.zip
.github/
.circleci/
.travis.yml
.gitlab-ci.yml
appveyor.yml
.drone.yml
cloudbuild.yaml
codeship-services.yml
codeship-steps.yml
**/.goreleaser.yml
**/.sops.yaml
**/.flux.yaml
`

// Rules is the rules for the files in one directory of a source. It is immutable.
type Rules struct {
	id       string
	path     []string  // of the directory
	groups   [4][]rule // by increasing precedence
	decision decision  // for the directory itself
}

// The groups of rules, by increasing precedence.
const (
	fromRepository = iota
	fromDefaults
	fromFiles // .sourceignore files; those of deeper directories take precedence
	fromSpec
)

// rule is a pattern of a directory in the source.
type rule struct {
	pattern
	depth int // of the directory that the pattern is relative to
}

// decision is the rule that applies to a file or directory.
type decision struct {
	group, index int // position of the rule; later positions take precedence
	isExcluded   bool
}

// New returns the rules for the top directory of a source. Spec is spec.ignore, nil if it is not set. The error is a
// [LimitError].
func New(spec *string) (Rules, error) {
	r, err := Rules{}.add(fromRepository, "", repository)
	if err == nil {
		r, err = r.add(fromDefaults, "", defaults)
	}
	if err == nil && spec != nil {
		r, err = r.add(fromSpec, "spec.ignore", *spec)
	}
	return r, err
}

// Also returns the rules with those in a text added, which replace no defaults. Other rules take precedence. The error
// is a [LimitError].
func (r Rules) Also(text string) (Rules, error) {
	return r.add(fromRepository, "the list of rules to add", text)
}

// With returns the rules with those of the directory's .sourceignore file added. With rules in spec.ignore, only the
// file of the top directory counts. The error is a [LimitError].
func (r Rules) With(content string) (Rules, error) {
	if len(r.groups[fromSpec]) > 0 && len(r.path) > 0 {
		return r, nil
	}
	file := path.Join(path.Join(r.path...), File)
	if err := CheckSize(file, int64(len(content))); err != nil {
		return r, err
	}
	return r.add(fromFiles, fmt.Sprintf("%.200q", file), content)
}

// add returns the rules with those in the text added to a group. Rules of users replace the defaults. The error names
// where the text is from.
func (r Rules) add(group int, of, text string) (Rules, error) {
	rules := slices.Clip(r.groups[group])
	left := MaxRules - len(r.groups[fromFiles]) - len(r.groups[fromSpec])
	for line := range strings.Lines(text) {
		p, ok := parse(line)
		if !ok {
			continue
		}
		if left--; left < 0 {
			return r, &LimitError{of, fmt.Sprintf("%d rules for a directory", MaxRules)}
		}
		rules = append(rules, rule{p, len(r.path)})
	}
	if group > fromDefaults && len(rules) > 0 {
		r.groups[fromDefaults] = nil
	}
	r.groups[group] = rules
	sum := sha256.Sum256([]byte(strings.Join([]string{r.id, strings.Join(r.path, "/"), string(rune('0' + group)), text},
		"\x00")))
	r.id = hex.EncodeToString(sum[:])
	return r, nil
}

// ID identifies the rules: the same ID means the same decisions.
func (r Rules) ID() string { return r.id }

// Enter returns the rules for a subdirectory.
func (r Rules) Enter(name string) Rules {
	r.decision = r.decide(name, true)
	r.path = append(slices.Clip(r.path), name)
	return r
}

// Excludes reports whether a file in the directory is excluded.
func (r Rules) Excludes(name string) bool { return name == vcs || r.decide(name, false).isExcluded }

// ExcludesDir reports whether a subdirectory is excluded. Rules may still include something in it, see [Rules.Prunes].
func (r Rules) ExcludesDir(name string) bool { return name == vcs || r.decide(name, true).isExcluded }

// Prunes reports whether a subdirectory is excluded with everything in it, so that it need not be read.
func (r Rules) Prunes(name string) bool {
	if name == vcs {
		return true
	}
	d := r.decide(name, true)
	if !d.isExcluded {
		return false
	}
	for group := d.group; group < len(r.groups); group++ {
		for i, p := range r.groups[group] {
			if p.include && (group > d.group || i > d.index) {
				return false // the pattern may include something in the directory
			}
		}
	}
	return true
}

// decide returns the matching rule with the highest precedence, or else the decision for the directory. In an excluded
// directory, only rules with a higher precedence than the one that excludes it apply.
func (r Rules) decide(name string, isDir bool) decision {
	for group := len(r.groups) - 1; group >= 0; group-- {
		for i := len(r.groups[group]) - 1; i >= 0; i-- {
			d := r.decision
			if d.isExcluded && (group < d.group || group == d.group && i <= d.index) {
				return d
			}
			if p := &r.groups[group][i]; p.matches(r.path[p.depth:], name, isDir) {
				return decision{group: group, index: i, isExcluded: !p.include}
			}
		}
	}
	return r.decision
}
