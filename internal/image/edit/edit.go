// Package edit sets images in YAML files byte for byte: but for the values that are set, a file stays as it
// is, with its comments, order, anchors, quotes, indentation and line ends. Bytes in, bytes out.
//
// Where an image is set, a marker comment says ([Markers]), or a binding to a container or to a place in Helm
// values ([Bound]).
package edit

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/excerpt"
)

// Bounds on what is parsed. Files that name nothing are not, whatever their size.
const (
	maxFile      = 2 << 20 // bytes
	maxDocuments = 10_000
	maxProblems  = 100 // of one file
)

// Ref is an image: its name with the registry, and its tag, its digest, or both.
type Ref struct{ Name, Tag, Digest string }

// String is the reference as containers take it.
func (r Ref) String() string {
	s := r.Name
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// Parts of a reference by the grammar of the distribution specification: no byte of them means anything to
// YAML inside a text.
var (
	nameForm   = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._:/-]*[a-zA-Z0-9])?$`)
	tagForm    = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
	digestForm = regexp.MustCompile(`^[a-z0-9]+([+._-][a-z0-9]+)*:[a-zA-Z0-9=_-]{32,}$`)
)

// Valid tells whether the reference is of the form that references have. No other is ever written.
func (r Ref) Valid() bool {
	return len(r.Name) <= 512 && nameForm.MatchString(r.Name) &&
		(r.Tag == "" || tagForm.MatchString(r.Tag)) &&
		(r.Digest == "" || len(r.Digest) <= 256 && digestForm.MatchString(r.Digest))
}

// ParseRef takes a reference apart. It does not check the parts.
func ParseRef(s string) Ref {
	name, digest, _ := strings.Cut(s, "@")
	r := Ref{Name: name, Digest: digest}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		r.Name, r.Tag = name[:i], name[i+1:]
	}
	return r
}

// canonical is the name with everything that may be left out, such that equal images have equal names.
func canonical(name string) string {
	registry, rest := splitRegistry(name)
	if registry == "docker.io" || registry == "index.docker.io" || registry == "registry-1.docker.io" {
		registry = "docker.io"
		if !strings.Contains(rest, "/") {
			rest = "library/" + rest
		}
	}
	return registry + "/" + rest
}

// splitRegistry parts a name into its registry, docker.io when it has none, and the rest.
func splitRegistry(name string) (registry, rest string) {
	first, rest, found := strings.Cut(name, "/")
	if found && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first, rest
	}
	return "docker.io", name
}

// Object is what a changed value belongs to, as the file has it. A file that holds no object has none.
type Object struct{ APIVersion, Kind, Namespace, Name string }

// String is the object as people name it.
func (o Object) String() string {
	s := o.Name
	if o.Namespace != "" {
		s = o.Namespace + "/" + s
	}
	return strings.Trim(o.Kind+"/"+s, "/")
}

// Change is a value that was set.
type Change struct {
	File      string
	Line      int // from 1
	Object    Object
	Container string // empty: not in a container
	Policy    string // "namespace:name"
	Setter    string // what called for it: a marker's content, or the policy of a binding
	Old, New  string
}

// Problem is why a value was not set, though something calls for it.
type Problem struct {
	File    string
	Line    int // from 1; 0: of the whole file
	Message string
	Policy  string // "namespace:name" of a policy that is not known; empty: the problem is another
}

// String is the problem with its place.
func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Message)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// Result is a file after its values were set.
type Result struct {
	Content  []byte // as it came, if nothing is to be changed
	Changes  []Change
	Problems []Problem
	Policies []string // "namespace:name" that the file names, known or not, sorted: no other matters to it
	Found    []int    // bindings whose place is in the file, as indexes
}

// Reads tells whether a file may hold values to set, by its path.
func Reads(file string) bool {
	switch path.Ext(file) {
	case ".yaml", ".yml":
		return true
	}
	return path.Base(file) == "Kustomization"
}

// editing is the work on one file.
type editing struct {
	file   string
	text   *text
	edits  []splice
	result Result
}

func (e *editing) problem(line int, format string, args ...any) {
	e.report(Problem{Line: line, Message: fmt.Sprintf(format, args...)})
}

func (e *editing) report(p Problem) {
	p.File = e.file
	if len(e.result.Problems) < maxProblems {
		e.result.Problems = append(e.result.Problems, p)
	}
}

func (e *editing) names(policy string) {
	if i, found := slices.BinarySearch(e.result.Policies, policy); !found {
		e.result.Policies = slices.Insert(e.result.Policies, i, policy)
	}
}

// parse reads the file if it can be; it tells why not where that matters.
func (e *editing) parse(content []byte) bool {
	if len(content) > maxFile {
		e.problem(0, "is larger than %d MiB, and left alone: split it", maxFile>>20)
		return false
	}
	t, err := parse(content)
	if err != nil {
		e.problem(0, "is no plain YAML, and left alone: %s", oneLine(err.Error()))
		return false
	}
	e.text = t
	return true
}

// finish writes the values, and makes sure that nothing else became different.
func (e *editing) finish() Result {
	if len(e.edits) == 0 {
		return e.result
	}
	slices.SortFunc(e.edits, func(a, b splice) int { return a.from - b.from })
	out := e.text.splice(e.edits)
	if err := e.text.same(out, e.edits); err != nil {
		e.problem(e.edits[0].change.Line, "cannot be set without changing more than the value, and the file is left "+
			"alone: %s", oneLine(err.Error()))
		return e.result
	}
	e.result.Content = out
	for _, s := range e.edits {
		e.result.Changes = append(e.result.Changes, s.change)
	}
	return e.result
}

// oneLine bounds the text of a foreign error.
func oneLine(s string) string {
	return excerpt.Line(s, 200)
}
