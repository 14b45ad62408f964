// Package scan finds what is to be changed in a repository, so that its images are those that policies
// choose. What it learned of files and directories it keeps by their hash: the next look reads only what
// changed since, and what names a policy whose image changed.
package scan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

const (
	maxRead     = 16 << 20 // bytes of a file: larger ones name nothing
	maxDepth    = 256
	maxKnown    = 500_000 // files and directories that are remembered, some hundred bytes each
	maxProblems = 100     // of a whole repository
	maxChanges  = 10_000
)

// Files are those of a commit.
type Files interface {
	List(dir plumbing.Hash) ([]git.File, error)
	Read(file plumbing.Hash, most int64) ([]byte, error)
}

// Plan is what is wanted.
type Plan struct {
	Images   map[string]edit.Ref // by "namespace:name" of their policy, for markers
	Bindings []edit.Binding
}

// Result is what there is to do.
type Result struct {
	Edits    []git.Edit
	Changes  []edit.Change
	Problems []edit.Problem
	Missing  []int    // bindings whose place is nowhere, as indexes
	Policies []string // "namespace:name" of those that files name, or whose place is in them; sorted

	was []plumbing.Hash // what the edited files are made of
}

// Scanner remembers. The zero value knows nothing yet; it is for one goroutine at a time.
type Scanner struct {
	bindings [sha256.Size]byte // what the memory is about
	known    map[subject]*finding
	Read     int // files and directories that were read so far
}

// subject is a file or a directory, wherever it is. Of a file it matters whether kustomize reads it by its name.
type subject struct {
	hash   plumbing.Hash
	byName bool
}

// finding is what a file, or all below a directory, names.
type finding struct {
	policies []string // sorted
	found    []int    // bindings, sorted
	problems []edit.Problem
	settled  bool              // nothing was to be changed when the policies had these images:
	images   [sha256.Size]byte // a digest of them
}

var nothing = &finding{settled: true}

// Scan finds what is to be changed below a directory of a commit. Files that are bound by their path are below it, too.
func (s *Scanner) Scan(ctx context.Context, files Files, root plumbing.Hash, dir string, plan Plan) (Result, error) {
	s.begin(plan)
	l := &look{Scanner: s, ctx: ctx, files: files, plan: plan, byPath: map[string]bool{}}
	for _, b := range plan.Bindings {
		if b.Values != nil {
			for file := path.Clean(b.Values.File); file != "." && file != "/"; file = path.Dir(file) {
				l.byPath[file] = true
			}
		}
	}
	top, dir, err := l.descend(root, dir)
	if err != nil {
		return Result{}, err
	}
	f, err := l.visit(dir, top, 0)
	if err != nil {
		return Result{}, err
	}
	for i := range plan.Bindings {
		if !slices.Contains(f.found, i) {
			l.result.Missing = append(l.result.Missing, i)
		}
	}
	l.result.Problems, l.result.Policies = f.problems, f.policies
	return l.result, nil
}

// begin forgets what was learned for other bindings, and all when it is too much.
func (s *Scanner) begin(plan Plan) {
	h := sha256.New()
	for _, b := range plan.Bindings {
		fmt.Fprintf(h, "%q %q %+v %+v\n", b.Policy, b.Image.Name, b.Workload, b.Values)
	}
	id := [sha256.Size]byte(h.Sum(nil))
	if s.known == nil || s.bindings != id || len(s.known) >= maxKnown {
		s.known, s.bindings = map[subject]*finding{}, id
	}
}

// look is one look at a repository.
type look struct {
	*Scanner
	ctx    context.Context
	files  Files
	plan   Plan
	byPath map[string]bool // files that are bound by their path, and the directories that they are in
	result Result
}

// descend finds a directory, and gives its clean path.
func (l *look) descend(root plumbing.Hash, dir string) (plumbing.Hash, string, error) {
	dir = strings.TrimPrefix(path.Clean("/"+dir), "/")
	at := root
	for part := range strings.SplitSeq(dir, "/") {
		if part == "" {
			continue
		}
		listing, err := l.list(at)
		if err != nil {
			return at, dir, err
		}
		i := slices.IndexFunc(listing, func(f git.File) bool { return f.Name == part && f.Dir })
		if i < 0 {
			return at, dir, fmt.Errorf("there is no directory '%s' in the repository", dir)
		}
		at = listing[i].Hash
	}
	return at, dir, nil
}

func (l *look) list(dir plumbing.Hash) ([]git.File, error) {
	l.Read++
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	return l.files.List(dir)
}

