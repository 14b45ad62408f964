package sync

import (
	"context"
	"fmt"
	"hash"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/substitute"
)

// readVariables reads the variables of spec.postBuild: later references win over earlier ones, and what stands in the spec
// wins over all. Without any variable nothing is substituted, unless the strategy is Always.
func (r *run) readVariables(ctx context.Context, in *inputs, h hash.Hash) error {
	post := r.obj.Spec.PostBuild
	if post == nil {
		return nil
	}
	variables := map[string]string{}
	for _, from := range post.SubstituteFrom {
		values, err := r.valuesFrom(ctx, from)
		if err != nil {
			return err
		}
		for name, value := range values {
			if !substitute.ValidName(name) {
				return invalidName(fmt.Sprintf("key %q of %s '%s/%s'", name, from.Kind, r.obj.Namespace, from.Name))
			}
			if from.Kind == "Secret" {
				in.secret = append(in.secret, trimmed(value))
			}
			variables[name] = trimmed(value)
		}
	}
	for name, value := range post.Substitute {
		if !substitute.ValidName(name) {
			return invalidName(fmt.Sprintf("%q in spec.postBuild.substitute", name)).Final()
		}
		variables[name] = trimmed(value)
	}
	if len(variables) == 0 && post.SubstituteStrategy != kustomizev1.SubstituteStrategyAlways {
		return nil
	}
	in.substitution = &build.Substitution{Variables: variables, Strict: r.Options.StrictSubstitutions}
	fmt.Fprintln(h, "variables")
	digestMap(h, variables)
	return nil
}

// trimmed drops what ends the last line: a file with one value ends so, as it does in a shell.
func trimmed(value string) string { return strings.TrimRight(value, "\r\n") }

func invalidName(what string) *fault.Fault {
	return fault.New(meta.BuildFailedReason, "%s cannot be a variable", what).
		WithHint("Names are made of letters, digits and underscores, and start with no digit")
}

// valuesFrom reads the data of a ConfigMap or a Secret in the Kustomization's namespace.
func (r *run) valuesFrom(ctx context.Context, from meta.SubstituteReference) (map[string]string, error) {
	key := types.NamespacedName{Namespace: r.obj.Namespace, Name: from.Name}
	values := map[string]string{}
	var err error
	if from.Kind == "Secret" {
		var secret corev1.Secret
		err = r.Configs.Get(ctx, key, &secret)
		for k, v := range secret.Data {
			values[k] = string(v)
		}
	} else {
		var configMap corev1.ConfigMap
		err = r.Configs.Get(ctx, key, &configMap)
		values = configMap.Data
	}
	switch {
	case err == nil:
		return values, nil
	case apierrors.IsNotFound(err) && from.Optional:
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, fault.New(meta.BuildFailedReason, "%s '%s' of spec.postBuild.substituteFrom not found", from.Kind, key).
			WithHint("Create it, or set optional: true")
	default:
		return nil, fault.New(meta.BuildFailedReason, "cannot read %s '%s' of spec.postBuild.substituteFrom", from.Kind, key).Because(err)
	}
}
