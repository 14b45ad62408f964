package build

import (
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// generate lists the manifests below dir for a directory that has no kustomization file: every YAML file, and every
// directory that has one of its own. All files must hold Kubernetes objects, as documented, and no object
// twice; all that is wrong is told at once.
func (f *filesystem) generate(dir string) (*types.Kustomization, error) {
	g := &generator{filesystem: f, dir: dir, declared: map[identity]string{}, out: &types.Kustomization{}}
	if err := g.scan(dir); err != nil {
		return nil, err
	}
	f.reads, f.input, f.weight = 0, 0, weight{} // kustomize reads it all again
	return g.out, join(g.problems)
}

type generator struct {
	*filesystem
	dir      string
	out      *types.Kustomization
	declared map[identity]string // where an object is
	problems []error
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
		k, file, err := g.kustomization(at)
		if err != nil {
			return err
		}
		if file != "" {
			if k.Kind != types.ComponentKind { // components are for those who name them
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
		case isManifest(n):
			g.add(name)
		}
	}
	return nil
}

// add lists a file, if it holds anything.
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

// relative gives name as seen from dir.
func relative(dir, name string) string {
	if dir == "." {
		return name
	}
	return strings.TrimPrefix(name, dir+"/")
}
