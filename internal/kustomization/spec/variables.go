package spec

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/build/substitute"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Variables are the variables of spec.postBuild.
type Variables struct {
	Values map[string]string
	Secret map[string]bool // the names of those that were read from Secrets
	always bool            // substitute even without variables
	bytes  int             // of the names and values that were read from objects
}

// maxVariables is the maximum size, in bytes, of the names and values that all references of spec.postBuild have: an
// object has up to 1 MiB, and may be named many times.
const maxVariables = 4 << 20

// ReadVariables reads the variables of spec.postBuild. Later references override earlier ones, and
// spec.postBuild.substitute overrides all. References are ignored if configs is nil. Errors are faults with
// reason BuildFailed.
func ReadVariables(ctx context.Context, configs client.Reader, obj *kustomizev1.Kustomization) (*Variables, error) {
	v := &Variables{Values: map[string]string{}, Secret: map[string]bool{}}
	post := obj.Spec.PostBuild
	if post == nil {
		return v, nil
	}
	v.always = post.SubstituteStrategy == kustomizev1.SubstituteStrategyAlways
	for _, from := range post.SubstituteFrom {
		if configs == nil {
			continue
		}
		if err := v.add(ctx, configs, obj.Namespace, from); err != nil {
			return nil, err
		}
	}
	for name, value := range post.Substitute {
		if !substitute.ValidName(name) {
			return nil, invalidName(fmt.Sprintf("%q in spec.postBuild.substitute", name)).Final()
		}
		v.Values[name] = trimmed(value)
		delete(v.Secret, name)
	}
	return v, nil
}

// Substitution returns the substitution for a build: nil without variables, unless the strategy is Always.
func (v *Variables) Substitution(strict bool) *build.Substitution {
	if len(v.Values) == 0 && !v.always {
		return nil
	}
	return &build.Substitution{Variables: v.Values, Secret: v.Secret, Strict: strict}
}

func (v *Variables) add(ctx context.Context, configs client.Reader, namespace string,
	from meta.SubstituteReference) error {
	values, err := valuesFrom(ctx, configs, namespace, from)
	if err != nil {
		return err
	}
	for name, value := range values {
		if !substitute.ValidName(name) {
			return invalidName(fmt.Sprintf("key %q of %s '%s/%s'", name, from.Kind, namespace, from.Name))
		}
		if v.bytes += len(name) + len(value); v.bytes > maxVariables {
			return fault.New(meta.BuildFailedReason, "the objects of spec.postBuild.substituteFrom have more than %d "+
				"MiB together", maxVariables>>20).
				WithHint("Remove references, or put the variables into smaller objects").Final()
		}
		if v.Values[name] = trimmed(value); from.Kind == "Secret" {
			v.Secret[name] = true
		} else {
			delete(v.Secret, name)
		}
	}
	return nil
}

// trimmed removes trailing newlines, as a shell does: files with one value often end with one.
func trimmed(value string) string { return strings.TrimRight(value, "\r\n") }

func invalidName(what string) *fault.Fault {
	return fault.New(meta.BuildFailedReason, "%s is not a valid variable name", what).
		WithHint("Use letters, digits and underscores; the first character cannot be a digit")
}

// valuesFrom returns the data of a ConfigMap or Secret.
func valuesFrom(ctx context.Context, configs client.Reader, namespace string,
	from meta.SubstituteReference) (map[string]string, error) {
	key := types.NamespacedName{Namespace: namespace, Name: from.Name}
	values := map[string]string{}
	var err error
	if from.Kind == "Secret" {
		var secret corev1.Secret
		err = configs.Get(ctx, key, &secret)
		for k, v := range secret.Data {
			values[k] = string(v)
		}
	} else {
		var configMap corev1.ConfigMap
		err = configs.Get(ctx, key, &configMap)
		values = configMap.Data
	}
	switch {
	case err == nil:
		return values, nil
	case apierrors.IsNotFound(err) && from.Optional:
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, fault.New(meta.BuildFailedReason, "%s '%s' of spec.postBuild.substituteFrom not found",
			from.Kind, key).
			WithHint("Create it, or set optional: true")
	default:
		return nil, fault.New(meta.BuildFailedReason, "cannot read %s '%s' of spec.postBuild.substituteFrom", from.Kind,
			key).Because(err)
	}
}
