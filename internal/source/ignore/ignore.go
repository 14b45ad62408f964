// Package ignore says which files of a source are left out of its artifact, in .gitignore syntax.
// It reads no files: whoever walks the source hands the .sourceignore files in.
package ignore

import (
	"bufio"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
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

// Rules decide about paths. They are values: adding to some leaves the others as they were.
type Rules struct {
	base     []gitignore.Pattern // the defaults, weakest
	files    []gitignore.Pattern // of .sourceignore files, in the order of their depth
	override []gitignore.Pattern // of spec.ignore, strongest
}

// New returns the rules of a source: spec is its spec.ignore, nil when unset.
func New(spec *string) Rules {
	if spec == nil {
		return Rules{base: parse(defaults, nil)}
	}
	return Rules{override: parse(*spec, nil)}
}

// With returns the rules for dir and below once its .sourceignore file is known. Dir is the path's parts.
func (r Rules) With(dir []string, content string) Rules {
	r.files = append(r.files[:len(r.files):len(r.files)], parse(content, dir)...)
	return r
}

// Match tells whether the path, given by its parts, is left out.
func (r Rules) Match(path []string, isDir bool) bool {
	if path[len(path)-1] == vcs {
		return true
	}
	result := gitignore.NoMatch
	for _, group := range [][]gitignore.Pattern{r.base, r.files, r.override} {
		for _, p := range group {
			if m := p.Match(path, isDir); m != gitignore.NoMatch {
				result = m // the last that says anything wins
			}
		}
	}
	return result == gitignore.Exclude
}

func parse(text string, domain []string) []gitignore.Pattern {
	var patterns []gitignore.Pattern
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), " \t\r")
		if line != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, gitignore.ParsePattern(line, domain))
		}
	}
	return patterns
}
