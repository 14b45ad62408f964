package mcp

import (
	"cmp"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-gitops/sluice/docs"
)

// Parameters of BM25, as usual.
const (
	saturation   = 1.2
	lengthWeight = 0.75
	headingTimes = 4 // how often the words of a heading count
)

// Passage is a section of a page.
type Passage struct {
	Page    string  `json:"page"`
	Heading string  `json:"heading"`
	Text    string  `json:"text"`
	Score   float64 `json:"score"`
}

// index finds passages by their words (BM25). It is built when it is first used.
type index struct {
	build    func() error
	passages []Passage
	counts   []map[string]int // of the words of each passage
	lengths  []int
	average  float64
	holders  map[string]int // passages that have a word
}

func newIndex() *index {
	x := &index{holders: map[string]int{}}
	x.build = sync.OnceValue(func() error { return x.read(docs.Pages) })
	return x
}

func (x *index) read(pages fs.FS) error {
	names, err := fs.Glob(pages, "*.md")
	if err != nil {
		return err
	}
	total := 0
	for _, name := range names {
		content, err := fs.ReadFile(pages, name)
		if err != nil {
			return err
		}
		for _, p := range sections("docs/"+name, string(content)) {
			counts := map[string]int{}
			length := 0
			for _, w := range wordsOf(p.Text) {
				counts[w]++
				length++
			}
			for _, w := range wordsOf(p.Heading) {
				counts[w] += headingTimes
			}
			for w := range counts {
				x.holders[w]++
			}
			x.passages, x.counts, x.lengths = append(x.passages, p), append(x.counts, counts), append(x.lengths, length)
			total += length
		}
	}
	x.average = float64(total) / float64(max(len(x.passages), 1))
	return nil
}

// sections returns the sections of a page. The heading of a section is preceded by that of its page.
func sections(page, content string) []Passage {
	var out []Passage
	title, heading, inBlock := "", "", false
	var body strings.Builder
	end := func() {
		if text := strings.TrimSpace(body.String()); text != "" {
			out = append(out, Passage{Page: page, Heading: heading, Text: text})
		}
		body.Reset()
	}
	for line := range strings.Lines(content) {
		if strings.HasPrefix(line, "```") {
			inBlock = !inBlock
		}
		name := strings.TrimSpace(strings.TrimLeft(line, "#"))
		switch {
		case inBlock || !strings.HasPrefix(line, "#"):
			body.WriteString(line)
		case title == "":
			title, heading = name, name
		default:
			end()
			heading = title + " > " + name
		}
	}
	end()
	return out
}

var wordPattern = regexp.MustCompile(`[\pL\pN]+(?:[-_][\pL\pN]+)*`)

// wordsOf returns the words of a text in lower case, without a plural s.
func wordsOf(text string) []string {
	words := wordPattern.FindAllString(strings.ToLower(text), -1)
	for n, w := range words {
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			words[n] = w[:len(w)-1]
		}
	}
	return words
}

// search returns the passages that match best, of those that have at least one word of the query.
func (x *index) search(query string, limit int) []Passage {
	out := []Passage{}
	if x.build() != nil {
		return out // the pages are part of the binary
	}
	words := wordsOf(query)
	slices.Sort(words)
	words = slices.Compact(words)
	for n, p := range x.passages {
		for _, w := range words {
			count := float64(x.counts[n][w])
			if count == 0 {
				continue
			}
			with, all := float64(x.holders[w]), float64(len(x.passages))
			rarity := math.Log(1 + (all-with+0.5)/(with+0.5))
			long := 1 - lengthWeight + lengthWeight*float64(x.lengths[n])/x.average
			p.Score += rarity * count * (saturation + 1) / (count + saturation*long)
		}
		if p.Score > 0 {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b Passage) int { return cmp.Compare(b.Score, a.Score) })
	return out[:min(limit, len(out))]
}
