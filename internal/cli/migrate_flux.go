package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// pollInterval is the interval between looks at the cluster while a migration waits.
const pollInterval = 500 * time.Millisecond

// migrateFlux is `sluice migrate flux`.
type migrateFlux struct {
	*env
	scope                                            migrate.Scope
	install                                          install.Options
	yes, rollback, suspendSync, allowChanges, noDiff bool
	export, output                                   string
	readyTimeout                                     time.Duration
}

func newMigrateFluxCommand(e *env) *cobra.Command {
	o := &migrateFlux{env: e, install: install.Default(defaultTag())}
	c := &cobra.Command{
		Use:   "flux",
		Short: "Take over the objects of Flux, or go back to it",
		Long: `Without --yes, report what a migration from Flux to Sluice would do: which
controllers run, how their flags map, which objects exist, and what Sluice
would change about applied objects, which is expected to be nothing.

With --yes, scale Flux's controllers down, wait for their leases, replace the
CustomResourceDefinitions, start Sluice, and wait until all objects are Ready
as before. If one is not, go back to Flux. Objects keep their uids, and no Pod
is restarted. A run that was interrupted continues when the command runs again.

With --rollback, stop Sluice and start Flux as it was.

Exit codes: 0 nothing keeps the cluster from migrating, or the migration is
done; 1 the migration is blocked or failed; 2 usage error.`,
		Example: `  sluice migrate flux                              # report, change nothing
  sluice migrate flux -o json
  sluice migrate flux --yes
  sluice migrate flux --rollback
  sluice migrate flux --export ./clusters/prod/flux-system
  sluice migrate flux --suspend-sync --yes
  sluice migrate flux --controllers source-controller,kustomize-controller
  sluice migrate flux --namespaces team-a,team-b`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := c.Flags()
	f.BoolVarP(&o.yes, "yes", "y", false, "migrate, after a last check")
	f.BoolVar(&o.rollback, "rollback", false, "go back to Flux")
	f.StringSliceVar(&o.scope.Controllers, "controllers", nil,
		"take over only these controllers; Flux keeps the others")
	f.StringSliceVar(&o.scope.Namespaces, "namespaces", nil,
		"take over only the objects of these namespaces; Flux keeps the others")
	f.BoolVar(&o.suspendSync, "suspend-sync", false, "suspend what deploys Flux from git")
	f.BoolVar(&o.allowChanges, "allow-changes", false, "migrate although applied objects would change")
	f.BoolVar(&o.noDiff, "no-diff", false, "do not compare applied objects")
	f.StringVar(&o.export, "export", "", "directory to write the manifests to that replace those of Flux in git")
	f.StringVarP(&o.output, "output", "o", "", "print the report as json or yaml")
	f.DurationVar(&o.readyTimeout, "ready-timeout", 5*time.Minute,
		"how long Pods may take to stop and to start, and objects to be Ready")
	o.bindInstall(c)
	return c
}

// bindInstall adds the flags of the installation.
func (o *migrateFlux) bindInstall(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.install.Image, "image", "", "container image of the controllers (default: from --registry and "+
		"--version)")
	f.StringVar(&o.install.Registry, "registry", o.install.Registry, "registry of the container image")
	f.StringVar(&o.install.Version, "version", o.install.Version, "tag of the container image")
	f.StringVar(&o.install.PullSecret, "image-pull-secret", "", "Secret to pull the container image with")
	f.StringVar(&o.install.ClusterDomain, "cluster-domain", o.install.ClusterDomain, "internal domain of the cluster")
	f.BoolVar(&o.install.NetworkPolicy, "network-policy", true,
		"allow only Pods of the namespace to download artifacts")
}

func (o *migrateFlux) validate() error {
	if err := optionalOneOf("output", o.output, "json", "yaml"); err != nil {
		return err
	}
	switch {
	case o.rollback && (o.export != "" || o.output != ""):
		return usagef("--rollback works with neither --export nor --output")
	case len(o.scope.Controllers) > 0 && len(o.scope.Namespaces) > 0:
		return usagef("--controllers and --namespaces: choose one")
	case o.export != "" && !o.scope.IsComplete():
		return usagef("--export works for a complete migration: leave --controllers and --namespaces out")
	}
	for _, c := range o.scope.Controllers {
		if err := oneOf("controllers", c, options.AllControllers...); err != nil {
			return err
		}
	}
	return nil
}

func (o *migrateFlux) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	engine, done, err := o.engine()
	if err != nil {
		return err
	}
	defer done()
	if o.rollback {
		return o.goBack(ctx, engine)
	}
	plan, err := engine.Plan(ctx)
	if err != nil {
		return cluster.WithHint(err)
	}
	o.Clear()
	if o.export != "" {
		if err := o.exportFiles(plan); err != nil {
			return err
		}
	}
	if err := o.print(plan); err != nil {
		return err
	}
	if plan.IsBlocked() {
		return migrate.BlockedError{Blockers: plan.Blockers}
	}
	if !o.yes {
		o.Step("nothing was changed. Run the command with --yes to migrate")
		return nil
	}
	if err := engine.Run(ctx, plan); err != nil {
		return cluster.WithHint(err)
	}
	o.Done("Sluice reconciles what Flux reconciled. Run sluice migrate flux --rollback to go back")
	for _, s := range plan.Syncs {
		o.Step("commit the files of --export to the repository of %s, then resume it", s.Ref)
	}
	return nil
}

func (o *migrateFlux) goBack(ctx context.Context, engine *migrate.Engine) error {
	if !o.yes && !o.Confirm("This stops Sluice and starts Flux again. Continue?") {
		return errors.New("cancelled: nothing was changed. Use --yes to skip the question")
	}
	if err := engine.Rollback(ctx); err != nil {
		return cluster.WithHint(err)
	}
	o.Done("Flux runs as before the migration")
	return nil
}

// engine returns the engine with what it needs of this command. Call done at the end.
func (o *migrateFlux) engine() (engine *migrate.Engine, done func(), err error) {
	cfg, err := o.Config()
	if err != nil {
		return nil, nil, err
	}
	c, err := migrate.NewClient(cfg)
	if err != nil {
		return nil, nil, cluster.Explain("cannot reach the cluster", err)
	}
	definitions, err := config.Definitions()
	if err != nil {
		return nil, nil, err
	}
	engine = &migrate.Engine{
		Client: c, Namespace: o.Namespace(), Scope: o.scope, AllowChanges: o.allowChanges, SuspendSync: o.suspendSync,
		ClusterDomain: o.install.ClusterDomain,
		Definitions:   definitions, Manifests: o.manifests, Apply: o.apply, Flag: describe(options.DescribeFlag),
		Gate:   describe(options.DescribeGate),
		OnStep: func(message string) { o.Step("%s", message) }, OnWait: func(message string) { o.Live("%s", message) },
		ReadyTimeout: o.readyTimeout, PollInterval: pollInterval, Now: time.Now,
	}
	done = func() {}
	if !o.noDiff && !o.rollback {
		engine.Compare, done, err = o.comparer(cfg)
	}
	return engine, done, err
}

func describe(of func(string) options.Description) func(string) migrate.FlagInfo {
	return func(name string) migrate.FlagInfo { return migrate.FlagInfo(of(name)) }
}
