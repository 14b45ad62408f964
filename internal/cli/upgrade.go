package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/cli/install"
)

func newUpgradeCommand(e *env) *cobra.Command {
	flags := &installFlags{}
	dryRun := false
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade the installation, and go back by itself if the new version does not run",
		Long: `Upgrade the controllers to the version of this command line, or to --version,
with the settings that they were installed with. Flags change a setting.

If the new version is not available within --timeout, what was installed before
is applied again. After success, all objects are stored in the current version
of their kind, so that old versions can be removed later.`,
		Example: `  sluice upgrade
  sluice upgrade --version v1.4.0 --timeout 10m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := e.Config()
			if err != nil {
				return err
			}
			ctx, cancel := e.WithTimeout(cmd.Context())
			defer cancel()
			t, err := install.Connect(cfg, e.Timeout)
			if err != nil {
				return err
			}
			recalled, err := t.Recall(ctx, e.Namespace(), defaultTag())
			t.Close()
			if err != nil {
				return err
			}
			recalled.Version = defaultTag()
			given := *flags
			flags.Options = recalled
			if err := given.override(cmd.Flags(), &flags.Options); err != nil {
				return err
			}
			if err := flags.complete(e); err != nil {
				return err
			}
			return install.Upgrade(ctx, cfg, flags.Options, install.Request{Progress: e.UI, Timeout: e.Timeout,
				DryRun: dryRun, Changes: e.printChange})
		},
	}
	flags.bind(c.Flags())
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would change, and change nothing")
	return c
}

// override copies the options whose flags were set.
func (o *installFlags) override(f *pflag.FlagSet, to *install.Options) error {
	for name, set := range map[string]func(){
		"components":              func() { to.Components, to.Hub.Only = o.Components, o.Hub.Only },
		"hub-url":                 func() { to.Hub.URL = o.Hub.URL },
		"hub-tls-secret":          func() { to.Hub.TLSSecret = o.Hub.TLSSecret },
		"image":                   func() { to.Image = o.Image },
		"registry":                func() { to.Registry, to.Image = o.Registry, "" },
		"version":                 func() { to.Version, to.Image = o.Version, "" },
		"image-pull-secret":       func() { to.PullSecret = o.PullSecret },
		"registry-creds":          func() { to.RegistryLogin = o.RegistryLogin },
		"cluster-domain":          func() { to.ClusterDomain = o.ClusterDomain },
		"log-level":               func() { to.LogLevel = o.LogLevel },
		"profile":                 func() { to.Profile = o.Profile },
		"split":                   func() { to.Split = o.Split },
		"flux-compatible":         func() { to.FluxCompatible = o.FluxCompatible },
		"network-policy":          func() { to.NetworkPolicy = o.NetworkPolicy },
		"toleration-keys":         func() { to.TolerationKeys = o.TolerationKeys },
		"ui-url":                  func() { to.UI.URL = o.UI.URL },
		"ui-oidc-issuer":          func() { to.UI.Issuer = o.UI.Issuer },
		"ui-oidc-client-id":       func() { to.UI.ClientID = o.UI.ClientID },
		"ui-oidc-client-secret":   func() { to.UI.ClientSecret = o.UI.ClientSecret },
		"ui-oidc-username-claim":  func() { to.UI.UsernameClaim = o.UI.UsernameClaim },
		"ui-oidc-username-prefix": func() { to.UI.UsernamePrefix = o.UI.UsernamePrefix },
		"ui-oidc-groups-claim":    func() { to.UI.GroupsClaim = o.UI.GroupsClaim },
		"ui-oidc-groups-prefix":   func() { to.UI.GroupsPrefix = o.UI.GroupsPrefix },
		"mcp-url":                 func() { to.UI.MCPURL = o.UI.MCPURL },
		"review-secret":           func() { to.UI.ReviewSecret = o.UI.ReviewSecret },
		"ui-token-login":          func() { to.UI.NoTokenLogin = o.UI.NoTokenLogin },
		"watch-all-namespaces":    func() { to.WatchAll = o.WatchAll },
		"controller-arg":          func() { to.Args = o.Args },
		"replicas":                func() { to.Replicas = o.Replicas },
		"auto-shards":             func() { to.AutoShards = o.AutoShards },
		"max-replicas":            func() { to.MaxReplicas = o.MaxReplicas },

		"storage-backend-s3-endpoint": func() { to.Backend.Endpoint = o.Backend.Endpoint },
		"storage-backend-s3-bucket":   func() { to.Backend.Bucket = o.Backend.Bucket },
		"storage-backend-s3-prefix":   func() { to.Backend.Prefix = o.Backend.Prefix },
		"storage-backend-s3-region":   func() { to.Backend.Region = o.Backend.Region },
		"storage-backend-secret":      func() { to.Backend.Secret = o.Backend.Secret },
	} {
		if f.Changed(name) && name != "image" {
			set()
		}
	}
	if f.Changed("image") { // more precise than a registry or a version
		to.Image = o.Image
	}
	if to.Image != "" && !f.Changed("image") {
		return usagef("the installation runs image %s: name the new image with --image, or a tag with --version",
			to.Image)
	}
	return nil
}
