package build

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	kustomizeTimeout = 5 * time.Minute
	kustomizeFree    = 96 << 20 // bytes of memory of a child that has loaded the schema and builds what is usual
)

// children run kustomize for all builds of this process.
var children = sync.OnceValue(func() *sandbox.Pool {
	return sandbox.New(sandbox.Options{Argument: childArgument, Work: "runs kustomize", Timeout: kustomizeTimeout,
		MaxMemory: guard.MemoryLimit() / 8 * 3, FreeMemory: kustomizeFree})
})

// run builds with kustomize in a child and explains its errors.
func (f *filesystem) run(root string) ([]*unstructured.Unstructured, error) {
	request := f.gather(root)
	if f.refused != nil {
		return nil, f.explain(nil)
	}
	var c *conversation
	err := f.pool.Do(f.ctx, "running kustomize", func(_ context.Context, child *sandbox.Child) error {
		c = &conversation{filesystem: f, child: child}
		f.output, f.outputValues = 0, 0
		err := child.Send(frameBuild, request)
		if err == nil {
			err = c.converse()
		}
		if f.schema {
			child.Retire() // a kustomization has changed the schema, which is a global of kustomize
		}
		return err
	})
	var ended *sandbox.Ended
	switch {
	case errors.As(err, &ended):
		return nil, f.explainEnded(ended)
	case err != nil:
		return nil, err
	case c.failed != nil || f.refused != nil:
		return nil, f.explain(c.failed)
	case len(c.problems) == 0:
		return c.objects, nil
	}
	if found := join(f.wrongFiles()); found != nil {
		return nil, found
	}
	return nil, join(c.problems)
}

// conversation is what a child and its parent say for one build.
type conversation struct {
	*filesystem
	child    *sandbox.Child
	objects  []*unstructured.Unstructured
	problems []error
	failed   error
}

// converse answers questions of the child until the result or an error.
func (c *conversation) converse() error {
	for {
		kind, content, err := c.child.Receive(maxOutput)
		if err != nil {
			return err
		}
		switch kind {
		case frameQuery:
			p, _, err := unpack(content, 2)
			if err != nil {
				return err
			}
			e := c.entry(p[0], p[1] != "")
			if err := c.child.Send(frameAnswer, e.pack(nil)); err != nil {
				return err
			}
		case frameObject:
			p, _, err := unpack(content, 5)
			if err != nil {
				return err
			}
			if c.add(p); c.refused != nil {
				c.child.Retire() // it still sends
				return nil
			}
		case frameDone:
			return nil
		case frameError:
			p, _, err := unpack(content, 2)
			if err != nil {
				return err
			}
			if c.failed = errors.New(p[0]); p[1] != "" {
				_ = c.refuse(refusal("%s", p[0]))
			}
			return nil
		default:
			return fmt.Errorf("the child sent a frame of the unknown kind %q", kind)
		}
	}
}

// add adds an object that the child has built.
func (c *conversation) add(p []string) {
	var problem error
	if p[4] != "" {
		problem = errors.New(p[4])
	}
	object, err := c.object(identity{kind: p[0], namespace: p[1], name: p[2]}, []byte(p[3]), problem)
	if err != nil {
		c.problems = append(c.problems, err)
		return
	}
	c.takeOrigin(object)
	c.objects = append(c.objects, object)
}

// explainEnded returns the error of a build whose child ended before it had an answer.
func (f *filesystem) explainEnded(e *sandbox.Ended) error {
	const what = "kustomize cannot build the source: "
	hint := "Look for what multiplies: patches, images, replacements and vars for many objects, texts that are put " +
		"into themselves, and bases that are listed more than once. Write the fields into the objects, or split the " +
		"source into several Kustomizations"
	switch e.Kind {
	case sandbox.Killed:
		refused := refusal(what + "its process was killed from outside").WithHint("The container has probably too " +
			"little memory: it is tried again. If it happens often, raise the memory limit of the controller")
		refused.Reason = guard.ReasonWaitingForMemory
		return refused
	case sandbox.OutOfTime:
		f.hasTimedOut = true
		return refusal(what+"it did not finish within %s with %s", f.pool.Timeout, &f.extent).WithHint("%s", hint)
	case sandbox.OutOfMemory:
		return refusal(what+"it uses more than %d MiB of memory with %s", f.pool.MaxMemory>>20, &f.extent).
			WithHint("%s", hint)
	case sandbox.TooMuchOutput:
		return refusal("an object has more than %d MiB", maxOutput>>20).WithHint("%s", hint)
	default:
		return refusal(what+"its process ended (%s)", e.Detail).WithHint("Run 'kustomize build' to reproduce it. " +
			"Other builds are not affected")
	}
}

