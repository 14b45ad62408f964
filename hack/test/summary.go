package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// slowest is how many tests the summary names.
const slowest = 20

// maxLine bounds a line of the output of a test.
const maxLine = 64 << 20

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// timing is how long a test or a package took.
type timing struct {
	name string
	took time.Duration
}

// summary prints the results of go test as go test does without -v, and collects how long everything took.
// Several calls of read may run at a time.
type summary struct {
	mu       sync.Mutex // for what follows
	out      io.Writer
	packages []timing
	tests    []timing        // without subtests
	cached   int             // packages whose results go test kept from an earlier run
	failed   []string        // packages, and tests as PACKAGE TEST
	passed   map[string]bool // tests as PACKAGE TEST
	stopped  func() bool     // reports whether the tests were stopped as their time ended
}

// running is the output of a package whose tests have not ended.
type running struct {
	lines  []string            // of the package itself
	output map[string][]string // by test
	order  []string            // tests, in the order of their first output
	failed map[string]bool
	ended  map[string]bool
	tests  []timing
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, passed: map[string]bool{}, stopped: func() bool { return false }}
}

// read reads the output of go test -json to its end.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	packages := map[string]*running{}
	for lines.Scan() {
		s.line(packages, lines.Bytes())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range packages { // go test was stopped
		action := "fail"
		if s.stopped() {
			action = "stop"
		}
		s.end(name, p, action, 0)
	}
	return lines.Err()
}

// line adds a line to the packages that run.
func (s *summary) line(packages map[string]*running, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		s.printf("%s\n", line) // the go command itself printed it
		return
	}
	if e.Action == "build-output" {
		s.printf("%s", e.Output)
	}
	if e.Package == "" {
		return
	}
	p := packages[e.Package]
	if p == nil {
		p = &running{output: map[string][]string{}, failed: map[string]bool{}, ended: map[string]bool{}}
		packages[e.Package] = p
	}
	took := time.Duration(e.Elapsed * float64(time.Second))
	switch {
	case e.Action == "output" && e.Test == "":
		p.lines = append(p.lines, e.Output)
	case e.Action == "output":
		if p.output[e.Test] == nil {
			p.order = append(p.order, e.Test)
		}
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
	case e.Test == "":
		delete(packages, e.Package)
		s.end(e.Package, p, e.Action, took)
	default:
		p.endTest(e.Test, e.Action, took)
		if e.Action != "fail" {
			s.passed[e.Package+" "+e.Test] = true
		}
	}
}

func (p *running) endTest(name, action string, took time.Duration) {
	p.ended[name], p.failed[name] = true, action == "fail"
	if action != "fail" {
		p.output[name] = nil
	}
	if !strings.Contains(name, "/") {
		p.tests = append(p.tests, timing{name, took})
	}
}

// end prints the result of a package.
func (s *summary) end(name string, p *running, action string, took time.Duration) {
	last := ""
	if len(p.lines) > 0 {
		last = p.lines[len(p.lines)-1]
	}
	switch {
	case action == "fail" || p.hasFailed():
		s.failed = append(s.failed, name)
		s.printFailure(name, p)
	case action != "stop":
		s.printf("%s", last)
	}
	switch {
	case strings.Contains(last, "(cached)"):
		s.cached++
	case strings.Contains(last, "[no test files]"):
	default:
		s.packages = append(s.packages, timing{name, took})
		for _, t := range p.tests {
			s.tests = append(s.tests, timing{t.name + "  " + name, t.took})
		}
	}
}

func (p *running) hasFailed() bool {
	for _, failed := range p.failed {
		if failed {
			return true
		}
	}
	return false
}

// printFailure prints what the failed tests printed, and those that did not end, and then the lines of the package.
func (s *summary) printFailure(name string, p *running) {
	for _, test := range p.order {
		if p.ended[test] && !p.failed[test] || !p.ended[test] && s.stopped() {
			continue
		}
		s.failed = append(s.failed, name+" "+test)
		s.printOutput(test, p.output[test])
	}
	for _, line := range p.lines {
		s.printf("%s", line)
	}
}

// printOutput prints the output of a test, with the result first and subtests indented, as go test does without -v.
func (s *summary) printOutput(test string, lines []string) {
	lines = slices.DeleteFunc(slices.Clone(lines), isProgress)
	for i, line := range lines {
		if strings.HasPrefix(line, "--- FAIL: ") {
			lines = slices.Insert(slices.Delete(lines, i, i+1), 0, line)
			break
		}
	}
	indent := strings.Repeat("    ", strings.Count(test, "/"))
	for _, line := range lines {
		s.printf("%s%s", indent, line)
	}
}

// isProgress reports whether only go test -v prints a line.
func isProgress(line string) bool {
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// print prints the times, the longest first, and then what failed.
func (s *summary) print() {
	const second = time.Second
	byTime := func(a, b timing) int {
		return cmp.Or(cmp.Compare(b.took, a.took), strings.Compare(a.name, b.name))
	}
	slices.SortFunc(s.packages, byTime)
	slices.SortFunc(s.tests, byTime)
	long := slices.IndexFunc(s.packages, func(t timing) bool { return t.took < second })
	if long < 0 {
		long = len(s.packages)
	}
	s.printf("\nPackages by time:\n")
	s.printTimes(s.packages[:long])
	s.printf("%9s  %d packages of less than a second, and %d cached ones\n", "", len(s.packages)-long, s.cached)
	s.printf("\nSlowest tests:\n")
	s.printTimes(s.tests[:min(slowest, len(s.tests))])
	if len(s.failed) == 0 {
		return
	}
	s.printf("\nFailed:\n")
	for _, name := range s.failed {
		s.printf("  %s\n", name)
	}
	s.printf("FAIL\n")
}

func (s *summary) printTimes(times []timing) {
	for _, t := range times {
		s.printf("%8.1fs  %s\n", t.took.Seconds(), t.name)
	}
}

func (s *summary) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
}
