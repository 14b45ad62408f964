package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Strategies of a copy.
const (
	Overwrite = extensionsv1beta1.CopyOverwrite // the default: a later file replaces an earlier one
	Merge     = extensionsv1beta1.CopyMerge     // YAML files are merged into existing ones, as Helm merges values
	Extract   = extensionsv1beta1.CopyExtract   // archives are replaced by their contents
)

// Copy copies files of a source to an output.
type Copy struct {
	From     string   // @<alias>/<path or glob>
	To       string   // @artifact/<path>; a directory if it ends with a slash
	Exclude  []string // globs, relative to the source or to the part of From before its first glob
	Strategy string
	Optional bool // do nothing if nothing matches From
}

// Output is one artifact to generate.
type Output struct {
	Name      string
	Namespace string // of the ExternalArtifact; empty for that of the generator
	Copies    []Copy
	Revision  string            // @<alias> whose revision the artifact gets; by default a digest of its content
	Origin    string            // @<alias> whose revision is recorded as the origin; may be empty
	Inputs    string            // @<alias>/<path> or @artifact/<path> of the exported YAML file; may be empty
	Metadata  string            // @<alias>/<path> of the file with metadata of the Namespace; may be empty
	Labels    map[string]string // captures of the path pattern
}

// errNothingSelected is the error of a copy that selects no file.
var errNothingSelected = errors.New("nothing is selected")

// Build makes the copies in order, and returns the tree. Trees are the sources by alias. It fails if a copy that is not
// optional selects nothing, or if all copies do: consumers of an incomplete artifact would prune the missing objects.
// The memory counts for the owner of ctx. The error is a fault.
func Build(ctx context.Context, copies []Copy, trees map[string]*artifact.Tree) (*artifact.Tree, error) {
	out := &builder{ctx: ctx, tree: artifact.FromMap(nil)}
	for _, c := range copies {
		err := out.copy(c, trees)
		if c.Optional && errors.Is(err, errNothingSelected) {
			continue
		}
		if err != nil {
			return nil, fault.New(meta.BuildFailedReason, "cannot copy '%s' to '%s'", c.From, c.To).Because(err).
				WithHint("Correct spec.artifacts[].copy or the source. The last artifact stays available")
		}
	}
	if !out.hasFiles {
		return nil, fault.New(meta.BuildFailedReason, "no copy selects a file, so the artifact would be empty").
			WithHint("Correct spec.artifacts[].copy or the source, or remove the artifact. The last artifact stays " +
				"available")
	}
	return out.tree, nil
}

// builder collects the copies of an output.
type builder struct {
	ctx       context.Context //nolint:containedctx // of the one call of Build
	tree      *artifact.Tree
	hasFiles  bool
	extracted int64 // bytes
}

// add adds a file or directory of a tree.
func (b *builder) add(tree *artifact.Tree, from, to string) (err error) {
	layers := []artifact.Layer{{Tree: b.tree, From: ".", To: "."}, {Tree: tree, From: from, To: to}}
	if !b.hasFiles { // the first one is not copied into another tree
		layers = layers[1:]
	}
	b.tree, err = artifact.Compose(layers...)
	b.hasFiles = true
	return err
}

// isDir reports whether a path in the output is a directory.
func (b *builder) isDir(to string) bool {
	info, err := b.tree.Lstat(to)
	return err == nil && info.IsDir()
}

// selection is the files that a copy selects.
type selection struct {
	tree *artifact.Tree // the selected files only
	file string         // the name of the file if From is one file
	dir  string         // the name of the directory if From is a directory that keeps its name
}

// copy makes one copy.
func (b *builder) copy(c Copy, trees map[string]*artifact.Tree) error {
	alias, pattern, err := split(c.From)
	if err != nil {
		return err
	}
	tree := trees[alias]
	if tree == nil {
		return fmt.Errorf("no source has the alias '%s'", alias)
	}
	s, err := choose(b.ctx, tree, pattern, c.Exclude)
	if err != nil {
		return err
	}
	to, isDir, err := place(c.To)
	if err != nil {
		return err
	}
	// As cp does: if the target is a directory, the file or directory is copied into it.
	target := to
	if name := s.file + s.dir; isDir || b.isDir(to) {
		target = path.Join(to, name)
	}
	switch c.Strategy {
	case "", Overwrite:
		return b.overwrite(s, target)
	case Merge:
		return b.merge(s, target)
	case Extract:
		return b.extract(s, to)
	default:
		return fmt.Errorf("the strategy '%s' is not one of %s, %s and %s", c.Strategy, Overwrite, Merge, Extract)
	}
}

