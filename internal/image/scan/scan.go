// Package scan finds the values to change in a repository so that it has the images of a plan. Results are
// cached by the hashes of files and directories: the next scan reads only files that changed, and files that
// refer to a policy whose image changed.
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
	maxRead     = 16 << 20 // bytes of a file; larger files are not scanned
	maxDepth    = 256
	maxCached   = 500_000 // files and directories; some hundred bytes each
	maxProblems = 100     // of a repository
	maxChanges  = 10_000
)

// Files reads the files of a commit.
type Files interface {
	List(dir plumbing.Hash) ([]git.File, error)
	Read(file plumbing.Hash, limit int64) ([]byte, error)
}

// Plan is the images to set, and where.
type Plan struct {
	Images   map[string]edit.Ref // for markers, by "namespace:name" of their policy
	Bindings []edit.Binding
}

// Result is the changes that a plan requires.
type Result struct {
	Edits    []git.Edit
	Changes  []edit.Change
	Problems []edit.Problem
	Missing  []int    // indexes of bindings whose place was not found
	Policies []string // "namespace:name" of all policies that files refer to or that have a bound place; sorted

	original []plumbing.Hash // of the edited files
}

// Scanner scans repositories, and caches what it found. The zero value is ready to use. It must not be used
// concurrently.
type Scanner struct {
	bindings [sha256.Size]byte // digest of the bindings that the cache is valid for
	cache    map[cacheKey]*finding
	Read     int // number of files and directories that were read so far
}

// cacheKey identifies the content of a file or a directory, independent of its path.
type cacheKey struct {
	hash            plumbing.Hash
	isKustomization bool // the file has a name that kustomize loads
}

// finding is what was found in a file or below a directory.
type finding struct {
	policies []string // sorted
	found    []int    // indexes of bindings, sorted
	problems []edit.Problem
	upToDate bool              // nothing had to change for the images with this digest
	images   [sha256.Size]byte // digest of the images of the policies
}

var emptyFinding = &finding{upToDate: true}

// Scan finds the values below a directory of a commit that the plan changes. Bound files of Helm values must
// be below the directory too.
func (s *Scanner) Scan(ctx context.Context, files Files, root plumbing.Hash, dir string, plan Plan) (Result, error) {
	s.resetIfStale(plan)
	p := &pass{Scanner: s, ctx: ctx, files: files, plan: plan, byPath: map[string]bool{}}
	for _, b := range plan.Bindings {
		if b.Values != nil {
			for file := path.Clean(b.Values.File); file != "." && file != "/"; file = path.Dir(file) {
				p.byPath[file] = true
			}
		}
	}
	top, dir, err := p.descend(root, dir)
	if err != nil {
		return Result{}, err
	}
	f, err := p.visit(dir, top, 0)
	if err != nil {
		return Result{}, err
	}
	for i := range plan.Bindings {
		if !slices.Contains(f.found, i) {
			p.result.Missing = append(p.result.Missing, i)
		}
	}
	p.result.Problems, p.result.Policies = f.problems, f.policies
	return p.result, nil
}

// resetIfStale clears the cache if the bindings changed, or if it is full.
func (s *Scanner) resetIfStale(plan Plan) {
	h := sha256.New()
	for _, b := range plan.Bindings {
		fmt.Fprintf(h, "%q %q %+v %+v\n", b.Policy, b.Image.Name, b.Workload, b.Values)
	}
	id := [sha256.Size]byte(h.Sum(nil))
	if s.cache == nil || s.bindings != id || len(s.cache) >= maxCached {
		s.cache, s.bindings = map[cacheKey]*finding{}, id
	}
}

// pass is one scan of a repository.
type pass struct {
	*Scanner
	ctx    context.Context
	files  Files
	plan   Plan
	byPath map[string]bool // bound files, and their directories
	result Result
}

// descend returns the hash and the clean path of a directory.
func (p *pass) descend(root plumbing.Hash, dir string) (plumbing.Hash, string, error) {
	dir = strings.TrimPrefix(path.Clean("/"+dir), "/")
	at := root
	for part := range strings.SplitSeq(dir, "/") {
		if part == "" {
			continue
		}
		listing, err := p.list(at)
		if err != nil {
			return at, dir, err
		}
		i := slices.IndexFunc(listing, func(f git.File) bool { return f.Name == part && f.Dir })
		if i < 0 {
			return at, dir, fmt.Errorf("the repository has no directory '%s'", dir)
		}
		at = listing[i].Hash
	}
	return at, dir, nil
}

func (p *pass) list(dir plumbing.Hash) ([]git.File, error) {
	p.Read++
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	return p.files.List(dir)
}

