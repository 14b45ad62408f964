package build

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// generate returns a kustomization for a directory that has no kustomization file. It lists every YAML file below dir,
// and every directory with its own kustomization file. As documented, all files must contain Kubernetes objects, and no
// object may be declared twice. The error lists all problems.
func (f *filesystem) generate(dir string) (*types.Kustomization, error) {
	g := &generator{filesystem: f, dir: dir, declared: map[identity]string{}, files: map[string]bool{},
		out: &types.Kustomization{}}
	if err := g.scan(dir); err != nil {
		return nil, err
	}
	if err := g.addLinks(); err != nil {
		return nil, err
	}
	f.limits, f.weight, f.extent = limits{}, yamlsize.Weight{}, extent{} // all files are read again
	return g.out, join(g.problems)
}

type generator struct {
	*filesystem
	dir      string
	out      *types.Kustomization
	declared map[identity]string // location of the latest declaration
	problems []error
	files    map[string]bool // regular files that were added
	links    []string        // symlinks that look like manifests
}

func (g *generator) scan(at string) error {
	if err := g.ctx.Err(); err != nil {
		return err
	}
	names, err := g.trace.listing(g.tree, at)
	if err != nil {
		return refusal("directory %s cannot be read", at).Because(err)
	}
	if at != g.dir {
		k, file, err := g.kustomization(at, parseKustomization)
		if err != nil {
			return err
		}
		if file != "" {
			if k.Kind != types.ComponentKind { // components apply only where a kustomization lists them
				g.out.Resources = append(g.out.Resources, relative(g.dir, at))
			}
			return nil
		}
	}
	for _, n := range names {
		name := path.Join(at, n)
		info, err := g.tree.Lstat(name)
		switch {
		case err != nil:
			return refusal("%s cannot be read", name).Because(err)
		case info.IsDir():
			if err := g.scan(name); err != nil {
				return err
			}
		case isManifest(n) && info.Mode()&fs.ModeSymlink != 0:
			g.links = append(g.links, name)
		case isManifest(n):
			g.files[name] = true
			g.add(name)
		}
	}
	return nil
}

// addLinks lists the symlinks whose targets are not listed already.
func (g *generator) addLinks() error {
	for _, name := range g.links {
		target, err := g.trace.resolve(g.tree, name)
		if errors.Is(err, fs.ErrNotExist) {
			to, _ := g.tree.ReadLink(name) // it was resolved above
			g.problems = append(g.problems, refusal("%s is a symlink to %q, which is not in the source", name, to).
				WithHint("Remove it, or add the file that it names"))
			continue
		}
		if err != nil || !g.files[target] {
			g.files[target] = err == nil
			g.add(name)
		}
	}
	return g.ctx.Err()
}

// add lists a file, unless it is empty.
func (g *generator) add(name string) {
	objects, err := g.manifests(name)
	g.problems = append(g.problems, err)
	if len(objects) > 0 {
		g.out.Resources = append(g.out.Resources, relative(g.dir, name))
	}
	g.problems = append(g.problems, notObjects(objects)...)
	for _, o := range objects {
		if first, ok := g.declared[o.identity]; ok && o.name != "" {
			g.problems = append(g.problems, twice(o.identity, []string{first, o.where}))
		}
		g.declared[o.identity] = o.where
	}
}

// relative returns name relative to dir.
func relative(dir, name string) string {
	if dir == "." {
		return name
	}
	return strings.TrimPrefix(name, dir+"/")
}
