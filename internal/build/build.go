// Package build turns a tree into Kubernetes objects with kustomize, which runs in a child process. It generates a
// kustomization file if the directory has none, merges the settings of the Kustomization into it, and records
// everything that it reads. It opens no network connections except through [Request.Fetch] and [Request.Decryption],
// runs no other programs, writes no files, and does not depend on a cluster or a controller.
package build

import (
	"context"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Request describes what to build.
type Request struct {
	Tree *artifact.Tree
	Path string // of the directory in the tree; the root when empty

	// Settings that are merged into the kustomization file, in the format of that file. They replace its namespace,
	// prefix, suffix and images of the same name, and are added to its patches, components and build metadata.
	TargetNamespace         string
	NamePrefix, NameSuffix  string
	Patches                 []types.Patch
	Images                  []types.Image
	Components              []string // relative to Path
	IgnoreMissingComponents bool
	BuildMetadata           []string

	// Fetch downloads a manifest that a kustomization refers to by URL. If nil, remote files and bases are refused.
	Fetch func(ctx context.Context, url string) ([]byte, error)
	// FetchBase fetches the repository of a base that a kustomization refers to by URL. If nil, they are refused.
	FetchBase func(ctx context.Context, base remotebase.Base) (*artifact.Tree, error)

	// Decryption holds the keys for files encrypted with SOPS. If nil, nothing is decrypted.
	Decryption *decrypt.Keys

	// Redact replaces values encrypted with SOPS by [decrypt.Redacted] and zeros, for builds without keys.
	Redact bool

	// Placeholders are used by Redact instead. May be nil.
	Placeholders *redact.Placeholders

	// Substitution replaces variables in the built objects. If nil, variables are not replaced.
	Substitution *Substitution

	// Labels and Annotations are set on the built objects, but not on templates inside them.
	Labels, Annotations map[string]string
}

// Result is the result of a build.
type Result struct {
	Objects []*unstructured.Unstructured // in the order of kustomize's output
	Digest  string                       // of the objects, sha256 in hex
	Trace   *Trace
	// Origin returns the file that an object comes from, or "" if that is not known. It may need another build.
	Origin func(*unstructured.Unstructured) string
	// Locate returns the file and the line of a field of an object, the file alone, or "". It costs what Origin does.
	Locate func(o *unstructured.Unstructured, field string) string
	// Warnings are about objects that were built, but perhaps not as meant.
	Warnings []string
	// TypeHint returns what to do if fields of an object are refused because of their types, or "" if variables did not
	// change them.
	TypeHint func(*unstructured.Unstructured) string
	Secrets  []string // decrypted values and those of variables from Secrets, which messages must not contain
	// Veil hides in the objects what comes from secrets, also if it was transformed.
	Veil  *redact.Veil
	Empty bool // whether the kustomization file declares an empty list of resources
	// Again reports whether another build of the same tree may have a different result: a key service failed, or
	// something was fetched.
	Again bool
}

// Build builds the objects. The result is not nil even with an error: [Trace.Unchanged] reports whether a retry would
// read the same input, unless the context ended. Errors are faults of reason BuildFailed, or ArtifactFailed if Path
// does not exist. They contain no decrypted values.
func Build(ctx context.Context, req Request) (*Result, error) {
	f := newFilesystem(ctx, req.Tree)
	f.secrets.keys, f.secrets.redact, f.remote.fetch = req.Decryption, req.Redact, req.Fetch
	f.remote.fetchBase = req.FetchBase
	f.secrets.placeholders = req.Placeholders
	var err error
	if f.lease, err = guard.BudgetOf(ctx).Acquire(ctx, "the build", leaseStep); err != nil {
		return &Result{Trace: f.trace, Origin: f.origin, Locate: f.locate, Again: true}, err
	}
	result, err := f.build(req)
	f.lease.Shrink(int64(max(f.weight.Values, f.outputValues)) * builtBytes)
	guard.HoldWhile(f.lease, result)
	if f.hasTimedOut || fault.Reason(err, "") == guard.ReasonWaitingForMemory {
		result.Again = true
	}
	switch {
	case ctx.Err() != nil:
		return result, ctx.Err()
	case len(f.secrets.failed) > 0:
		return result, join(f.secrets.failed)
	case err != nil && f.usesSecrets(req) && !f.secrets.redact:
		return result, f.withoutSecrets(req)
	default:
		result.Veil = f.veil(req, result)
		return result, f.checkRenamed(req, result, err)
	}
}

func (f *filesystem) build(req Request) (*Result, error) {
	f.request = req
	result := &Result{Trace: f.trace, Origin: f.origin, Locate: f.locate}
	k, err := f.prepare(req)
	if err == nil && k.CheckEmpty() == nil {
		result.Objects, err = f.make(k)
	}
	f.built = result.Objects
	if err == nil {
		err = f.decryptValues(result.Objects)
	}
	result.Secrets = f.secrets.values
	if s := req.Substitution; s.hasSecrets() {
		for name := range s.Secret {
			result.Secrets = append(result.Secrets, s.Variables[name])
		}
	}
	result.Again, result.Empty = f.secrets.again || f.remote.any(),
		f.empty && len(result.Objects) == 0
	if err == nil && req.Substitution != nil {
		err = f.substitute(result.Objects, req.Substitution)
	}
	result.Warnings = f.warnings
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

// make builds the objects. It runs kustomize only if the kustomization does more than list files.
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

// object converts an object of kustomize to the types of the Kubernetes JSON decoder. The error is why kustomize cannot
// write it as JSON.
func (f *filesystem) object(id identity, text []byte, err error) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := f.takeOutput(id.String(), text); err != nil {
		return nil, f.refuse(err)
	}
	if err == nil {
		err = object.UnmarshalJSON(text)
	}
	if err == nil {
		return object, nil
	}
	what := id.String()
	if where := f.declaring(id.kind, id.name); len(where) > 0 {
		what += " in " + where[0]
	}
	if strings.Contains(err.Error(), "map[interface") {
		return nil, refusal("%s has a key that is a number or a boolean", what).
			WithHint("Keys must be strings: quote it")
	}
	return nil, refusal("%s is not an object that JSON can hold", what).Because(err)
}
