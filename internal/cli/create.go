package cli

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// objectFlags are the flags of `sluice create` for one kind.
type objectFlags interface {
	// bind adds the flags. It returns an example of them that is sufficient to create an object.
	bind(f *pflag.FlagSet) string
	// build returns the object without metadata. It may set the Secret of the creation.
	build(ctx context.Context, c *creation) (reconcile.Object, error)
}

// objectKinds make the flags of the kinds that `sluice create` supports.
var objectKinds = map[string]func() objectFlags{
	sourcev1.GitRepositoryKind:                  func() objectFlags { return &createGit{} },
	sourcev1.OCIRepositoryKind:                  func() objectFlags { return &createOCI{} },
	sourcev1.HelmRepositoryKind:                 func() objectFlags { return &createHelm{} },
	sourcev1.HelmChartKind:                      func() objectFlags { return &createChart{} },
	sourcev1.BucketKind:                         func() objectFlags { return &createBucket{} },
	kustomizev1.KustomizationKind:               func() objectFlags { return &createKustomization{} },
	helmv2.HelmReleaseKind:                      func() objectFlags { return &createHelmRelease{} },
	notificationv1.ReceiverKind:                 func() objectFlags { return &createReceiver{} },
	notificationv1.ProviderKind:                 func() objectFlags { return &createProvider{} },
	notificationv1.AlertKind:                    func() objectFlags { return &createAlert{} },
	imagev1.ImageRepositoryKind:                 func() objectFlags { return &createImageRepository{} },
	imagev1.ImagePolicyKind:                     func() objectFlags { return &createImagePolicy{} },
	imagev1.ImageUpdateAutomationKind:           func() objectFlags { return &createImageUpdate{} },
	controlplanev1.ResourceSetKind:              func() objectFlags { return &createResourceSet{} },
	controlplanev1.ResourceSetInputProviderKind: func() objectFlags { return &createInputProvider{} },
	inputsv1.ClusterInputProviderKind:           func() objectFlags { return &createClusterInputs{} },
	gatingv1.GateKind:                           func() objectFlags { return &createGate{} },
}

// createOptions are the flags of all create commands.
type createOptions struct {
	export bool // print, and change nothing
	labels map[string]string
}

func (o *createOptions) bind(f *pflag.FlagSet) {
	f.BoolVar(&o.export, "export", false, "print the object and change nothing")
	f.StringToStringVar(&o.labels, "label", nil, "labels of the object, such as team=a,tier=web")
}

// creation is one run of a create command.
type creation struct {
	*env
	createOptions
	name     string
	interval meta.Duration

	secret        *corev1.Secret // of the object; nil for none
	deployKey     string         // public key that the git host needs; "" for none
	skipKeyPrompt bool           // do not ask whether the git host has the key
}

func newCreateCommand(e *env) *cobra.Command {
	var o createOptions
	c := newGroup("create", "Create or update an object from flags, or print it as YAML",
		`  sluice create source git app --url https://example.com/org/app --branch main
  sluice create source oci app --url oci://registry.example.com/org/app \
    --tag latest --export > app.yaml
  sluice create secret git login --url https://example.com/org/app \
    --username me --password -`)
	o.bind(c.PersistentFlags())
	e.addPerKind(c, func(k *kind.Kind) *cobra.Command {
		newFlags, isSupported := objectKinds[k.Name()]
		if !isSupported {
			return nil
		}
		return newCreateKindCommand(e, k, newFlags(), &o)
	})
	c.AddCommand(newCreateSecretCommand(e, &o), newCreateTenantCommand(e, &o))
	return c
}

