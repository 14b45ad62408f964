package demo

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	recordedWidth, recordedHeight = 80, 24
	burst                         = 100 * time.Millisecond  // changes within it are one frame
	longestFrame                  = 1500 * time.Millisecond // of the picture
	lastFrame                     = 6 * time.Second
)

// cell is one character of a terminal, with the parameters of its SGR sequence.
type cell struct {
	char  rune
	style string
}

// Recorder is a terminal that keeps what it shows, as far as the demo needs one: colours, line breaks, and the
// sequences for moving up and for erasing a line.
type Recorder struct {
	width, height int
	now           func() time.Time
	lines         [][]cell // with those that have scrolled away
	row, column   int
	style         string
	frames        []frame
	changed       time.Time
}

// frame is what the terminal shows from a time on.
type frame struct {
	at    time.Time
	lines [][]cell
}

// NewRecorder returns an empty terminal of 80 by 24.
func NewRecorder() *Recorder {
	return &Recorder{width: recordedWidth, height: recordedHeight, now: time.Now, lines: make([][]cell, 1)}
}

// Write implements io.Writer.
func (r *Recorder) Write(p []byte) (int, error) {
	if now := r.now(); now.Sub(r.changed) > burst {
		r.snapshot()
		r.changed = now
	}
	for text := string(p); text != ""; {
		rest, isSequence := strings.CutPrefix(text, "\x1b[")
		if end := strings.IndexAny(rest, "AKm"); isSequence && end >= 0 {
			r.sequence(rest[end], rest[:end])
			text = rest[end+1:]
			continue
		}
		char := []rune(text)[0]
		r.put(char)
		text = text[len(string(char)):]
	}
	return len(p), nil
}

func (r *Recorder) sequence(command byte, parameter string) {
	switch command {
	case 'A':
		up, _ := strconv.Atoi(parameter) // the demo writes numbers
		r.row = max(r.row-up, r.top())
	case 'K':
		r.lines[r.row] = r.lines[r.row][:min(r.column, len(r.lines[r.row]))]
	case 'm':
		r.style = strings.TrimPrefix(parameter, "0")
	}
}

func (r *Recorder) put(char rune) {
	switch char {
	case '\r':
		r.column = 0
		return
	case '\n':
		r.down()
		return
	}
	if r.column == r.width {
		r.down()
	}
	line := r.lines[r.row]
	for len(line) <= r.column {
		line = append(line, cell{char: ' '})
	}
	line[r.column] = cell{char, r.style}
	r.lines[r.row] = line
	r.column++
}

func (r *Recorder) down() {
	r.column = 0
	if r.row++; r.row == len(r.lines) {
		r.lines = append(r.lines, nil)
	}
}

// top is the first row that the terminal shows.
func (r *Recorder) top() int { return max(len(r.lines)-r.height, 0) }

func (r *Recorder) snapshot() {
	var visible [][]cell
	for _, line := range r.lines[r.top():] {
		visible = append(visible, slices.Clone(line))
	}
	r.frames = append(r.frames, frame{r.changed, visible})
}

// Text returns all that was shown, without colours.
func (r *Recorder) Text() string {
	var b strings.Builder
	for _, line := range r.lines {
		for _, c := range line {
			b.WriteRune(c.char)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// colours are those of the picture, by SGR parameters.
var colours = map[string]string{"31": "#f47067", "32": "#57ab5a", "33": "#daaa3f", "1;33": "#daaa3f", "36": "#39c5cf",
	"1;36": "#39c5cf", "1;32": "#57ab5a", "90": "#909dab", "1": "#ffffff", "": "#cdd9e5"}

// SVG returns the frames as an animated picture, which loops. Pauses are shortened.
func (r *Recorder) SVG() []byte {
	r.snapshot()
	frames := r.frames[1:] // the first one is empty
	starts, total := make([]time.Duration, len(frames)), time.Duration(0)
	for i := range frames {
		starts[i] = total
		if i == len(frames)-1 {
			total += lastFrame
		} else {
			total += min(frames[i+1].at.Sub(frames[i].at), longestFrame)
		}
	}
	const x, y, lineHeight = 16, 28, 18
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"`+
		` aria-label="make demo in a terminal">`+"\n<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;"+
		"white-space:pre}g{visibility:hidden;animation:%.2fs step-end infinite}\n", 2*x+r.width*17/2,
		y+r.height*lineHeight, total.Seconds())
	percent := func(at time.Duration) float64 { return 100 * at.Seconds() / total.Seconds() }
	for i, start := range starts {
		end := total
		if i < len(starts)-1 {
			end = starts[i+1]
		}
		fmt.Fprintf(&b, "@keyframes f%d{0%%{visibility:hidden}%.3f%%{visibility:visible}%.3f%%{visibility:%s}}"+
			"#f%d{animation-name:f%d}\n", i, percent(start), percent(end),
			map[bool]string{true: "visible", false: "hidden"}[end == total], i, i)
	}
	b.WriteString("</style><rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#22272e\"/>\n")
	for i, f := range frames {
		fmt.Fprintf(&b, "<g id=\"f%d\">\n", i)
		for n, line := range f.lines {
			if len(line) > 0 {
				fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve">%s</text>`+"\n", x, y+n*lineHeight,
					spans(line))
			}
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// spans returns a line as text of an SVG, with a colour for each run of a style.
func spans(line []cell) string {
	var b strings.Builder
	for len(line) > 0 {
		style, run := line[0].style, ""
		for len(line) > 0 && line[0].style == style {
			run += string(line[0].char)
			line = line[1:]
		}
		fmt.Fprintf(&b, `<tspan fill="%s">%s</tspan>`, colours[style], html.EscapeString(run))
	}
	return b.String()
}
