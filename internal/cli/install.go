package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
)

// installFlags are the flags that say what to install and how it runs.
type installFlags struct {
	install.Options
	extra []string
}

func (o *installFlags) bind(f *pflag.FlagSet) {
	o.Options = install.Default(defaultTag())
	f.StringSliceVar(&o.Components, "components", o.Components,
		"controllers to run, and hub for a hub at --hub-url; hub alone runs no controllers")
	f.StringSliceVar(&o.extra, "components-extra", nil, "controllers to run in addition to --components")
	f.StringVar(&o.Image, "image", "", "container image of the controllers (default: from --registry and --version)")
	f.StringVar(&o.Registry, "registry", o.Registry, "registry of the container image")
	f.StringVar(&o.Version, "version", o.Version, "tag of the container image")
	f.StringVar(&o.PullSecret, "image-pull-secret", "", "Secret to pull the container image with")
	f.StringVar(&o.RegistryLogin, "registry-creds", "",
		"user:password of the registry, stored in --image-pull-secret; - reads it from standard input")
	f.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain, "internal domain of the cluster")
	f.StringVar(&o.LogLevel, "log-level", o.LogLevel, "log level: trace, debug, info or error")
	f.StringVar(&o.Profile, "profile", "", "multi-tenant: refuse references to other namespaces, and apply as account "+
		"'default' of the namespace where an object names none")
	f.BoolVar(&o.Split, "split", false, "run each controller in a Deployment of its own")
	f.BoolVar(&o.FluxCompatible, "flux-compatible", false,
		"label the version and instance too, and let accounts of the names of Flux apply")
	f.BoolVar(&o.NetworkPolicy, "network-policy", o.NetworkPolicy,
		"allow only Pods of the namespace to download artifacts")
	f.StringSliceVar(&o.TolerationKeys, "toleration-keys", nil, "keys of taints that the controllers tolerate")
	f.StringVar(&o.UI.URL, "ui-url", "", "serve the web UI in the cluster, at this URL that an Ingress leads from")
	f.StringVar(&o.UI.Issuer, "ui-oidc-issuer", "",
		"URL of the OIDC provider by which people log in to the web UI, and to the pages of a hub")
	f.StringVar(&o.UI.ClientID, "ui-oidc-client-id", "", "ID of the web UI and of the hub at --ui-oidc-issuer")
	f.StringVar(&o.UI.ClientSecret, "ui-oidc-client-secret", "",
		"Secret whose key 'client-secret' is the secret of --ui-oidc-client-id")
	f.StringVar(&o.UI.ReviewSecret, "review-secret", "",
		"review pull requests: Secret with review.yaml and the files that it names; see docs/review.md")
	f.StringVar(&o.UI.MCPURL, "mcp-url", "",
		"serve agents (MCP) in the cluster, at this URL that an Ingress leads from; see docs/mcp.md")
	f.StringVar(&o.UI.UsernameClaim, "ui-oidc-username-claim", "", "claim with the user name (default: sub)")
	f.StringVar(&o.UI.UsernamePrefix, "ui-oidc-username-prefix", "",
		"prefix of user names, as of kube-apiserver (default: the issuer and # unless the claim is email; - for none)")
	f.StringVar(&o.UI.GroupsClaim, "ui-oidc-groups-claim", "", "claim with the groups (default: groups)")
	f.StringVar(&o.UI.GroupsPrefix, "ui-oidc-groups-prefix", "", "prefix of groups, as of kube-apiserver")
	f.VarPF(negated{&o.UI.NoTokenLogin}, "ui-token-login", "",
		"let people log in to the web UI and to the hub with the token of a ServiceAccount").NoOptDefVal = "true"
	f.StringVar(&o.Hub.URL, "hub-url", "",
		"run a hub that other clusters report to, at this URL that an Ingress leads from; see docs/fleet.md")
	f.StringVar(&o.Hub.TLSSecret, "hub-tls-secret", "",
		"Secret with the certificate of the hub, tls.crt and tls.key (default: a proxy provides HTTPS)")
	o.bindReplicas(f)
	f.StringArrayVar(&o.Args, "controller-arg", nil,
		"further argument of the controllers, such as --concurrent=8; may be repeated; an empty one removes those "+
			"that the installation has (default: those that it has)")
	f.BoolVar(&o.WatchAll, "watch-all-namespaces", o.WatchAll,
		"reconcile objects in all namespaces, not only in that of the controllers")
}

