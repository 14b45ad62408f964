package ignore

import (
	"path"
	"slices"
	"strings"
)

// pattern is one line of a .gitignore file, as gitignore(5) has it.
type pattern struct {
	include  bool      // starts with !
	dirOnly  bool      // ends with /
	anchored bool      // has another /, so that it names a path and not only a name
	parts    []segment // of the path, or one
}

// segment matches one part of a path.
type segment struct {
	text string
	kind kind
}

type kind int

const (
	literal kind = iota
	suffix       // a star, then the text
	glob         // anything that path.Match knows
	anyDirs      // **: any number of directories
)

// parse reads a line. Empty ones, comments and those that can match nothing are none.
func parse(line string) (pattern, bool) {
	line = trim(line)
	var p pattern
	if line == "" || line[0] == '#' {
		return p, false
	}
	line, p.include = strings.CutPrefix(line, "!")
	line, p.dirOnly = strings.CutSuffix(line, "/")
	p.anchored = strings.Contains(line, "/")
	for part := range strings.SplitSeq(strings.TrimPrefix(line, "/"), "/") {
		s, ok := newSegment(part)
		if !ok {
			return p, false
		}
		p.parts = append(p.parts, s)
	}
	return p, true
}

// trim removes the end of the line, and trailing spaces that are not escaped.
func trim(line string) string {
	line = strings.TrimRight(line, "\r\n")
	kept := strings.TrimRight(line, " \t")
	if strings.HasSuffix(kept, `\`) && len(kept) < len(line) && !strings.HasSuffix(kept, `\\`) {
		kept += " "
	}
	return kept
}

func newSegment(s string) (segment, bool) {
	if s == "**" {
		return segment{kind: anyDirs}, true
	}
	for strings.Contains(s, "**") {
		s = strings.ReplaceAll(s, "**", "*") // inside of a name, two stars are as one
	}
	if !strings.ContainsAny(s, `*?[\`) {
		return segment{s, literal}, s != ""
	}
	if rest, ok := strings.CutPrefix(s, "*"); ok && rest != "" && !strings.ContainsAny(rest, `*?[\`) {
		return segment{rest, suffix}, true
	}
	s = brackets(s)
	_, err := path.Match(s, "")
	return segment{s, glob}, err == nil
}

// brackets writes git's character classes as path.Match wants them: negated by ^, with ] and - escaped where they stand
// for themselves.
func brackets(s string) string {
	var b strings.Builder
	inside := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			b.WriteByte(s[i])
			i++
		case !inside && s[i] == '[':
			inside = true
			b.WriteByte(s[i])
			if i+1 < len(s) && (s[i+1] == '!' || s[i+1] == '^') {
				i++
				b.WriteByte('^')
			}
			if i+1 < len(s) && (s[i+1] == ']' || s[i+1] == '-') {
				i++
				b.WriteByte('\\')
				b.WriteByte(s[i])
			}
			continue
		case inside && s[i] == ']':
			inside = false
		case inside && s[i] == '-' && i+1 < len(s) && s[i+1] == ']':
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func (s segment) matches(name string) bool {
	switch s.kind {
	case literal:
		return s.text == name
	case suffix:
		return strings.HasSuffix(name, s.text)
	case glob:
		ok, err := path.Match(s.text, name)
		return ok && err == nil
	}
	return true
}

// matches tells whether the pattern names what is called name in dir, which is relative to where the pattern stands.
func (p *pattern) matches(dir []string, name string, isDir bool) bool {
	if p.dirOnly && !isDir {
		return false
	}
	if !p.anchored {
		return p.parts[0].matches(name)
	}
	last := p.parts[len(p.parts)-1]
	if !last.matches(name) {
		return false // the cheap test first: most paths fail it
	}
	return matchPath(p.parts, append(slices.Clip(dir), name))
}

// matchPath goes back to the last ** only when a part does not fit: what came before it fits either way.
func matchPath(parts []segment, names []string) bool {
	i, j := 0, 0
	dirs, taken := -1, 0 // the last **, and how many names it leads up to
	for j < len(names) {
		switch {
		case i < len(parts) && parts[i].kind == anyDirs:
			if i == len(parts)-1 {
				return true
			}
			dirs, taken = i, j
			i++
		case i < len(parts) && parts[i].matches(names[j]):
			i++
			j++
		case dirs >= 0:
			taken++
			i, j = dirs+1, taken
		default:
			return false
		}
	}
	return i == len(parts)
}
