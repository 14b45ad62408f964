// Package edit sets images in YAML files. Except for the values that it sets, it does not change a byte:
// comments, order, anchors, quotes, indentation and line ends stay.
//
// The values to set are marked by comments ([Markers]), or named by bindings to containers or Helm values ([Bound]).
package edit

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Bounds of files that are parsed. Files without markers and bound places are not parsed.
const (
	maxFile      = 2 << 20 // bytes
	maxDocuments = 10_000
	maxProblems  = 100     // of one file
	maxMessage   = 600     // bytes of the message of a problem
	maxValue     = 4 << 10 // bytes of a value that is replaced; an image has at most a thousand
	maxName      = 256     // bytes of the parts of an object's name in a change; longer ones are cut
)

// Ref is an image reference: a name with the registry, and a tag, a digest, or both.
type Ref struct{ Name, Tag, Digest string }

// String returns the reference in the form name:tag@digest.
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

// Patterns of the parts of a reference, by the grammar of the distribution specification. They allow no
// character that is special inside a YAML scalar.
var (
	namePattern   = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._:/-]*[a-zA-Z0-9])?$`)
	tagPattern    = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
	digestPattern = regexp.MustCompile(`^[a-z0-9]+([+._-][a-z0-9]+)*:[a-zA-Z0-9=_-]{32,}$`)
)

// Valid reports whether the parts of the reference are well-formed. Other references are never written.
func (r Ref) Valid() bool {
	return len(r.Name) <= 512 && namePattern.MatchString(r.Name) &&
		(r.Tag == "" || tagPattern.MatchString(r.Tag)) &&
		(r.Digest == "" || len(r.Digest) <= 256 && digestPattern.MatchString(r.Digest))
}

// ParseRef splits a reference into its parts. It does not validate them.
func ParseRef(s string) Ref {
	name, digest, _ := strings.Cut(s, "@")
	r := Ref{Name: name, Digest: digest}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		r.Name, r.Tag = name[:i], name[i+1:]
	}
	return r
}

// canonical returns the name with the parts that may be omitted, so that equal images have equal names.
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

// splitRegistry splits a name into its registry, docker.io if it has none, and the rest.
func splitRegistry(name string) (registry, rest string) {
	first, rest, found := strings.Cut(name, "/")
	if found && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first, rest
	}
	return "docker.io", name
}

// Object identifies the object that a changed value belongs to. It is empty in files without objects.
type Object struct{ APIVersion, Kind, Namespace, Name string }

// String returns the object in the form Kind/namespace/name.
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
	Container string // empty: the value is not in a container
	Policy    string // "namespace:name"
	Setter    string // what caused the change: the content of a marker, or the policy of a binding
	Old, New  string
}

// Problem is the reason why a marked or bound value was not set.
type Problem struct {
	File    string
	Line    int // from 1; 0: the whole file
	Message string
	Policy  string // "namespace:name" of an unknown policy, if that is the problem
}

// String returns the problem with file and line.
func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Message)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// Result is a file with its values set.
type Result struct {
	Content  []byte // the input if Changes is empty
	Changes  []Change
	Problems []Problem
	Policies []string // "namespace:name" of all policies that the file refers to, known or not; sorted
	Found    []int    // indexes of the bindings whose place is in the file
}

// Reads reports whether a file may contain values to set, by its path.
func Reads(file string) bool {
	switch path.Ext(file) {
	case ".yaml", ".yml":
		return true
	}
	return path.Base(file) == "Kustomization"
}

// Parses reports whether setting the images in a file parses it, which needs much memory.
func Parses(file string, content []byte, bindings []Binding) bool {
	return len(content) <= maxFile && (bytes.Contains(content, []byte(setterKey)) ||
		slices.ContainsFunc(bindings, func(b Binding) bool { return b.mayBeIn(file, content) }))
}

// editing is the state of editing one file.
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
	p.File, p.Message = e.file, excerpt.Bytes(p.Message, maxMessage)
	if len(e.result.Problems) < maxProblems {
		e.result.Problems = append(e.result.Problems, p)
	}
}

func (e *editing) addPolicy(policy string) {
	if i, found := slices.BinarySearch(e.result.Policies, policy); !found {
		e.result.Policies = slices.Insert(e.result.Policies, i, policy)
	}
}

// parse parses the file. It reports false, and adds a problem, if it cannot.
func (e *editing) parse(content []byte) bool {
	if len(content) > maxFile {
		e.problem(0, "larger than %d MiB, not updated; split it", maxFile>>20)
		return false
	}
	t, err := parse(content)
	if err != nil {
		e.problem(0, "not valid YAML, not updated: %s", oneLine(err.Error()))
		return false
	}
	e.text = t
	return true
}

// finish writes the values, and verifies that nothing else changed.
func (e *editing) finish() Result {
	if len(e.edits) == 0 {
		return e.result
	}
	slices.SortFunc(e.edits, func(a, b splice) int { return a.from - b.from })
	out := e.text.splice(e.edits)
	if err := e.text.verify(out, e.edits); err != nil {
		e.problem(e.edits[0].change.Line, "setting the value would change other parts of the file, not "+
			"updated: %s", oneLine(err.Error()))
		return e.result
	}
	e.result.Content = out
	for _, s := range e.edits {
		e.result.Changes = append(e.result.Changes, s.change)
	}
	return e.result
}

// oneLine shortens text of files and parsers for a message.
func oneLine(s string) string {
	return excerpt.Line(s, 200)
}
