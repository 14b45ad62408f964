// Package build turns a tree into Kubernetes objects with kustomize: it generates a kustomization where there is none,
// applies the settings of the Kustomization over it, and traces everything that it reads. It opens no connection, runs
// no program, writes no file, and knows no cluster and no controller.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Request says what to build.
type Request struct {
	Tree *artifact.Tree
	Path string // of the directory in the tree; the root when empty

	// Settings over what is built, each as in a kustomization file.
	TargetNamespace         string
	NamePrefix, NameSuffix  string
	Labels, Annotations     map[string]string
	Patches                 []types.Patch
	Images                  []types.Image
	Components              []string // relative to Path
	IgnoreMissingComponents bool
	BuildMetadata           []string
}

// Result is what a build came to.
type Result struct {
	Objects []*unstructured.Unstructured
	Digest  string // of the objects, sha256 in hex
	Trace   *Trace
}

// kustomize keeps its OpenAPI schema in package globals (kubernetes-sigs/kustomize#4824): one build at a time.
var running sync.Mutex

// Build builds the objects. The result is not nil even with an error: its trace says when a new try may come to something else.
func Build(ctx context.Context, req Request) (*Result, error) {
	f := &filesystem{tree: req.Tree, trace: newTrace(req.Tree), generated: map[string][]byte{}}
	result := &Result{Trace: f.trace}
	root, err := f.prepare(req)
	if err != nil {
		return result, err
	}
	if err := ctx.Err(); err != nil {
		return result, err
	}
	result.Objects, err = f.run(root)
	if err != nil {
		return result, err
	}
	result.Digest, err = validate(result.Objects)
	return result, err
}

// prepare returns the directory that kustomize starts at: the path itself, or our own that stands over it.
func (f *filesystem) prepare(req Request) (string, error) {
	dir := path.Clean("./" + strings.TrimPrefix(req.Path, "/"))
	if strings.HasPrefix(dir, "..") {
		return "", refusal("spec.path %q reaches out of the source", req.Path).WithHint("Give a path below the root of the source").Final()
	}
	if f.trace.kind(f.tree, dir) != kindDir {
		return "", f.missing(dir)
	}
	if _, ok := f.findKustomization(dir); !ok {
		k, err := f.generate(dir)
		if err != nil {
			return "", err
		}
		if err := f.add(path.Join(mount, dir), k); err != nil {
			return "", err
		}
	}
	over, err := f.settings(req, dir)
	if err != nil || over == nil {
		return path.Join(mount, dir), err
	}
	return overlay, f.add(overlay, over)
}

func (f *filesystem) add(dir string, k *types.Kustomization) error {
	b, err := yaml.Marshal(k)
	if err != nil {
		return err
	}
	f.generated[path.Join(dir, konfig.DefaultKustomizationFileName())] = b
	return nil
}

// settings returns a kustomization with the request's settings over dir, or nil when there are none.
func (f *filesystem) settings(req Request, dir string) (*types.Kustomization, error) {
	k := &types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{path.Join("..", mount, dir)},
	}
	bare := *k
	k.Namespace, k.NamePrefix, k.NameSuffix = req.TargetNamespace, req.NamePrefix, req.NameSuffix
	k.Patches, k.Images, k.BuildMetadata, k.CommonAnnotations = req.Patches, req.Images, req.BuildMetadata, req.Annotations
	if len(req.Labels) > 0 {
		k.Labels = []types.Label{{Pairs: req.Labels}}
	}
	for _, c := range req.Components {
		name := path.Join(dir, c)
		if f.Exists(path.Join(mount, name)) {
			k.Components = append(k.Components, path.Join("..", mount, name))
		} else if !req.IgnoreMissingComponents {
			return nil, refusal("component %q of spec.components is not in the source", c).
				WithHint("Correct the path, which is relative to spec.path, or set spec.ignoreMissingComponents")
		}
	}
	if equal(k, &bare) {
		return nil, nil
	}
	return k, nil
}

func equal(a, b *types.Kustomization) bool {
	x, err1 := yaml.Marshal(a)
	y, err2 := yaml.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// run builds with kustomize and words its errors.
func (f *filesystem) run(root string) (objects []*unstructured.Unstructured, err error) {
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone // the file system is the restriction
	running.Lock()
	defer running.Unlock()
	defer func() {
		if f.schema {
			openapi.ResetOpenAPI() // the next build must not inherit this one's schema
		}
		if p := recover(); p != nil {
			objects, err = nil, refusal("kustomize cannot build the source: %v", p)
		}
	}()
	resources, err := krusty.MakeKustomizer(options).Run(f, root)
	if err != nil {
		return nil, f.explain(err)
	}
	for _, r := range resources.Resources() {
		b, err := r.MarshalJSON()
		if err != nil {
			return nil, refusal("%s cannot be read", r.CurId()).Because(err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(b); err != nil {
			return nil, refusal("%s is not a Kubernetes object", r.CurId()).Because(err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// explain prefers what we know of a failure over what kustomize says of it.
func (f *filesystem) explain(err error) error {
	if f.refused != nil {
		return f.refused
	}
	var problems []error
	for _, name := range f.files {
		if _, err := f.manifest(name); err != nil && strings.Contains(err.Error(), "not valid YAML") {
			problems = append(problems, err)
		}
	}
	if found := join(problems); found != nil {
		return found
	}
	return refusal("kustomize cannot build the source").Because(errors.New(show(err.Error())))
}

// validate checks what any object must have, all at once, and returns the digest of them all.
func validate(objects []*unstructured.Unstructured) (string, error) {
	h := sha256.New()
	var problems []error
	for _, o := range objects {
		if o.GetName() == "" {
			hint := "Give it a metadata.name"
			if o.GetGenerateName() != "" {
				hint = "metadata.generateName makes another object each time: give it a metadata.name"
			}
			problems = append(problems, refusal("an object of kind %s has no name", o.GetKind()).WithHint("%s", hint))
		}
		b, err := o.MarshalJSON()
		if err != nil {
			problems = append(problems, err)
		}
		fmt.Fprintf(h, "%d\n", len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), join(problems)
}
