package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// maker makes the objects of one kind: flags to spec.
type maker interface {
	// bind adds the kind's own flags, and returns an example of them that makes an object.
	bind(f *pflag.FlagSet) string
	// make returns the object without its name. It may give it a Secret.
	make(ctx context.Context, c *creation) (reconcile.Object, error)
}

// creation is one run of a create command.
type creation struct {
	*app
	name     string
	labels   map[string]string
	interval metav1.Duration
	export   bool // print, and change nothing

	secret    *corev1.Secret // that the object refers to; nil for none
	deployKey string         // public half of the key, which the host must know
	silent    bool           // do not ask whether it does
}

// createOptions of the create commands.
type createOptions struct {
	export bool
	labels map[string]string
}

func (o *createOptions) bind(f *pflag.FlagSet) {
	f.BoolVar(&o.export, "export", false, "print the object and change nothing")
	f.StringToStringVar(&o.labels, "label", nil, "labels of the object, such as team=a,tier=web")
}

func (a *app) create() *cobra.Command {
	var o createOptions
	c := group("create", "Create or update an object from flags, or print it as YAML",
		`  sluice create source git app --url https://example.com/org/app --branch main
  sluice create source oci app --url oci://registry.example.com/org/app --tag latest --export > app.yaml
  sluice create secret git login --url https://example.com/org/app --username me --password -`)
	o.bind(c.PersistentFlags())
	a.perKind(c, func(k *kind) *cobra.Command {
		if k.create == nil {
			return nil
		}
		return a.createKind(k, &o)
	})
	c.AddCommand(a.createSecret(&o))
	return c
}

func (a *app) createKind(k *kind, o *createOptions) *cobra.Command {
	m := k.create()
	var interval time.Duration
	c := &cobra.Command{
		Use:     k.words[0] + " NAME",
		Aliases: k.words[1:],
		Short:   "Create or update " + k.one() + ", and wait until it is Ready",
		Args:    oneNewName,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &creation{app: a, name: args[0], labels: o.labels, export: o.export,
				interval: metav1.Duration{Duration: interval}}
			bounded, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			obj, err := m.make(bounded, c)
			cancel()
			if err != nil {
				return err
			}
			obj.SetName(c.name)
			obj.SetNamespace(a.namespace())
			obj.SetLabels(o.labels)
			return a.createAndWait(cmd.Context(), c, k, obj)
		},
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	example := m.bind(c.Flags())
	c.Example = fmt.Sprintf("  sluice create %s NAME %s\n  sluice create %s NAME %s --export", k.path(), example,
		k.path(), example)
	if !k.edges {
		c.Flags().DurationVar(&interval, "interval", cmp.Or(k.new().Schedule().Interval, time.Minute),
			"how often to look for something new")
	}
	return c
}

func oneNewName(cmd *cobra.Command, args []string) error {
	if err := exactlyOne(cmd, args); err != nil {
		return err
	}
	if wrong := validation.IsDNS1123Subdomain(args[0]); len(wrong) > 0 {
		return usagef("%q cannot be a name: %s", args[0], wrong[0])
	}
	return nil
}

// createAndWait stores the Secret and the object, and waits for what the controllers make of them.
func (a *app) createAndWait(ctx context.Context, c *creation, k *kind, obj reconcile.Object) error {
	if c.export {
		if c.secret == nil {
			return a.printDeclared(obj)
		}
		return a.printDeclared(c.secret, obj)
	}
	if c.secret != nil {
		if err := a.storeSecret(ctx, c); err != nil {
			return err
		}
	}
	key := client.ObjectKeyFromObject(obj)
	if c.deployKey != "" && !c.silent && !a.confirm("Does it?") {
		return fmt.Errorf("%s '%s' was not created. Give the host the key, and run the same command again: it takes "+
			"the key that is in Secret '%s'",
			k.title(), key, c.secret.Name)
	}
	bounded, cancel := context.WithTimeout(ctx, a.timeout) // a person may have thought for long
	defer cancel()
	cluster, err := a.client()
	if err != nil {
		return err
	}
	action, err := a.put(bounded, cluster, obj)
	if err != nil {
		return err
	}
	if action != created { // what failed before may have failed for what the Secret says
		return a.reconcileNow(bounded, cluster, k, key, false)
	}
	done, err := a.await(bounded, cluster, k, key, settled)
	if err != nil {
		return err
	}
	return a.verdict(k, done)
}

// What put did.
const (
	created    = "created"
	configured = "configured"
	unchanged  = "unchanged"
)

// put creates an object, or makes the one of its name the same but for its metadata and status; labels are added.
func (a *app) put(ctx context.Context, c client.Client, obj client.Object) (string, error) {
	want, err := declared(obj)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("%s '%s'", want.GetKind(), client.ObjectKeyFromObject(want))
	action := ""
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(want.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(want), live)
		if apierrors.IsNotFound(err) {
			action = created
			return c.Create(ctx, want.DeepCopy())
		}
		if err != nil {
			return err
		}
		before := live.GetResourceVersion()
		overwrite(live, want)
		err = c.Update(ctx, live)
		action = map[bool]string{true: unchanged, false: configured}[live.GetResourceVersion() == before]
		return err
	})
	var invalid *apierrors.StatusError
	switch {
	case errors.As(err, &invalid) && apierrors.IsInvalid(err):
		return "", fmt.Errorf("the cluster refuses %s: %s", what, causes(invalid))
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no namespace '%s'. Create it, or choose another with -n", want.GetNamespace())
	case err != nil:
		return "", explain("cannot store "+what, err)
	}
	a.done("%s %s", what, action)
	return action, nil
}

// overwrite makes an object say what another one declares, but for what the cluster and others own; labels are added.
func overwrite(live, want *unstructured.Unstructured) {
	kept := []string{"apiVersion", "kind", "metadata", "status"}
	maps.DeleteFunc(live.Object, func(key string, _ any) bool { return !slices.Contains(kept, key) })
	for key, value := range want.Object {
		if !slices.Contains(kept, key) {
			live.Object[key] = value
		}
	}
	labels := map[string]string{}
	maps.Copy(labels, live.GetLabels())
	maps.Copy(labels, want.GetLabels())
	if len(labels) > 0 {
		live.SetLabels(labels)
	}
}

// causes lists what is wrong with an object, field by field.
func causes(err *apierrors.StatusError) string {
	if err.ErrStatus.Details == nil || len(err.ErrStatus.Details.Causes) == 0 {
		return err.Error()
	}
	var lines []string
	for _, c := range err.ErrStatus.Details.Causes {
		lines = append(lines, strings.TrimSpace(c.Field+": "+c.Message))
	}
	return strings.Join(lines, "; ")
}

// need returns a usage error when a flag that must be given was not.
func need(flag, value string) error {
	if value == "" {
		return usagef("--%s is missing", flag)
	}
	return nil
}

// oneOf returns a usage error when a flag has none of the values that it may have.
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return usagef("--%s %q: choose from %s", flag, value, strings.Join(choices, ", "))
}

// refer returns a reference to a name; nil when there is none.
func refer(name string) *meta.LocalObjectReference {
	if name == "" {
		return nil
	}
	return &meta.LocalObjectReference{Name: name}
}

// orNil returns nil for a struct of which nothing is set.
func orNil[T any](v T) *T {
	if reflect.ValueOf(v).IsZero() {
		return nil
	}
	return &v
}

// ignoreRules joins paths to rules in .gitignore syntax.
func ignoreRules(paths []string) *string {
	if len(paths) == 0 {
		return nil
	}
	rules := strings.Join(paths, "\n")
	return &rules
}
