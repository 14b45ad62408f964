package preview

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

const maxScanned = 1 << 20 // bytes of a kustomization file

// reach finds which directories and files a build may read, without a build. It finds too many rather than too few: a
// name in a kustomization file that exists in the tree counts as read. So a build that a change cannot reach is skipped
// at the cost of reading its kustomization files.
type reach struct {
	tree *artifact.Tree
	refs map[string][]string // by kustomization file: the names that it refers to
}

func newReach(tree *artifact.Tree) *reach { return &reach{tree: tree, refs: map[string][]string{}} }

// touches reports whether a build of a directory may read one of the changed files.
func (r *reach) touches(dir string, components []string, changed *changeSet) bool {
	seen := map[string]bool{}
	var visit func(name string) bool
	visit = func(name string) bool {
		name = path.Clean(name)
		if name == "/" {
			name = "."
		}
		if seen[name] || strings.HasPrefix(name, "..") {
			return false
		}
		seen[name] = true
		if changed.has(name) {
			return true
		}
		info, err := r.tree.Stat(name)
		if err != nil || !info.IsDir() {
			return false
		}
		if real, err := r.tree.Resolve(name); err != nil || real != name && visit(real) {
			return true
		}
		for _, file := range r.kustomizations(name) {
			if slices.ContainsFunc(r.references(file), visit) {
				return true
			}
		}
		return false
	}
	start := path.Clean(strings.TrimPrefix(path.Clean("/"+dir), "/"))
	for _, c := range components {
		if visit(path.Join(start, c)) {
			return true
		}
	}
	return visit(start)
}

// changeSet is a set of changed files.
type changeSet struct {
	list  []string // in order
	files map[string]bool
	above map[string]bool // the files, and the directories that contain them
}

func newChangeSet(files []string) *changeSet {
	c := &changeSet{list: files, files: map[string]bool{}, above: map[string]bool{}}
	for _, name := range files {
		c.files[name] = true
		for ; !c.above[name]; name = path.Dir(name) {
			c.above[name] = true
		}
	}
	return c
}

// has reports whether a name changed, or a file below it, or a file that was in the place of a directory above it.
func (c *changeSet) has(name string) bool {
	if c.above[name] {
		return true
	}
	for ; name != "." && name != "/"; name = path.Dir(name) {
		if c.files[name] {
			return true
		}
	}
	return false
}

// kustomizations returns the kustomization files that a build of a directory reads: its own one, or if it has none,
// those of the directories below. A directory with symlinks is listed as a reference to itself and all of them.
func (r *reach) kustomizations(dir string) []string {
	entries, err := r.tree.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name }) {
			return []string{path.Join(dir, name)}
		}
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, r.kustomizations(path.Join(dir, e.Name()))...)
		}
		if e.Type()&fs.ModeSymlink != 0 {
			out = append(out, path.Join(dir, e.Name()))
		}
	}
	return out
}

// references returns the names in the tree to which the texts of a kustomization file may refer, and the target of a
// symlink.
func (r *reach) references(file string) []string {
	if refs, known := r.refs[file]; known {
		return refs
	}
	r.refs[file] = nil // a file may refer to itself
	var out []string
	if real, err := r.tree.Resolve(file); err == nil && real != file {
		out = append(out, real)
	}
	info, err := r.tree.Stat(file)
	if err != nil || info.IsDir() || info.Size() > maxScanned {
		r.refs[file] = out
		return out
	}
	content, err := r.tree.ReadFile(file)
	var parsed any
	if err == nil {
		_ = yaml.Unmarshal(content, &parsed) // the build reports what is wrong
	}
	dir := path.Dir(file)
	texts(parsed, func(text string) {
		for _, candidate := range []string{text, text[strings.IndexByte(text, '=')+1:]} { // key=file of a generator
			if candidate == "" || len(candidate) > 4096 || strings.ContainsAny(candidate, "\n\x00") {
				continue
			}
			name := path.Join(dir, candidate)
			if !slices.Contains(out, name) && (strings.Contains(candidate, "/") || strings.Contains(candidate, ".")) {
				out = append(out, name) // also if it does not exist: the change may create it
				if isYAML(name) {
					out = append(out, r.nested(name)...)
				}
			} else if _, err := r.tree.Lstat(name); err == nil && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	})
	r.refs[file] = out
	return out
}

// nested returns the references of the file of a generator or a transformer, which may name other files.
func (r *reach) nested(name string) []string {
	info, err := r.tree.Stat(name)
	if err != nil || info.IsDir() || info.Size() > maxScanned {
		return nil
	}
	content, err := r.tree.ReadFile(name)
	if err != nil || !strings.Contains(string(content), "builtin") {
		return nil
	}
	return r.references(name)
}

func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// texts calls visit for all texts in a value.
func texts(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, item := range v {
			texts(item, visit)
		}
	case map[string]any:
		for _, item := range v {
			texts(item, visit)
		}
	}
}
