package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/localset"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/resourceset"
)

// buildResourceSet is `sluice build resourceset`.
type buildResourceSet struct {
	*env
	file        string
	offline     bool
	showSecrets bool
}

func newBuildResourceSetCommand(e *env) *cobra.Command {
	b := &buildResourceSet{env: e}
	c := newNamedCommand(e, kind.ByName(controlplanev1.ResourceSetKind), &cobra.Command{
		Short: "Render a ResourceSet, and print the objects",
		Long: `Render a ResourceSet as its controller does, and print the objects.

The ResourceSet and the inputs of its providers are read from the cluster, or
the ResourceSet from --resourceset-file. Data that annotations copy from other
objects is not shown, and data of Secrets is shown as ***.`,
		Example: `  sluice build resourceset apps
  sluice build resourceset apps --resourceset-file apps.yaml --dry-run  # needs no cluster`,
	}, b.run)
	b.bindFile(c)
	c.Flags().BoolVar(&b.offline, "dry-run", false, "do not read the cluster; spec.inputsFrom cannot be used")
	c.Flags().BoolVar(&b.showSecrets, "show-secrets", false, "print data of Secrets in plain text")
	return c
}

func (b *buildResourceSet) bindFile(c *cobra.Command) {
	c.Flags().StringVar(&b.file, "resourceset-file", "", "file that declares the ResourceSet, instead of the cluster")
}

func (b *buildResourceSet) run(ctx context.Context, name string) error {
	if b.offline && b.file == "" {
		return usagef("--dry-run needs --resourceset-file")
	}
	obj, reader, err := b.read(ctx, b.key(name))
	if err != nil {
		return err
	}
	objects, err := localset.Render(ctx, nil, reader, obj)
	if err != nil {
		return err
	}
	if !b.showSecrets {
		for _, o := range objects {
			maskData(o)
		}
	}
	return manifest.Encode(b.Out, objects...)
}

// read returns the ResourceSet, and the cluster that has its providers.
func (b *buildResourceSet) read(ctx context.Context, key types.NamespacedName) (*controlplanev1.ResourceSet,
	client.Client, error) {
	obj, err := b.fromFile(key)
	if err != nil || b.offline && len(obj.Spec.InputsFrom) == 0 {
		return obj, nil, err
	}
	if b.offline {
		return nil, nil, errors.New("spec.inputsFrom names providers, and --dry-run does not read the cluster")
	}
	c, err := b.Client()
	if err != nil {
		return nil, nil, err
	}
	found, err := cluster.Get(ctx, c, kind.ByName(controlplanev1.ResourceSetKind), key)
	if obj == nil {
		if err != nil {
			return nil, nil, err
		}
		return found.(*controlplanev1.ResourceSet), c, nil
	}
	if err == nil { // it has applied this
		obj.Status = found.(*controlplanev1.ResourceSet).Status
	}
	return obj, c, nil
}

// fromFile returns the ResourceSet that the file declares; nil without a file.
func (b *buildResourceSet) fromFile(key types.NamespacedName) (*controlplanev1.ResourceSet, error) {
	if b.file == "" {
		return nil, nil
	}
	obj := &controlplanev1.ResourceSet{}
	return obj, manifest.Find(b.file, resourceset.GroupKind, key, obj)
}
