package kustomization

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/decrypt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// inputs is what a build takes beside the tree and the spec. It is held for one pass.
type inputs struct {
	substitution *build.Substitution
	keys         *decrypt.Keys
	secret       []string // values that no error may show
	digest       string   // of all of them
}

// inputRefs lists the ConfigMaps and Secrets that the inputs come from. A change of one of them wakes the
// Kustomization.
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

// inputs reads what the spec refers to.
func (r *run) inputs(ctx context.Context) (*inputs, error) {
	in, h := &inputs{}, sha256.New()
	variables, err := spec.ReadVariables(ctx, r.Configs, r.obj)
	if err != nil {
		return nil, err
	}
	in.secret = variables.Secret
	if in.substitution = variables.Substitution(r.Options.StrictSubstitutions); in.substitution != nil {
		fmt.Fprintln(h, "variables")
		digestMap(h, variables.Values)
	}
	if err := r.readKeys(ctx, in, h); err != nil {
		return nil, err
	}
	in.digest = hex.EncodeToString(h.Sum(nil))
	return in, nil
}

// digestMap writes a map to a hash, in one way only.
func digestMap[V string | []byte](h hash.Hash, m map[string]V) {
	fmt.Fprintf(h, "%d\n", len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(h, "%d %s%d %s", len(k), k, len(m[k]), string(m[k]))
	}
}

// shortestSecret is the length from which on a value is taken out of errors: a shorter one is no secret, and
// is everywhere.
const shortestSecret = 4

// hide takes the values of Secrets out of an error, which may repeat parts of the objects that they were put into.
func (in *inputs) hide(err error) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	hidden := said
	slices.SortFunc(in.secret, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	for _, s := range in.secret {
		if len(s) >= shortestSecret {
			hidden = strings.ReplaceAll(hidden, s, "***")
		}
	}
	if hidden == said {
		return err
	}
	f := fault.New(fault.Reason(err, meta.ReconciliationFailedReason), "%s", hidden)
	if was := fault.As(err); was != nil {
		f.Terminal, f.RetryAfter = was.Terminal, was.RetryAfter
	}
	return f
}
