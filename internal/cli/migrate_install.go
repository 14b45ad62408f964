package cli

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
)

// exportedFile is the name of the file of --export, which has the name of the file that Flux's bootstrap writes.
const exportedFile = "gotk-components.yaml"

// installed returns all that the installation consists of, with the settings of a migration, which an upgrade keeps.
func (o *migrateFlux) installed(s migrate.Settings) ([]*unstructured.Unstructured, error) {
	wanted := o.install
	wanted.Namespace, wanted.Components, wanted.Args = o.Namespace(), slices.Clone(s.Controllers), s.Args
	if s.ClusterDomain != "" && wanted.ClusterDomain == install.Default("").ClusterDomain {
		wanted.ClusterDomain = s.ClusterDomain
	}
	wanted.PullSecret = cmp.Or(wanted.PullSecret, s.PullSecret)
	wanted.NetworkPolicy = wanted.NetworkPolicy && !s.NoNetworkPolicy
	wanted, err := wanted.Complete()
	if err != nil {
		return nil, err
	}
	objects, err := install.Manifests(wanted)
	if err != nil {
		return nil, err
	}
	return objects, install.Remember(wanted, objects)
}

// manifests returns what runs our controllers, without definitions.
func (o *migrateFlux) manifests(s migrate.Settings) ([]*unstructured.Unstructured, error) {
	objects, err := o.installed(s)
	return slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition"
	}), err
}

// apply applies a part of the installation, as sluice install does.
func (o *migrateFlux) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	target, err := apply.NewCluster(cfg, apply.ClusterOptions{FieldManager: "sluice-cli",
		WaitTimeout: o.readyTimeout})
	if err != nil {
		return err
	}
	defer target.Close()
	_, err = target.Apply(ctx, apply.Request{
		Owner:   install.Owner(o.Namespace()),
		Objects: objects,
	})
	return err
}

// exportFiles writes the manifests that replace those of Flux in git.
func (o *migrateFlux) exportFiles(plan *migrate.Plan) error {
	objects, err := o.installed(plan.Starts)
	if err != nil {
		return err
	}
	name := filepath.Join(o.export, exportedFile)
	if err := os.MkdirAll(o.export, 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = manifest.Encode(f, objects...)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	o.Done("%s written. Commit it in place of the file of Flux after the migration, then resume what deploys it", name)
	return nil
}