func newCreateKindCommand(e *env, k *kind.Kind, flags objectFlags, o *createOptions) *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use:     k.Words[0] + " NAME",
		Aliases: k.Words[1:],
		Short:   "Create or update " + k.WithArticle() + ", and wait until it is Ready",
		Args:    oneNewName,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &creation{env: e, createOptions: *o, name: args[0], interval: meta.Duration{Duration: interval}}
			bounded, cancel := e.WithTimeout(cmd.Context())
			obj, err := flags.build(bounded, c)
			cancel()
			if err != nil {
				return err
			}
			obj.SetName(c.name)
			obj.SetNamespace(e.Namespace())
			obj.SetLabels(o.labels)
			return c.store(cmd.Context(), k, obj)
		},
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	example := flags.bind(c.Flags())
	c.Example = fmt.Sprintf("  sluice create %s NAME %s\n  sluice create %s NAME %s --export", k.Path(), example,
		k.Path(), example)
	if !k.NoInterval {
		c.Flags().DurationVar(&interval, "interval", cmp.Or(k.New().Schedule().Interval, time.Minute),
			"interval between reconciles")
	}
	return c
}

func oneNewName(cmd *cobra.Command, args []string) error {
	if err := exactlyOne(cmd, args); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(args[0]); len(problems) > 0 {
		return usagef("invalid name %q: %s", args[0], problems[0])
	}
	return nil
}

// store stores the Secret and the object, and waits until the object is Ready. With --export it prints them instead.
func (c *creation) store(ctx context.Context, k *kind.Kind, obj reconcile.Object) error {
	if c.export {
		if c.secret == nil {
			return c.printDeclarations(obj)
		}
		return c.printDeclarations(c.secret, obj)
	}
	if c.secret != nil {
		if err := c.storeSecret(ctx); err != nil {
			return err
		}
	}
	key := client.ObjectKeyFromObject(obj)
	if c.deployKey != "" && !c.skipKeyPrompt && !c.Confirm("Does the host have this deploy key?") {
		return fmt.Errorf("%s '%s' was not created. Add the public key to the host as a deploy key and run the same "+
			"command again, which uses the key in Secret '%s'", k.Name(), key, c.secret.Name)
	}
	ctx, cancel := c.WithTimeout(ctx) // does not include the wait for an answer
	defer cancel()
	cl, err := c.Client()
	if err != nil {
		return err
	}
	action, err := c.put(ctx, cl, obj)
	if err != nil {
		return err
	}
	if action != cluster.Created { // a changed Secret alone does not cause a reconcile
		return reconciler{env: c.env, client: cl}.run(ctx, k, key, false)
	}
	return c.awaitReady(ctx, cl, k, key)
}

// put creates or updates an object, and prints what it did.
func (c *creation) put(ctx context.Context, cl client.Client, obj client.Object) (cluster.Action, error) {
	want, err := manifest.Declaration(obj)
	if err != nil {
		return "", err
	}
	action, err := cluster.Put(ctx, cl, want)
	if err == nil {
		c.Done("%s '%s' %s", want.GetKind(), cluster.FullName(want), action)
	}
	return action, err
}

// localRef returns a reference to an object by name, or nil for "".
func localRef(name string) *meta.LocalObjectReference {
	if name == "" {
		return nil
	}
	return &meta.LocalObjectReference{Name: name}
}

// refVar adds a flag with the name of an object that a field refers to.
func refVar(f *pflag.FlagSet, ref **meta.LocalObjectReference, name, usage string) {
	f.Var(refValue{ref}, name, usage)
}

// refValue is a flag that sets a reference.
type refValue struct{ ref **meta.LocalObjectReference }

// String implements [pflag.Value].
func (v refValue) String() string {
	if v.ref == nil || *v.ref == nil {
		return ""
	}
	return (*v.ref).Name
}

// Set implements [pflag.Value].
func (v refValue) Set(name string) error {
	*v.ref = localRef(name)
	return nil
}

// Type implements [pflag.Value].
func (refValue) Type() string { return "string" }

// optionalDuration returns a duration of the API, or nil for 0.
func optionalDuration(d time.Duration) *meta.Duration {
	if d == 0 {
		return nil
	}
	return &meta.Duration{Duration: d}
}

// optional returns a pointer to a value, or nil for the zero value.
func optional[T any](v T) *T {
	if reflect.ValueOf(v).IsZero() {
		return nil
	}
	return &v
}

// ignoreRules joins paths to spec.ignore, or returns nil if there are none.
func ignoreRules(paths []string) *string { return optional(strings.Join(paths, "\n")) }
