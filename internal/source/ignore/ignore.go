// Package ignore says which files of a source are left out of its artifact, in .gitignore syntax.
// It reads no files: whoever walks the source hands the .sourceignore files in.
//
// There is one liberty that git does not give, and that these files are written with: a later pattern may
// bring something back from a directory that is left out. "/*" and "!/deploy/prod" keep deploy/prod.
package ignore

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// File is the name of the files in a source that hold rules for their directory and below.
const File = ".sourceignore"

// vcs never gets in, whatever the rules say.
const vcs = ".git"

// defaults are the documented exclusions: they hold unless spec.ignore replaces them.
const defaults = `.git/
.gitignore
.gitmodules
.gitattributes
*.jpg
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

// Rules decide about what is in one directory of a source. They are values: no method changes them.
type Rules struct {
	id     string
	path   []string  // of the directory
	groups [3][]rule // the weakest first
	ruling ruling    // about the directory itself
}

// The groups of rules, the weakest first.
const (
	fromDefaults = iota
	fromFiles    // .sourceignore, the deeper the stronger
	fromSpec
)

// rule is a pattern and where in the source it stands.
type rule struct {
	pattern
	depth int // of the directory that it is relative to
}

// ruling is what the rules say, and how strongly.
type ruling struct {
	group, index int
	out          bool
}

// New returns the rules of a source's top directory. Spec is its spec.ignore, nil when unset.
func New(spec *string) Rules {
	if spec == nil {
		return Rules{}.add(fromDefaults, defaults)
	}
	return Rules{}.add(fromSpec, *spec)
}

// With returns the rules once the directory's .sourceignore file is known.
func (r Rules) With(content string) Rules { return r.add(fromFiles, content) }

func (r Rules) add(group int, text string) Rules {
	rules := slices.Clip(r.groups[group])
	for line := range strings.Lines(text) {
		if p, ok := parse(line); ok {
			rules = append(rules, rule{p, len(r.path)})
		}
	}
	r.groups[group] = rules
	sum := sha256.Sum256([]byte(strings.Join([]string{r.id, strings.Join(r.path, "/"), string(rune('0' + group)), text},
		"\x00")))
	r.id = hex.EncodeToString(sum[:])
	return r
}

// ID is the same for rules that say the same about a directory.
func (r Rules) ID() string { return r.id }

// Enter returns the rules of a directory in this one.
func (r Rules) Enter(name string) Rules {
	r.ruling = r.rule(name, true)
	r.path = append(slices.Clip(r.path), name)
	return r
}

// Excludes tells whether a file in the directory is left out.
func (r Rules) Excludes(name string) bool { return name == vcs || r.rule(name, false).out }

// Prunes tells whether a directory in this one is left out with all that is in it, so that it need not be entered.
func (r Rules) Prunes(name string) bool {
	if name == vcs {
		return true
	}
	ruling := r.rule(name, true)
	if !ruling.out {
		return false
	}
	for group := ruling.group; group < len(r.groups); group++ {
		for i, p := range r.groups[group] {
			if p.include && (group > ruling.group || i > ruling.index) {
				return false // something below may be brought back
			}
		}
	}
	return true
}

// rule finds the strongest rule about what is called name in the directory; without one the directory's own
// ruling holds. What is in a directory that is left out comes back only by a rule that is stronger than the
// one that leaves it out.
func (r Rules) rule(name string, isDir bool) ruling {
	for group := len(r.groups) - 1; group >= 0; group-- {
		for i := len(r.groups[group]) - 1; i >= 0; i-- {
			if r.ruling.out && (group < r.ruling.group || group == r.ruling.group && i <= r.ruling.index) {
				return r.ruling
			}
			if p := &r.groups[group][i]; p.matches(r.path[p.depth:], name, isDir) {
				return ruling{group, i, !p.include}
			}
		}
	}
	return r.ruling
}
