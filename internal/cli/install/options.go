// Package install makes the manifests of Sluice, applies them to a cluster and waits until everything runs. It also
// checks, upgrades and removes what it installed. It never prints: callers pass where progress goes.
package install

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// Defaults of Options.
const (
	DefaultNamespace     = "flux-system"
	DefaultRegistry      = "ghcr.io/sluice-gitops"
	DefaultClusterDomain = "cluster.local"
	defaultLogLevel      = "info"
	imageName            = "sluice"
)

// ProfileMultiTenant is a profile for clusters with tenants: no references to other namespaces, and objects without a
// service account are applied as account 'default' of their namespace.
const ProfileMultiTenant = "multi-tenant"

// sourceWatcher is a component of Flux. Its kind is reconciled by source-controller here.
const sourceWatcher = "source-watcher"

// Options say what to install and how it runs. [Default] returns the defaults.
type Options struct {
	Namespace string `json:"namespace,omitempty"`
	// CRDsOnly leaves out the controllers: what remains is the namespace, the definitions and the admission policies.
	CRDsOnly   bool     `json:"crdsOnly,omitempty"`
	Components []string `json:"components,omitempty"` // controllers to run

	Image          string   `json:"image,omitempty"` // complete reference; default: from Registry and Version
	Registry       string   `json:"registry,omitempty"`
	Version        string   `json:"version,omitempty"`
	PullSecret     string   `json:"imagePullSecret,omitempty"`
	RegistryLogin  string   `json:"-"` // user:password, stored in PullSecret; the one secret here, so it is not kept
	ClusterDomain  string   `json:"clusterDomain,omitempty"`
	LogLevel       string   `json:"logLevel,omitempty"`
	Profile        string   `json:"profile,omitempty"` // "" or ProfileMultiTenant
	Split          bool     `json:"split,omitempty"`   // one Deployment a controller
	FluxCompatible bool     `json:"fluxCompatible,omitempty"`
	NetworkPolicy  bool     `json:"networkPolicy"`
	WatchAll       bool     `json:"watchAllNamespaces"` // reconcile objects of all namespaces
	TolerationKeys []string `json:"tolerationKeys,omitempty"`
	UI             UI       `json:"ui,omitzero"`
	Hub            Hub      `json:"hub,omitzero"`
	Backend        Backend  `json:"storageBackend,omitzero"`
	Replicas       int      `json:"replicas,omitempty"` // default: several with a storage backend, else 1
	AutoShards     bool     `json:"autoShards,omitempty"`
	MaxReplicas    int      `json:"maxReplicas,omitempty"` // of an autoscaler; 0 for none
	// Args are further arguments of the controllers, flags with values. Nil: those that the installation has. A
	// migration takes them over from Flux.
	Args []string `json:"args,omitempty"`
}

// Default returns the options of an installation of a version without flags.
func Default(version string) Options {
	return Options{
		Namespace: DefaultNamespace, Components: slices.Clone(options.AllControllers), Registry: DefaultRegistry,
		Version: version, ClusterDomain: DefaultClusterDomain, LogLevel: defaultLogLevel, NetworkPolicy: true,
		WatchAll: true,
	}
}

// ImageReference returns the image of the controllers.
func (o Options) ImageReference() string {
	return cmp.Or(o.Image, cmp.Or(o.Registry, DefaultRegistry)+"/"+imageName+":"+cmp.Or(o.Version, "latest"))
}

// Complete returns the options with defaults for empty fields and each component once, in the usual order. The error
// names the flag that is wrong.
func (o Options) Complete() (Options, error) {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	o.ClusterDomain = cmp.Or(o.ClusterDomain, DefaultClusterDomain)
	o.LogLevel = cmp.Or(o.LogLevel, defaultLogLevel)
	if err := o.takeHub(); err != nil {
		return o, err
	}
	if len(o.Components) == 0 {
		o.Components = options.AllControllers
	}
	if slices.Contains(o.Components, sourceWatcher) {
		o.Components = append(slices.Clone(o.Components), options.SourceController)
	}
	for _, c := range o.Components {
		if !slices.Contains(options.AllControllers, c) && c != sourceWatcher {
			return o, fmt.Errorf("invalid value %q for --components: choose from %s, %s", c,
				strings.Join(options.AllControllers, ", "), HubComponent)
		}
	}
	given := o.Components
	o.Components = slices.DeleteFunc(slices.Clone(options.AllControllers),
		func(c string) bool { return !slices.Contains(given, c) })
	if o.Args != nil {
		o.Args = slices.DeleteFunc(slices.Clone(o.Args), func(arg string) bool { return arg == "" })
	}
	return o, o.validate()
}

func (o Options) validate() error {
	if levels := []string{"trace", "debug", "info", "error"}; !slices.Contains(levels, o.LogLevel) {
		return fmt.Errorf("invalid value %q for --log-level: choose from trace, debug, info, error", o.LogLevel)
	}
	if o.Profile != "" && o.Profile != ProfileMultiTenant {
		return fmt.Errorf("unknown --profile %q: choose %s, or leave it out", o.Profile, ProfileMultiTenant)
	}
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		return fmt.Errorf("invalid --namespace %q: %s", o.Namespace, problems[0])
	}
	if problems := validation.IsDNS1123Subdomain(o.ClusterDomain); len(problems) > 0 {
		return fmt.Errorf("invalid --cluster-domain %q: %s", o.ClusterDomain, problems[0])
	}
	if problems := validation.IsDNS1123Subdomain(o.PullSecret); o.PullSecret != "" && len(problems) > 0 {
		return fmt.Errorf("invalid --image-pull-secret %q: %s", o.PullSecret, problems[0])
	}
	for _, key := range o.TolerationKeys {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("invalid --toleration-keys %q: %s", key, problems[0])
		}
	}
	if user, password, ok := strings.Cut(o.RegistryLogin, ":"); o.RegistryLogin != "" &&
		(!ok || user == "" || password == "") {
		return errors.New("invalid --registry-creds: expected user:password")
	}
	if o.RegistryLogin != "" && o.PullSecret == "" {
		return errors.New("--registry-creds needs --image-pull-secret, the name of the Secret to store them in")
	}
	return errors.Join(o.validateReplicas(), o.UI.validate(o.Hub.URL != ""), o.validateArgs())
}

// validateArgs checks the further arguments: with an invalid one, no controller would start.
func (o Options) validateArgs() error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(options.Options).BindFlags(flags)
	for _, arg := range o.Args {
		if err := flags.Parse([]string{arg}); err != nil || flags.NArg() > 0 {
			return fmt.Errorf("invalid --controller-arg %q: expected a flag of sluice controller with its value, "+
				"such as --concurrent=8", arg)
		}
	}
	return nil
}

// Runs reports whether a component is installed.
func (o Options) Runs(component string) bool { return slices.Contains(o.Components, component) }