func (o *installFlags) bindReplicas(f *pflag.FlagSet) {
	f.IntVar(&o.Replicas, "replicas", 0, "replicas of each Deployment (default: 3 with a storage backend, else 1)")
	f.BoolVar(&o.AutoShards, "auto-shards", false,
		"replicas share all objects, instead of one leader with standbys; needs a storage backend")
	f.IntVar(&o.MaxReplicas, "max-replicas", 0,
		"up to how many replicas an autoscaler adds with --auto-shards, by their use of CPU (default: no autoscaler)")
	f.StringVar(&o.Backend.Endpoint, "storage-backend-s3-endpoint", "",
		"URL of an S3-compatible server that stores artifacts for all replicas")
	f.StringVar(&o.Backend.Bucket, "storage-backend-s3-bucket", "", "bucket at --storage-backend-s3-endpoint")
	f.StringVar(&o.Backend.Prefix, "storage-backend-s3-prefix", "",
		"prefix of the names of all artifacts in the bucket")
	f.StringVar(&o.Backend.Region, "storage-backend-s3-region", "", "region of the bucket (default: ask the server)")
	f.StringVar(&o.Backend.Secret, "storage-backend-secret", "",
		"Secret with the credentials, such as the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (default: the role "+
			"of the pod)")
}

// negated is a flag that is true if the variable is false.
type negated struct{ variable *bool }

// String implements [pflag.Value].
func (n negated) String() string { return strconv.FormatBool(!*n.variable) }

// Set implements [pflag.Value].
func (n negated) Set(text string) error {
	value, err := strconv.ParseBool(text)
	*n.variable = !value
	return err
}

// Type implements [pflag.Value].
func (n negated) Type() string { return "bool" }

// complete validates the flags and derives options from them.
func (o *installFlags) complete(e *env) error {
	var err error
	if o.RegistryLogin, err = e.readSecret("registry-creds", o.RegistryLogin); err != nil {
		return err
	}
	o.Namespace = e.Namespace()
	o.Components = slices.Concat(o.Components, o.extra)
	if o.Options, err = o.Complete(); err != nil {
		return usageError{err}
	}
	return nil
}

// installCommand is `sluice install`.
type installCommand struct {
	*env
	installFlags
	export, dryRun, force, wait bool
}

func newInstallCommand(e *env) *cobra.Command {
	o := &installCommand{env: e}
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the CustomResourceDefinitions and the controllers",
		Long: `Install the CustomResourceDefinitions and the controllers, or update them, and
wait until the controllers run. Running the command again without changes has
no effect. Running it with other flags removes what they leave out.`,
		Example: `  sluice install                     # install into the current cluster
  sluice install --profile multi-tenant --split
  sluice install --export > sluice.yaml
  sluice install --crds-only         # for controllers outside of the cluster`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(e); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := c.Flags()
	o.bind(f)
	f.BoolVar(&o.export, "export", false, "print the manifests and change nothing")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would change, and change nothing")
	f.BoolVar(&o.force, "force", false, "replace Flux: take over its definitions and controllers")
	f.BoolVar(&o.wait, "wait", true, "wait until every Deployment is available")
	f.BoolVar(&o.CRDsOnly, "crds-only", false,
		"only the namespace, the CustomResourceDefinitions and the admission policies")
	return c
}

// printChange prints what a dry-run would change.
func (e *env) printChange(text string) { fmt.Fprintln(e.Out, text) }

// defaultTag returns the image tag that belongs to this binary.
func defaultTag() string {
	if Version == devVersion {
		return "latest"
	}
	return Version
}

func (o *installCommand) run(ctx context.Context) error {
	if o.export {
		objects, err := install.Manifests(o.Options)
		if err != nil {
			return err
		}
		return manifest.Encode(o.Out, objects...)
	}
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	ctx, cancel := o.WithTimeout(ctx)
	defer cancel()
	if err := install.Run(ctx, cfg, o.Options, install.Request{Progress: o.UI, Wait: o.wait, Force: o.force,
		DryRun: o.dryRun, Changes: o.printChange, Timeout: o.Timeout}); err != nil || o.dryRun || o.CRDsOnly {
		return err
	}
	if !o.wait {
		o.Step("the controllers are starting. Run sluice check to follow")
	}
	return nil
}
