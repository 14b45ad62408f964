// Package scan finds the values to change in a repository so that it has the images of a plan. Results are
// cached by the hashes of files and directories: the next scan reads only files that changed, and files that
// refer to a policy whose image changed.
package scan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxRead     = 16 << 20 // bytes of a file; larger files are not scanned
	maxDepth    = 256
	maxPath     = 4 << 10 // bytes of the path of a file or directory
	maxProblems = 100     // of a repository
	maxPolicies = 20_000  // that the files of a repository may refer to
	maxChanges  = 10_000  // of a result; more only if they are in one file
	maxEdits    = 64 << 20
)

// MaxEdits returns how many bytes the edited files of a result may have together, apart from the first one: 64 MiB, but
// at most a sixteenth of the memory budget.
func MaxEdits() int64 { return min(maxEdits, guard.Memory().Total()/16) }

// Files reads the files of a commit.
type Files interface {
	List(dir plumbing.Hash, most int) ([]git.File, error)
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
	// Incomplete means that the scan ended before all changes were found, as there are too many for one commit. Another
	// scan of the commit with these changes finds the next ones. Missing is empty.
	Incomplete bool

	original []plumbing.Hash // of the edited files
	bytes    int64           // of the edited files
	lease    *guard.Lease    // for the edited files
}

// Release gives back the memory of the edited files, which must not be used any longer. Otherwise it is given back some
// time after their last use.
func (r *Result) Release() { r.lease.Release() }

// Scanner scans repositories, and caches what it found. The zero value is ready to use. It must not be used
// concurrently.
type Scanner struct {
	bindings [sha256.Size]byte // digest of the bindings that the cache is valid for
	cache    *cache
	Read     int // number of files and directories that were read so far
}

// cacheKey identifies the content of a file or a directory, independent of its path.
type cacheKey struct {
	hash            plumbing.Hash
	isKustomization bool // the file has a name that kustomize loads
}