// visit scans a directory and everything below it. The problems it returns have paths relative to the root of the
// repository.
func (p *pass) visit(dir string, hash plumbing.Hash, depth int) (*finding, error) {
	if f := p.cached(cacheKey{hash: hash}); f != nil && !p.byPath[dir] {
		return f.resolvedIn(dir), nil
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("directories are nested deeper than %d", maxDepth)
	}
	listing, err := p.list(hash)
	if err != nil {
		return nil, fmt.Errorf("directory '%s': %w", dir, err)
	}
	all, upToDate := &finding{upToDate: true}, true
	for _, e := range listing {
		var f *finding
		file := path.Join(dir, e.Name)
		switch {
		case e.Dir:
			f, err = p.visit(file, e.Hash, depth+1)
		case e.Regular && edit.Reads(file):
			f, err = p.file(file, e.Hash)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		upToDate = upToDate && f.upToDate
		all.merge(f)
	}
	all.upToDate = upToDate
	if all.images = digest(all.policies, p.plan.Images); all.upToDate {
		p.store(cacheKey{hash: hash}, all.relativeTo(dir))
	}
	return all, nil
}

func (p *pass) store(s cacheKey, f *finding) {
	if len(p.cache) < maxCached {
		p.cache[s] = f
	}
}

// cached returns the cached finding of a key, nil unless it is valid for the images of the plan.
func (p *pass) cached(s cacheKey) *finding {
	f := p.cache[s]
	if f == nil || !f.upToDate || f.images != digest(f.policies, p.plan.Images) {
		return nil
	}
	return f
}

// file scans one file.
func (p *pass) file(file string, hash plumbing.Hash) (*finding, error) {
	key := cacheKey{hash: hash, isKustomization: edit.IsKustomization(file)}
	byPath := p.byPath[file]
	if f := p.cached(key); f != nil && !byPath {
		return f.resolvedIn(file), nil
	}
	p.Read++
	content, err := p.files.Read(hash, maxRead)
	if err != nil {
		return nil, fmt.Errorf("file '%s': %w", file, err)
	}
	original := content
	content, changes, f := apply(file, content, p.plan)
	if len(changes) > 0 && bytes.Equal(original, content) {
		f.problems = append(f.problems, edit.Problem{File: file, Line: changes[0].Line,
			Message: "a marker and a binding set different images"})
		changes = nil
	}
	if len(changes) > 0 {
		if len(p.result.Changes)+len(changes) <= maxChanges { // the next scan finds the others
			p.result.add(file, hash, content, changes)
		}
		return f, nil
	}
	if byPath {
		return f, nil // not cached: the binding applies only to this path
	}
	f.upToDate, f.images = true, digest(f.policies, p.plan.Images)
	if len(f.policies)+len(f.found)+len(f.problems) == 0 {
		f = emptyFinding // shared, as most files are like this
	}
	p.store(key, f.relativeTo(file))
	return f, nil
}

// apply sets the images of a plan in one file.
func apply(file string, content []byte, plan Plan) ([]byte, []edit.Change, *finding) {
	marked := edit.Markers(file, content, plan.Images)
	bound := edit.Bound(file, marked.Content, plan.Bindings)
	return bound.Content, append(marked.Changes, bound.Changes...), &finding{
		policies: union(marked.Policies, bound.Policies), found: bound.Found,
		problems: append(marked.Problems, bound.Problems...),
	}
}

func (r *Result) add(file string, original plumbing.Hash, content []byte, changes []edit.Change) {
	r.Edits = append(r.Edits, git.Edit{Path: file, Content: content})
	r.Changes = append(r.Changes, changes...)
	r.original = append(r.original, original)
}

// Only returns the part of a result that one policy causes.
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
		content, err := files.Read(r.original[i], maxRead)
		if err != nil {
			return only, err
		}
		if content, changes, _ := apply(e.Path, content, part); len(changes) > 0 {
			only.add(e.Path, r.original[i], content, changes)
		}
	}
	return only, nil
}

// merge adds the finding of a file or directory below.
func (f *finding) merge(below *finding) {
	f.policies = union(f.policies, below.policies)
	f.found = union(f.found, below.found)
	f.problems = append(f.problems, below.problems[:min(len(below.problems), maxProblems-len(f.problems))]...)
}

// relativeTo returns the finding with the paths of problems relative to a path.
func (f *finding) relativeTo(dir string) *finding {
	return f.withPaths(func(path string) string { return strings.TrimPrefix(path, dir) })
}

// resolvedIn is the inverse of relativeTo.
func (f *finding) resolvedIn(dir string) *finding {
	return f.withPaths(func(path string) string { return strings.TrimPrefix(dir+path, "/") })
}

func (f *finding) withPaths(convert func(string) string) *finding {
	if len(f.problems) == 0 {
		return f
	}
	copied := *f
	copied.problems = slices.Clone(f.problems)
	for i := range copied.problems {
		copied.problems[i].File = convert(copied.problems[i].File)
	}
	return &copied
}

func union[T interface{ ~string | ~int }](a, b []T) []T {
	if len(b) == 0 {
		return a
	}
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// digest returns a digest of the images of policies.
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

// Policies returns the policies that cause changes, sorted.
func Policies(changes []edit.Change) []string {
	all := map[string]bool{}
	for _, c := range changes {
		all[c.Policy] = true
	}
	return slices.Sorted(maps.Keys(all))
}