// overwrite adds the selected files, and replaces existing ones.
func (b *builder) overwrite(s *selection, to string) error {
	if s.file != "" {
		return b.add(s.tree, s.file, to)
	}
	return b.add(s.tree, ".", to)
}

// choose returns the files that match a path or glob. Symlinks in the path of the base directory are followed; selected
// symlinks are copied as symlinks.
func choose(ctx context.Context, tree *artifact.Tree, pattern string, exclude []string) (*selection, error) {
	base, glob := pattern, ""
	if strings.ContainsAny(pattern, `*?[{\`) {
		base, glob = doublestar.SplitPattern(pattern)
	}
	base = path.Clean(base)
	info, err := tree.Stat(base)
	if err != nil {
		return nil, missing(base, err)
	}
	s := &selection{}
	if !info.IsDir() {
		if glob != "" {
			return nil, fmt.Errorf("'%s' is not a directory", base)
		}
		s.file = path.Base(base)
		s.tree, err = artifact.Compose(artifact.Layer{Tree: tree, From: base, To: s.file})
	} else {
		s.tree, err = tree.At(base)
		if glob == "" && base != "." {
			s.dir = path.Base(base)
		}
	}
	if err != nil {
		return nil, err
	}
	prefix := base
	if s.file != "" {
		prefix = path.Dir(base)
	}
	isSelected := matches(glob, prefix, exclude)
	s.tree = s.tree.Select(func(name string, isDir bool) bool { return !isDir && ctx.Err() == nil && isSelected(name) })
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(s.tree.Root().Entries) == 0 {
		return nil, nothing("no file matches '%s'", pattern)
	}
	return s, nil
}

// matches returns a function that reports whether a path below prefix matches the glob, and none of the exclusions.
func matches(glob, prefix string, exclude []string) func(string) bool {
	return func(name string) bool {
		if glob != "" && glob != "**" && !doublestar.MatchUnvalidated(glob, name) {
			return false
		}
		for _, e := range exclude {
			if doublestar.MatchUnvalidated(e, name) || doublestar.MatchUnvalidated(e, path.Join(prefix, name)) ||
				!strings.Contains(e, "/") && doublestar.MatchUnvalidated(e, path.Base(name)) {
				return false
			}
		}
		return true
	}
}

// missing explains that a file does not exist.
func missing(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nothing("'%s' does not exist in the source", name)
	}
	return err
}

// nothing returns an error that wraps [errNothingSelected] and has its own text.
func nothing(format string, args ...any) error {
	return &nothingSelected{text: fmt.Sprintf(format, args...)}
}

type nothingSelected struct{ text string }

func (e *nothingSelected) Error() string { return e.text }

func (e *nothingSelected) Unwrap() error { return errNothingSelected }

// split splits @<alias>/<path> into the alias and the path or glob.
func split(from string) (alias, pattern string, err error) {
	rest, ok := strings.CutPrefix(from, "@")
	alias, pattern, slash := strings.Cut(rest, "/")
	if !ok || !slash || alias == "" {
		return "", "", fmt.Errorf("'%s' does not have the form @<alias>/<path>", from)
	}
	if pattern = strings.TrimSuffix(pattern, "/"); pattern == "" {
		pattern = "."
	}
	return alias, pattern, nil
}

// place parses @artifact/<path>. It returns the path in the output, and whether it must be a directory.
func place(to string) (name string, isDir bool, err error) {
	rest, ok := strings.CutPrefix(to, "@artifact/")
	name = path.Clean(rest)
	if !ok || !fs.ValidPath(name) {
		return "", false, fmt.Errorf("'%s' does not have the form @artifact/<path>", to)
	}
	return name, name == "." || strings.HasSuffix(rest, "/"), nil
}
