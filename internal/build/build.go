// Package build turns a tree into Kubernetes objects with kustomize: it generates a kustomization where there is none,
// merges the settings of the Kustomization into it, and traces everything that it reads. It opens no connection, runs
// no program, writes no file, and knows no cluster and no controller.
package build

import (
	"context"
	"errors"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/decrypt"
)

// Request says what to build.
type Request struct {
	Tree *artifact.Tree
	Path string // of the directory in the tree; the root when empty

	// Settings over what the kustomization file says, each as in such a file: they replace its namespace, its
	// prefix, its suffix, and its images of the same name, and are added to its patches, components and build
	// metadata.
	TargetNamespace         string
	NamePrefix, NameSuffix  string
	Patches                 []types.Patch
	Images                  []types.Image
	Components              []string // relative to Path
	IgnoreMissingComponents bool
	BuildMetadata           []string

	// Fetch gets a manifest that a kustomization names by an https:// URL; all that is remote is refused when nil.
	Fetch func(ctx context.Context, url string) ([]byte, error)

	// Decryption decrypts what SOPS encrypted; nothing is when nil.
	Decryption *decrypt.Keys

	// Redact puts [decrypt.Redacted] and zeros in place of what SOPS encrypted, for those who have no keys.
	Redact bool

	// Substitution of variables in the objects built; none when nil.
	Substitution *Substitution

	// Labels and Annotations are set on the objects built, and on nothing inside them.
	Labels, Annotations map[string]string
}

// Result is what a build came to.
type Result struct {
	Objects []*unstructured.Unstructured // in the order that kustomize gives them
	Digest  string                       // of the objects, sha256 in hex
	Trace   *Trace
	// Origin tells which file an object comes from, or nothing where that is not known. It costs another build.
	Origin  func(*unstructured.Unstructured) string
	Secrets []string // values that were decrypted, for no diff to show
	Empty   bool     // whether the kustomization file says that there are no objects: its resources are an empty list
	// whether another try may come to something else although nothing changed: a key service failed, or
	// something was fetched
	Again bool
}

// Build builds the objects. The result is not nil even with an error: its trace says when a new try may come
// to something else, unless the context ended. Errors are faults of reason BuildFailed, or ArtifactFailed
// when Path is not there. They hold nothing that was decrypted.
func Build(ctx context.Context, req Request) (*Result, error) {
	f := newFilesystem(ctx, req.Tree)
	f.secrets.keys, f.secrets.redact, f.remote.fetch = req.Decryption, req.Redact, req.Fetch
	result, err := f.build(req)
	switch {
	case ctx.Err() != nil:
		return result, ctx.Err()
	case len(f.secrets.failed) > 0:
		return result, join(f.secrets.failed)
	case err != nil && len(f.secrets.plain) > 0:
		return result, f.withoutSecrets(req)
	default:
		return result, err
	}
}

func (f *filesystem) build(req Request) (*Result, error) {
	f.request = req
	result := &Result{Trace: f.trace, Origin: f.origin}
	k, err := f.prepare(req)
	if err == nil && k.CheckEmpty() == nil {
		result.Objects, err = f.make(k)
	}
	f.built = result.Objects
	if err == nil {
		err = f.decryptValues(result.Objects)
	}
	result.Secrets = f.secrets.values
	result.Again, result.Empty = f.secrets.again || len(f.remote.brought) > 0 || f.remote.failed,
		f.empty && len(result.Objects) == 0
	if err == nil && req.Substitution != nil {
		err = f.substitute(result.Objects, req.Substitution)
	}
	if err != nil {
		return result, err
	}
	if err := f.validateMetadata(result.Objects); err != nil {
		return result, err
	}
	for _, o := range result.Objects {
		setAll(o.GetLabels, o.SetLabels, req.Labels)
		setAll(o.GetAnnotations, o.SetAnnotations, req.Annotations)
	}
	result.Digest, err = f.validate(result.Objects)
	return result, err
}

func setAll(get func() map[string]string, set func(map[string]string), more map[string]string) {
	if len(more) == 0 {
		return
	}
	all := get()
	if all == nil {
		all = map[string]string{}
	}
	for k, v := range more {
		all[k] = v
	}
	set(all)
}

// make makes the objects, with kustomize if it has anything to do.
func (f *filesystem) make(k *types.Kustomization) (objects []*unstructured.Unstructured, err error) {
	defer func() {
		if p := recover(); p != nil {
			objects, err = nil, refusal("kustomize cannot build the source: %v", p)
		}
	}()
	if objects, ok, err := f.plain(f.root, k); ok {
		return objects, err
	}
	return f.run(path.Join(mount, f.root))
}

// run builds with kustomize and words its errors.
func (f *filesystem) run(root string) ([]*unstructured.Unstructured, error) {
	if !f.schema {
		objects, err := f.runWith(root, aside)
		if !errors.Is(f.refused, errOwnSchema) {
			return objects, err
		}
		f.refused = nil // a base brings a schema: once more, alone
	}
	return f.runWith(root, alone)
}

// runWith builds while it holds so much of the schema.
func (f *filesystem) runWith(root string, share int64) (objects []*unstructured.Unstructured, err error) {
	if err := f.takeSchema(share); err != nil {
		return nil, err
	}
	defer f.giveSchema()
	options := krusty.MakeDefaultOptions()                // plugins and Helm are off
	options.LoadRestrictions = types.LoadRestrictionsNone // the file system is the restriction
	if f.sorted {
		options.Reorder = krusty.ReorderOptionUnspecified // the kustomization says how; else kustomize warns
	}
	resources, err := krusty.MakeKustomizer(options).Run(f, root)
	if err != nil || f.refused != nil {
		return nil, f.explain(err)
	}
	var problems []error
	for _, r := range resources.Resources() {
		object, err := f.object(r)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		f.takeOrigin(object)
		objects = append(objects, object)
	}
	if len(problems) == 0 {
		return objects, nil
	}
	if found := join(f.wrongFiles()); found != nil {
		return nil, found
	}
	return nil, join(problems)
}

// object gives what kustomize made as the API server takes it.
func (f *filesystem) object(r *resource.Resource) (*unstructured.Unstructured, error) {
	id := identity{kind: r.GetKind(), namespace: r.GetNamespace(), name: r.GetName()}
	object := &unstructured.Unstructured{}
	b, err := r.MarshalJSON()
	if err == nil {
		err = object.UnmarshalJSON(b)
	}
	if err == nil {
		return object, nil
	}
	what := id.String()
	if where := f.declaring(id.kind, id.name); len(where) > 0 {
		what += " in " + where[0]
	}
	if strings.Contains(err.Error(), "map[interface") {
		return nil, refusal("%s has a key that is a number or a boolean", what).WithHint("Keys are text: quote it")
	}
	return nil, refusal("%s is not an object that JSON can hold", what).Because(err)
}
