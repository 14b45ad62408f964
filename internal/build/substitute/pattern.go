package substitute

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern is a glob with the syntax of bash: * any text, ? any character, [a-z] and [!a-z] one of a set, \x
// the character x.
type pattern struct {
	parts []part
	cost  int  // steps for a character
	steps *int // left for all patterns
}

var errTooSlow = errors.New("the operations on values of variables would take too long")

// part matches one character, or any number of characters if star is set.
type part struct {
	star bool
	any  bool
	set  []span // one of these, or none of these if not is set
	not  bool
}

type span struct{ from, to rune }

func parsePattern(s string, steps *int) *pattern {
	p := &pattern{cost: 1, steps: steps}
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		switch r {
		case '*':
			if n := len(p.parts); n == 0 || !p.parts[n-1].star { // ** is equivalent to *
				p.add(part{star: true})
			}
			continue
		case '?':
			p.add(part{any: true})
			continue
		case '[':
			if set, rest, ok := parseSet(s); ok {
				p.add(set)
				s = rest
				continue
			}
		case '\\':
			if s != "" {
				r, size = utf8.DecodeRuneInString(s)
				s = s[size:]
			}
		}
		p.add(part{set: []span{{from: r, to: r}}})
	}
	return p
}

func (p *pattern) add(next part) {
	p.parts = append(p.parts, next)
	p.cost += max(len(next.set), 1)
}

// parseSet parses the text after an opening bracket. Without a closing bracket it returns false, and the
// opening bracket is an ordinary character.
func parseSet(s string) (part, string, bool) {
	p := part{}
	if strings.HasPrefix(s, "!") || strings.HasPrefix(s, "^") {
		p.not, s = true, s[1:]
	}
	end := strings.IndexByte(s[min(1, len(s)):], ']') // a bracket right at the start is a member
	if end < 0 {
		return p, s, false
	}
	members := []rune(s[:end+1])
	for i := 0; i < len(members); i++ {
		if i+2 < len(members) && members[i+1] == '-' {
			p.set = append(p.set, span{members[i], members[i+2]})
			i += 2
			continue
		}
		p.set = append(p.set, span{members[i], members[i]})
	}
	return p, s[end+2:], true
}

func (p part) matches(r rune) bool {
	if p.any {
		return true
	}
	for _, s := range p.set {
		if s.from <= r && r <= s.to {
			return !p.not
		}
	}
	return p.not
}

// ends calls visit with the end of every match that starts at the start of s. It takes one step per character and part,
// or member of a set, for any pattern.
func (p *pattern) ends(s string, visit func(end int)) {
	at := make([]bool, len(p.parts)+1) // parts that may match next
	p.reach(at, 0)
	for i, r := range s {
		if at[len(p.parts)] {
			visit(i)
		}
		if *p.steps -= p.cost; *p.steps < 0 {
			return
		}
		next := make([]bool, len(at))
		any := false
		for n, here := range at[:len(p.parts)] {
			switch {
			case !here:
			case p.parts[n].star:
				p.reach(next, n)
				any = true
			case p.parts[n].matches(r):
				p.reach(next, n+1)
				any = true
			}
		}
		at = next
		if !any {
			return
		}
	}
	if at[len(p.parts)] {
		visit(len(s))
	}
}

// reach marks a part as next, and also the part after it if the part may match the empty string.
func (p *pattern) reach(at []bool, n int) {
	at[n] = true
	for n < len(p.parts) && p.parts[n].star {
		n++
		at[n] = true
	}
}

// prefix returns how much of the start of s matches, or -1.
func (p *pattern) prefix(s string, longest bool) int {
	found := -1
	p.ends(s, func(end int) {
		if found < 0 || longest {
			found = end
		}
	})
	return found
}

// suffix returns the start of a match that ends at the end of s, or -1.
func (p *pattern) suffix(s string, longest bool) int {
	backwards := &pattern{slices.Clone(p.parts), p.cost, p.steps}
	slices.Reverse(backwards.parts)
	if n := backwards.prefix(reverse(s), longest); n >= 0 {
		return len(s) - n
	}
	return -1
}

func reverse(s string) string {
	out := make([]byte, 0, len(s))
	for s != "" {
		_, size := utf8.DecodeLastRuneInString(s)
		out = append(out, s[len(s)-size:]...)
		s = s[:len(s)-size]
	}
	return string(out)
}