// Scan finds the values below a directory of a commit that the plan changes. Bound files of Helm values must
// be below the directory too.
func (s *Scanner) Scan(ctx context.Context, files Files, root plumbing.Hash, dir string, plan Plan) (Result, error) {
	s.resetIfStale(plan)
	p := &pass{Scanner: s, ctx: ctx, files: files, plan: plan, byPath: map[string]bool{}, entries: git.MaxEntries()}
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
	p.result.lease = guard.NewLease(ctx, "changing files")
	f, err := p.visit(dir, top, 0)
	if err != nil {
		p.result.Release()
		return Result{}, err
	}
	if len(p.result.Edits) > 0 {
		guard.HoldWhile(p.result.lease, &p.result.Edits[0])
	}
	for i := range plan.Bindings {
		if !p.result.Incomplete && !slices.Contains(f.found, i) {
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
	if s.cache == nil || s.bindings != id || s.cache.full {
		s.cache, s.bindings = &cache{found: map[cacheKey]*finding{}}, id
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

	entries int // that directories which are being visited may still have
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
	listing, err := p.files.List(dir, p.entries)
	if errors.Is(err, git.ErrTooManyEntries) {
		err = fmt.Errorf("it has, with the directories above it, more than %d entries", git.MaxEntries())
	}
	return listing, err
}

// visit scans a directory and everything below it. The problems it returns have paths relative to the root of the
// repository.
func (p *pass) visit(dir string, hash plumbing.Hash, depth int) (*finding, error) {
	if f := p.cached(cacheKey{hash: hash}); f != nil && !p.byPath[dir] {
		return f.resolvedIn(dir), nil
	}
	if depth > maxDepth || len(dir) > maxPath {
		return nil, fmt.Errorf("directories are nested deeper than %d, or their paths are longer than %d bytes",
			maxDepth, maxPath)
	}
	listing, err := p.list(hash)
	if err != nil {
		return nil, fmt.Errorf("directory '%s': %w", dir, err)
	}
	p.entries -= len(listing)
	defer func() { p.entries += len(listing) }()
	all, upToDate := &finding{upToDate: true}, true
	for _, e := range listing {
		if p.result.Incomplete {
			upToDate = false
			break
		}
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
		if err := all.merge(f); err != nil {
			return nil, err
		}
	}
	all.upToDate = upToDate
	if all.images = digest(all.policies, p.plan.Images); all.upToDate {
		p.store(cacheKey{hash: hash}, all.relativeTo(dir))
	}
	return all, nil
}

func (p *pass) store(s cacheKey, f *finding) {
	p.cache.add(guard.OwnerOf(p.ctx), s, f)
}

// cached returns the cached finding of a key, nil unless it is valid for the images of the plan.
func (p *pass) cached(s cacheKey) *finding {
	f := p.cache.found[s]
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
	content, changes, f, err := apply(p.ctx, file, content, p.plan)
	if err != nil {
		return nil, err
	}
	if len(changes) > 0 && bytes.Equal(original, content) {
		f.problems = append(f.problems, edit.Problem{File: file, Line: changes[0].Line,
			Message: "a marker and a binding set different images"})
		changes = nil
	}
	if len(changes) > 0 {
		return f, p.add(file, hash, content, changes)
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

// held is how often the content of an edited file is in memory until it is pushed.
const held = 5

// add adds the changes of a file to the result, unless these are too many for one commit.
func (p *pass) add(file string, hash plumbing.Hash, content []byte, changes []edit.Change) error {
	r := &p.result
	if len(file) > maxPath {
		return fmt.Errorf("the path of file '%.100s' is longer than %d bytes", file, maxPath)
	}
	if len(r.Edits) > 0 && (len(r.Changes)+len(changes) > maxChanges || r.bytes+int64(len(content)) > MaxEdits()) {
		r.Incomplete = true
		return nil
	}
	if err := r.lease.Grow(p.ctx, held*int64(len(content))); err != nil {
		return err
	}
	r.add(file, hash, content, changes)
	return nil
}

// parsed is how often a file is in memory while it is edited: before and after.
const parsed = 2

// apply sets the images of a plan in one file. It takes memory while the file is parsed. A file that needs more than
// there is has a problem.
func apply(ctx context.Context, file string, content []byte, plan Plan) ([]byte, []edit.Change, *finding, error) {
	if edit.Parses(file, content, plan.Bindings) {
		lease, err := guard.BudgetOf(ctx).Acquire(ctx, "changing '"+file+"'", parsed*yamlsize.Memory(content))
		if f := fault.As(err); f != nil && f.Reason == guard.ReasonTooLarge {
			return content, nil, &finding{problems: []edit.Problem{{File: file,
				Message: "needs too much memory, not updated; split it"}}}, nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		defer lease.Release()
	}
	marked := edit.Markers(file, content, plan.Images)
	bound := edit.Bound(file, marked.Content, plan.Bindings)
	return bound.Content, append(marked.Changes, bound.Changes...), &finding{
		policies: union(marked.Policies, bound.Policies), found: bound.Found,
		problems: append(marked.Problems, bound.Problems...),
	}, nil
}

func (r *Result) add(file string, original plumbing.Hash, content []byte, changes []edit.Change) {
	r.Edits = append(r.Edits, git.Edit{Path: file, Content: content})
	r.Changes = append(r.Changes, changes...)
	r.original = append(r.original, original)
	r.bytes += int64(len(content))
}

// Only returns the part of a result that one policy causes.
func (r *Result) Only(ctx context.Context, files Files, plan Plan, policy string) (Result, error) {
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
		content, changes, _, err := apply(ctx, e.Path, content, part)
		if err != nil {
			return only, err
		}
		if len(changes) > 0 {
			only.add(e.Path, r.original[i], content, changes)
		}
	}
	return only, nil
}

// Policies returns the policies that cause changes, sorted.
func Policies(changes []edit.Change) []string {
	all := map[string]bool{}
	for _, c := range changes {
		all[c.Policy] = true
	}
	return slices.Sorted(maps.Keys(all))
}
