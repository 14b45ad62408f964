package localrelease

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// ApplyRequest returns the apply of the action that the controller would run. before is what is rendered without the
// change, for a render with placeholders; it may be nil.
func (result *Result) ApplyRequest(ctx context.Context, target *apply.Cluster, before *Result) (apply.Request, error) {
	obj := result.Object
	ignore, err := rollout.IgnoreRules(nil, obj.Spec.DriftDetection)
	if err != nil {
		return apply.Request{}, err
	}
	definitions, err := result.definitions(ctx, target)
	if err != nil {
		return apply.Request{}, err
	}
	objects := result.Objects
	if result.twin != nil {
		l := localbuild.Live{Target: target, Known: result.Veil.Known(), MayChange: before != nil}
		if before != nil {
			l.Before = before.all()
			if result.Veil.Before = before.Veil.Known(); result.Veil.Before == nil {
				result.Veil.Before = redact.Compare(l.Before, l.Before) // nothing of it comes from secrets
			}
		}
		if objects, result.live, err = l.Fill(ctx, objects); err != nil {
			return apply.Request{}, err
		}
	}
	return apply.Request{
		Owner: OwnerOf(obj), Objects: slices.Concat(definitions, objects), Ignore: ignore,
		Veil: result.Veil, Previous: withoutDefinitions(rollout.Inventory(obj.Status.Inventory)),
	}, nil
}

// LiveSecrets returns values of the cluster that the last [Result.ApplyRequest] used in place of placeholders. Messages
// must not contain them.
func (result *Result) LiveSecrets() []string { return result.live }

// definitions returns the CustomResourceDefinitions of the directories crds/ that the action would write.
func (result *Result) definitions(ctx context.Context, target *apply.Cluster) ([]*unstructured.Unstructured,
	error) {
	policy := definitionPolicy(result.Object)
	if policy == helmv2.CRDsSkip || policy == helmv2.CRDsCreateReplace {
		if policy == helmv2.CRDsSkip {
			return nil, nil
		}
		return result.CRDs, nil
	}
	var missing []*unstructured.Unstructured
	for _, crd := range result.CRDs {
		_, err := target.Dynamic().Resource(definitionResource).Get(ctx, crd.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, crd)
		case err != nil:
			return nil, lookup.Explain("cannot get CustomResourceDefinition '"+crd.GetName()+"'", err)
		}
	}
	return missing, nil
}

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// definitionPolicy returns what the next action does with definitions.
func definitionPolicy(obj *helmv2.HelmRelease) string {
	if len(obj.Status.History) > 0 {
		if u := obj.Spec.Upgrade; u != nil && u.CRDs != "" {
			return u.CRDs
		}
		return helmv2.CRDsSkip
	}
	switch i := obj.Spec.Install; {
	case i == nil || i.CRDs == "" && !i.SkipCRDs:
		return helmv2.CRDsCreate
	case i.CRDs != "":
		return i.CRDs
	}
	return helmv2.CRDsSkip
}

// withoutDefinitions returns an inventory without CustomResourceDefinitions, which upgrades never delete.
func withoutDefinitions(in apply.Inventory) apply.Inventory {
	return slices.DeleteFunc(slices.Clone(in), func(e apply.Entry) bool {
		ref, err := e.Ref()
		return err == nil && ref.Group == definitionResource.Group && ref.Kind == "CustomResourceDefinition"
	})
}
