package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/localrelease"
	"github.com/sluice-gitops/sluice/internal/kind"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// diffHelmRelease is `sluice diff helmrelease`.
type diffHelmRelease struct {
	*env
	localrelease.Options
	ignoreNotFound bool
}

func newDiffHelmReleaseCommand(e *env) *cobra.Command {
	d := &diffHelmRelease{env: e}
	c := newNamedCommand(e, kind.ByName(helmv2.HelmReleaseKind), &cobra.Command{
		Short: "Show what an install or upgrade would change in the cluster",
		Long: `Render a HelmRelease as its controller does, and show what the install or
upgrade would change in the cluster, in the words of 'diff kustomization'.
Hooks are not compared.

The chart is the local one of --path, or else the artifact of the source, which
is read through the API server. The comparison is a server-side dry run:
nothing is changed. Values of Secrets are never shown.

Exit codes: 0 no change, 1 changes, 2 the comparison failed.`,
		Example: `  sluice diff helmrelease app
  sluice diff helmrelease app --path ./charts/app
  sluice diff helmrelease app --helmrelease-file ./clusters/app.yaml`,
	}, d.run)
	bindLocalRelease(c.Flags(), &d.Options)
	c.Flags().BoolVar(&d.ignoreNotFound, "ignore-not-found", false,
		"compare a HelmRelease that is not in the cluster as one that has released nothing")
	return c
}

func (d *diffHelmRelease) run(ctx context.Context, name string) error {
	builder, target, done, err := newLocalRelease(d.env, d.Options)
	defer done()
	if err != nil {
		return err
	}
	d.Live("rendering HelmRelease '%s'", d.key(name))
	result, err := builder.Build(ctx, d.key(name))
	d.Clear()
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(result.Object)
	switch {
	case !result.Live && !d.ignoreNotFound:
		return fmt.Errorf("HelmRelease '%s' is not in the cluster. Set --ignore-not-found to compare it anyway", key)
	case result.Object.Spec.KubeConfig != nil:
		return fmt.Errorf("HelmRelease '%s' releases to another cluster, which this command cannot read", key)
	}
	req, err := d.request(ctx, target, result)
	if err != nil {
		return err
	}
	planned, err := target.Diff(ctx, req)
	if err != nil {
		return fmt.Errorf("HelmRelease '%s': %w", key, err)
	}
	printer := changePrinter{env: d.env}
	for _, p := range planned {
		printer.print(p)
	}
	return printer.summarize()
}

// request returns the apply of the action that the controller would run.
func (d *diffHelmRelease) request(ctx context.Context, target *apply.Cluster,
	result *localrelease.Result) (apply.Request, error) {
	obj := result.Object
	ignore, err := rollout.IgnoreRules(nil, obj.Spec.DriftDetection)
	if err != nil {
		return apply.Request{}, err
	}
	definitions, err := d.definitions(ctx, target, result)
	if err != nil {
		return apply.Request{}, err
	}
	return apply.Request{
		Owner: localrelease.OwnerOf(obj), Objects: slices.Concat(definitions, result.Objects), Ignore: ignore,
		Secrets: result.Secrets, Previous: withoutDefinitions(rollout.Inventory(obj.Status.Inventory)),
	}, nil
}

// definitions returns the CustomResourceDefinitions of the directories crds/ that the action would write.
func (d *diffHelmRelease) definitions(ctx context.Context, target *apply.Cluster,
	result *localrelease.Result) ([]*unstructured.Unstructured, error) {
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
			return nil, cluster.Explain("cannot get CustomResourceDefinition '"+crd.GetName()+"'", err)
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