// visit looks at a directory and all below it. The problems of what it returns are told relative to the root
// of the repository.
func (l *look) visit(dir string, hash plumbing.Hash, depth int) (*finding, error) {
	if f := l.recall(subject{hash: hash}); f != nil && !l.byPath[dir] {
		return f.in(dir), nil
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("directories are nested deeper than %d", maxDepth)
	}
	listing, err := l.list(hash)
	if err != nil {
		return nil, fmt.Errorf("directory '%s': %w", dir, err)
	}
	all, fickle := &finding{settled: true}, false
	for _, e := range listing {
		var f *finding
		file := path.Join(dir, e.Name)
		switch {
		case e.Dir:
			f, err = l.visit(file, e.Hash, depth+1)
		case e.Regular && edit.Reads(file):
			f, err = l.file(file, e.Hash)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		fickle = fickle || !f.settled
		all.add(f)
	}
	all.settled = !fickle
	if all.images = digest(all.policies, l.plan.Images); all.settled {
		l.keep(subject{hash: hash}, all.from(dir))
	}
	return all, nil
}

func (l *look) keep(s subject, f *finding) {
	if len(l.known) < maxKnown {
		l.known[s] = f
	}
}

// recall is what is known of a subject, if that still holds.
func (l *look) recall(s subject) *finding {
	f := l.known[s]
	if f == nil || !f.settled || f.images != digest(f.policies, l.plan.Images) {
		return nil
	}
	return f
}

// file looks at one file.
func (l *look) file(file string, hash plumbing.Hash) (*finding, error) {
	who := subject{hash: hash, byName: edit.IsKustomization(file)}
	byPath := l.byPath[file]
	if f := l.recall(who); f != nil && !byPath {
		return f.in(file), nil
	}
	l.Read++
	content, err := l.files.Read(hash, maxRead)
	if err != nil {
		return nil, fmt.Errorf("file '%s': %w", file, err)
	}
	was := content
	content, changes, f := apply(file, content, l.plan)
	if len(changes) > 0 && bytes.Equal(was, content) {
		f.problems = append(f.problems, edit.Problem{File: file, Line: changes[0].Line,
			Message: "a marker and a binding set different images"})
		changes = nil
	}
	if len(changes) > 0 {
		if len(l.result.Changes)+len(changes) <= maxChanges { // else the next look has its turn
			l.result.add(file, hash, content, changes)
		}
		return f, nil
	}
	if byPath {
		return f, nil // elsewhere the same file is nothing
	}
	f.settled, f.images = true, digest(f.policies, l.plan.Images)
	if len(f.policies)+len(f.found)+len(f.problems) == 0 {
		f = nothing // one for all, as most files are
	}
	l.keep(who, f.from(file))
	return f, nil
}

// apply sets what a plan wants in one file.
func apply(file string, content []byte, plan Plan) ([]byte, []edit.Change, *finding) {
	marked := edit.Markers(file, content, plan.Images)
	bound := edit.Bound(file, marked.Content, plan.Bindings)
	return bound.Content, append(marked.Changes, bound.Changes...), &finding{
		policies: union(marked.Policies, bound.Policies), found: bound.Found,
		problems: append(marked.Problems, bound.Problems...),
	}
}

func (r *Result) add(file string, was plumbing.Hash, content []byte, changes []edit.Change) {
	r.Edits = append(r.Edits, git.Edit{Path: file, Content: content})
	r.Changes = append(r.Changes, changes...)
	r.was = append(r.was, was)
}

// Only is the part of a result that comes from one policy.
func (r *Result) Only(files Files, plan Plan, policy string) (Result, error) {
	part := Plan{Images: map[string]edit.Ref{policy: plan.Images[policy]}}
	for _, b := range plan.Bindings {
		if b.Policy == policy {
			part.Bindings = append(part.Bindings, b)
		}
	}
	var only Result
	for i, e := range r.Edits {
		if !slices.ContainsFunc(r.Changes, func(c edit.Change) bool { return c.File == e.Path && c.Policy == policy }) {
			continue
		}
		content, err := files.Read(r.was[i], maxRead)
		if err != nil {
			return only, err
		}
		if content, changes, _ := apply(e.Path, content, part); len(changes) > 0 {
			only.add(e.Path, r.was[i], content, changes)
		}
	}
	return only, nil
}

// add takes up what was found below.
func (f *finding) add(below *finding) {
	f.policies = union(f.policies, below.policies)
	f.found = union(f.found, below.found)
	f.problems = append(f.problems, below.problems[:min(len(below.problems), maxProblems-len(f.problems))]...)
}

// from is the finding with problems relative to where it is, and in the one with problems as they are there.
func (f *finding) from(place string) *finding {
	return f.moved(func(p string) string { return strings.TrimPrefix(p, place) })
}

func (f *finding) in(place string) *finding {
	return f.moved(func(p string) string { return strings.TrimPrefix(place+p, "/") })
}

func (f *finding) moved(move func(string) string) *finding {
	if len(f.problems) == 0 {
		return f
	}
	moved := *f
	moved.problems = slices.Clone(f.problems)
	for i := range moved.problems {
		moved.problems[i].File = move(moved.problems[i].File)
	}
	return &moved
}

func union[T interface{ ~string | ~int }](a, b []T) []T {
	if len(b) == 0 {
		return a
	}
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// digest is of the images that policies have.
func digest(policies []string, images map[string]edit.Ref) [sha256.Size]byte {
	if len(policies) == 0 {
		return [sha256.Size]byte{}
	}
	h := sha256.New()
	for _, p := range policies {
		image, known := images[p]
		fmt.Fprintf(h, "%q %t %q\n", p, known, image)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Policies are those that changes come from, sorted.
func Policies(changes []edit.Change) []string {
	all := map[string]bool{}
	for _, c := range changes {
		all[c.Policy] = true
	}
	return slices.Sorted(maps.Keys(all))
}