// extent is how much kustomize is given, for errors.
type extent struct{ files, documents, patches, replacements, images int }

func (e *extent) add(k *types.Kustomization) {
	e.files++
	e.patches += len(patchesOf(k)) + len(k.PatchesStrategicMerge) //nolint:staticcheck // old but in use
	e.replacements += len(k.Replacements)
	e.images += len(k.Images)
}

func (e *extent) String() string {
	texts := []string{}
	for _, n := range []struct {
		count     int
		one, more string
	}{{e.files, "kustomization file", "kustomization files"}, {e.documents, "YAML document", "YAML documents"},
		{e.patches, "patch", "patches"}, {e.replacements, "replacement", "replacements"},
		{e.images, "image", "images"}} {
		switch n.count {
		case 0:
		case 1:
			texts = append(texts, "1 "+n.one)
		default:
			texts = append(texts, fmt.Sprint(n.count, " ", n.more))
		}
	}
	return strings.Join(texts, ", ")
}

// gather returns a request with what kustomize will read, as the kustomization files say: if it asked for each file,
// builds would take longer. What is missing is asked for.
func (f *filesystem) gather(root string) []byte {
	sorted := ""
	if f.sorted {
		sorted = "sorted"
	}
	g := &gathering{filesystem: f, has: map[string]bool{}, out: pack(nil, root, sorted)}
	g.directory(root)
	return g.out
}

type gathering struct {
	*filesystem
	has map[string]bool // full paths
	out []byte
}

// add adds what a path leads to, and returns it, or nil if it was added before.
func (g *gathering) add(full string) *entry {
	if g.has[full] || g.refused != nil {
		return nil
	}
	g.has[full] = true
	e := g.entry(full, true)
	g.out = e.pack(g.out)
	return e
}

// directory adds a directory with its kustomization file, and all that this one names.
func (g *gathering) directory(full string) {
	e := g.add(full)
	if e == nil || e.kind != kindDir {
		return
	}
	for _, n := range konfig.RecognizedKustomizationFileNames() {
		file := path.Join(e.real, n)
		g.add(file)
		if k := g.parsed[file]; k != nil {
			g.named(e.real, k)
		}
	}
}

// named adds what the kustomization in a directory names.
func (g *gathering) named(dir string, k *types.Kustomization) {
	for _, name := range slices.Concat(namedBy(k), k.Generators, k.Transformers, k.Validators) {
		if strings.Contains(name, "\n") || isRemote(name) {
			continue
		}
		full := path.Join(dir, name)
		if g.IsDir(full) {
			g.directory(full)
		} else {
			g.add(full)
		}
	}
}

// entry returns what a path leads to, and the content of a file if read is set.
func (f *filesystem) entry(full string, read bool) *entry {
	e := &entry{full: full, kind: kindFile, real: full, read: read}
	name, err := inside(full)
	if err != nil {
		e.kind = kindAbsent
	}
	if _, generated := f.generated[full]; err == nil && !generated {
		e.kind = f.trace.kind(f.tree, name)
		if e.kind == kindDir || !read {
			e.real, err = f.trace.resolve(f.tree, name)
			e.real = path.Join(mount, e.real)
		}
	}
	if err == nil && e.kind == kindFile && read {
		var content []byte
		content, err = f.ReadFile(full)
		e.content = string(content)
	}
	if err != nil {
		e.problem = err.Error()
	}
	return e
}
