package kustomization

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// inputs is what a build needs in addition to the tree and the spec. It is read again in each pass.
type inputs struct {
	substitution *build.Substitution
	keys         *decrypt.Keys
	secrets      []string     // values that must not appear in errors
	veil         *redact.Veil // of what was built with the inputs; nil before
	digest       string       // of all inputs
}

// inputRefs returns references to the ConfigMaps and Secrets that inputs are read from, for edges.
func inputRefs(obj *kustomizev1.Kustomization) []reconcile.Ref {
	var refs []reconcile.Ref
	if p := obj.Spec.PostBuild; p != nil {
		for _, from := range p.SubstituteFrom {
			refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: from.Kind}, obj.Namespace, from.Name))
		}
	}
	if d := obj.Spec.Decryption; d != nil && d.SecretRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, d.SecretRef.Name))
	}
	return refs
}

// readInputs reads what the build needs besides the artifact.
func (r *run) readInputs(ctx context.Context) *reconcile.Outcome {
	var err error
	r.inputs, err = r.inputsOf(ctx, r.obj)
	return r.notDeployed(err)
}

// inputsOf reads the ConfigMaps and Secrets that the spec refers to.
func (c *Controller) inputsOf(ctx context.Context, obj *kustomizev1.Kustomization) (*inputs, error) {
	h := sha256.New()
	variables, err := spec.ReadVariables(ctx, c.Live, obj)
	if err != nil {
		return nil, err
	}
	substitution := variables.Substitution(c.Options.StrictSubstitutions)
	if substitution != nil {
		fmt.Fprintln(h, "variables")
		access.HashData(h, variables.Values)
	}
	if allowed := obj.Annotations[kustomizev1.AllowEmptyAnnotation]; allowed != "" {
		fmt.Fprintf(h, "may be empty at %q\n", allowed)
	}
	keys, err := c.readKeys(ctx, obj, h)
	if err != nil {
		return nil, err
	}
	in := &inputs{substitution: substitution, keys: keys, digest: hex.EncodeToString(h.Sum(nil))}
	for name := range variables.Secret {
		in.secrets = append(in.secrets, variables.Values[name])
	}
	return in, nil
}

// readKeys returns the keys of spec.decryption, nil if it is not set, and adds them to the hash.
func (c *Controller) readKeys(ctx context.Context, obj *kustomizev1.Kustomization, h hash.Hash) (*decrypt.Keys,
	error) {
	d := c.Options.Decryption
	d.Reader = c.Live
	return d.Keys(ctx, obj.Namespace, obj.Spec.Decryption, h)
}

// redact replaces the values of Secrets in an error, which may quote parts of objects that contain them. What kind of
// error it is stays.
func (in *inputs) redact(err error) error {
	if in.veil != nil {
		return in.veil.Error(err)
	}
	return redact.Error(err, in.secrets...)
}
