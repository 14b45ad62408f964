package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
)

// traceCommand is `sluice trace`.
type traceCommand struct {
	*env
	kind, apiVersion string
}

func newTraceCommand(e *env) *cobra.Command {
	t := &traceCommand{env: e}
	c := &cobra.Command{
		Use:   "trace KIND NAME...",
		Short: "Show what applied an object, from which source, revision and commit",
		Long: `Show what applied an object, from which source, revision and commit.

An object that was not applied itself, such as a Pod of a Deployment, is traced
through its owner references.`,
		Example: `  sluice trace deployment app -n apps
  sluice trace pod/app-5d8c7b9f4-xk2lp -n apps
  sluice trace Deployment/apps/app
  sluice trace ks/app
  sluice trace app --kind Deployment --api-version apps/v1 -n apps`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("expected an object, such as deployment/app")
			}
			return nil
		},
		RunE: e.bounded(t.run),
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().StringVar(&t.kind, "kind", "", "kind of the object, if the arguments are only names")
	c.Flags().StringVar(&t.apiVersion, "api-version", "", "API version of --kind, such as apps/v1")
	return c
}

// resourceArgs returns the arguments in the form that kubectl expects: a kind and names, or KIND/NAME.
func (t *traceCommand) resourceArgs(args []string) ([]string, error) {
	if t.kind == "" && t.apiVersion != "" {
		return nil, usagef("--kind is missing")
	}
	if t.kind == "" {
		if len(args) == 1 && !strings.Contains(args[0], "/") {
			return nil, usagef("the kind of %q is missing: use KIND/NAME, as in deployment/%s", args[0], args[0])
		}
		return args, nil
	}
	kind := t.kind
	if t.apiVersion != "" {
		gv, err := schema.ParseGroupVersion(t.apiVersion)
		if err != nil {
			return nil, usagef("invalid --api-version %q: use GROUP/VERSION", t.apiVersion)
		}
		kind += "." + gv.Version + "." + gv.Group
	}
	return append([]string{kind}, args...), nil
}

func (t *traceCommand) run(ctx context.Context, args []string) error {
	names, err := t.resourceArgs(args)
	if err != nil {
		return err
	}
	c, err := t.Client()
	if err != nil {
		return err
	}
	found, err := t.objects(names)
	if err != nil {
		return cluster.Explain("cannot get "+strings.Join(names, " "), err)
	}
	var failures []error
	for i, info := range found {
		if i > 0 {
			fmt.Fprintln(t.Out)
		}
		sections, err := lineage.Trace(ctx, c, info.Object.(*unstructured.Unstructured))
		t.print(sections)
		if err != nil {
			failures = append(failures, cluster.WithHint(err))
		}
	}
	return errors.Join(failures...)
}

// objects reads the objects of the arguments: as kubectl takes them, or as Kind/namespace/name, as all output has them.
func (t *traceCommand) objects(args []string) ([]*resource.Info, error) {
	byNamespace := map[string][]string{}
	var namespaces []string
	add := func(namespace string, args ...string) {
		if byNamespace[namespace] == nil {
			namespaces = append(namespaces, namespace)
		}
		byNamespace[namespace] = append(byNamespace[namespace], args...)
	}
	for _, arg := range args {
		parts := strings.Split(arg, "/")
		if k := kind.ByWord(parts[0]); k != nil && len(parts) > 1 {
			gvk, err := apiutil.GVKForObject(k.New(), kubeclient.Scheme())
			if err != nil {
				return nil, err
			}
			parts[0] = gvk.Kind + "." + gvk.Version + "." + gvk.Group
		}
		namespace := t.Namespace()
		if len(parts) == 3 {
			namespace, parts = parts[1], []string{parts[0], parts[2]}
		}
		add(namespace, strings.Join(parts, "/"))
	}
	var found []*resource.Info
	for _, namespace := range namespaces {
		part, err := resource.NewBuilder(t.Getter()).Unstructured().ContinueOnError().NamespaceParam(namespace).
			DefaultNamespace().ResourceTypeOrNameArgs(false, byNamespace[namespace]...).Flatten().Do().Infos()
		if err != nil {
			return nil, err
		}
		found = append(found, part...)
	}
	return found, nil
}

func (t *traceCommand) print(sections []lineage.Section) {
	for i, s := range sections {
		if i > 0 {
			fmt.Fprintln(t.Out, "---")
		}
		facts := append([]lineage.Fact{{Name: "Object", Value: s.Object}}, s.Facts...)
		width := 0
		for _, f := range facts {
			width = max(width, len(f.Name))
		}
		for _, f := range facts {
			fmt.Fprintf(t.Out, "%-*s %s\n", width+1, f.Name+":", term.OneLine(f.Value))
		}
	}
}
