package kustomization

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/decrypt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// inputs is what a build needs in addition to the tree and the spec. It is read again in each pass.
type inputs struct {
	substitution *build.Substitution
	keys         *decrypt.Keys
	secrets      []string // values that must not appear in errors
	digest       string   // of all inputs
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

// readInputs reads the ConfigMaps and Secrets that the spec refers to.
func (c *Controller) readInputs(ctx context.Context, obj *kustomizev1.Kustomization) (*inputs, error) {
	h := sha256.New()
	variables, err := spec.ReadVariables(ctx, c.Live, obj)
	if err != nil {
		return nil, err
	}
	substitution := variables.Substitution(c.Options.StrictSubstitutions)
	if substitution != nil {
		fmt.Fprintln(h, "variables")
		hashMap(h, variables.Values)
	}
	if allowed := obj.Annotations[kustomizev1.AllowEmptyAnnotation]; allowed != "" {
		fmt.Fprintf(h, "may be empty at %q\n", allowed)
	}
	keys, err := c.readKeys(ctx, obj, h)
	if err != nil {
		return nil, err
	}
	return &inputs{substitution: substitution, keys: keys, secrets: variables.Secret,
		digest: hex.EncodeToString(h.Sum(nil))}, nil
}

// hashMap writes a map to a hash, in a canonical form.
func hashMap[V string | []byte](h hash.Hash, m map[string]V) {
	fmt.Fprintf(h, "%d\n", len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(h, "%d %s%d %s", len(k), k, len(m[k]), string(m[k]))
	}
}

// minSecretLength is the minimum length of values that are redacted. Shorter values occur by chance.
const minSecretLength = 4

// redact replaces the values of Secrets in an error, which may quote parts of objects that contain them.
func (in *inputs) redact(err error) error {
	if err == nil || in.hide(err.Error()) == err.Error() {
		return err
	}
	return &redactedError{err: err, hide: in.hide}
}

// hide replaces the values of Secrets in a text.
func (in *inputs) hide(text string) string {
	// One value may be part of another.
	slices.SortFunc(in.secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range in.secrets {
		if len(s) >= minSecretLength {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return text
}

// redactedError is an error whose text is redacted. It is of all kinds that the error is of, such as a wait for the
// cluster, but the text of that error cannot be read from it: a fault in its chain is redacted, too.
type redactedError struct {
	err  error
	hide func(string) string
}

func (e *redactedError) Error() string { return e.hide(e.err.Error()) }

func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }

func (e *redactedError) As(target any) bool {
	wanted, ok := target.(**fault.Fault)
	if !ok {
		return errors.As(e.err, target)
	}
	original := fault.As(e.err)
	if original == nil {
		return false
	}
	f := *original
	f.What, f.Hint = e.hide(f.What), e.hide(f.Hint)
	if f.Err != nil {
		f.Err = &redactedError{err: f.Err, hide: e.hide}
	}
	*wanted = &f
	return true
}
