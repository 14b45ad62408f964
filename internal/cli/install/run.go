package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// Progress receives what happens. The terminal of the command line is one.
type Progress interface {
	Step(format string, args ...any) // a step that starts, or a hint
	Done(format string, args ...any) // a completed step
	Warn(format string, args ...any) // something that a person should look at
	Live(format string, args ...any) // replaced by the next line
}

// Request says how to install.
type Request struct {
	Progress
	Wait    bool          // until every Deployment is available
	Force   bool          // take over definitions and controllers of Flux
	DryRun  bool          // write nothing, and report what would change
	Timeout time.Duration // of the context, for error messages
	// Changes receives what a dry-run would change, one object each.
	Changes func(text string)
	// Objects are installed instead of the manifests of the options, for manifests that people patched.
	Objects []*unstructured.Unstructured
}

// change reports what a dry-run would change.
func (r Request) change(format string, args ...any) {
	if r.Changes == nil {
		r.Step(format, args...)
		return
	}
	r.Changes(fmt.Sprintf(format, args...))
}

// fieldManager is the name of the command line in managed fields.
const fieldManager = "sluice-cli"

// Owner returns the owner of all objects that are installed into a namespace.
func Owner(namespace string) apply.Owner {
	return apply.Owner{Group: "app.kubernetes.io", Namespace: namespace, Name: ownName}
}

// installer is an installation in progress.
type installer struct {
	Options
	Request
	*Target
	objects []*unstructured.Unstructured
}

// Target is the cluster to install into.
type Target struct {
	*apply.Cluster
	Kubernetes kubernetes.Interface
}

// Connect returns the cluster of a configuration. It sends no request. Close the target after use.
func Connect(cfg *rest.Config, timeout time.Duration) (*Target, error) {
	c, err := apply.NewCluster(cfg, apply.ClusterOptions{FieldManager: fieldManager, WaitTimeout: timeout})
	if err != nil {
		return nil, err
	}
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Target{Cluster: c, Kubernetes: k}, nil
}

// Run installs, or updates what is installed. It checks the cluster first and changes nothing if it finds an obstacle.
// Then it applies the manifests, removes what former options installed, and waits until every definition is served
// and every Deployment is available. Running it again goes on where a run before has failed.
func Run(ctx context.Context, cfg *rest.Config, o Options, req Request) error {
	o, err := o.Complete()
	if err != nil {
		return err
	}
	objects, err := req.manifests(o)
	if err != nil {
		return err
	}
	target, err := Connect(cfg, req.Timeout)
	if err != nil {
		return err
	}
	defer target.Close()
	i := &installer{Options: o, Request: req, Target: target, objects: objects}
	if err := i.preflight(ctx); err != nil {
		return err
	}
	if err := i.keepArgs(ctx); err != nil {
		return err
	}
	if err := i.keepReplicas(ctx); err != nil {
		return err
	}
	if err := i.leaveToOperator(ctx); err != nil {
		return err
	}
	if err := Remember(i.Options, i.objects); err != nil {
		return err
	}
	if req.DryRun {
		return i.preview(ctx)
	}
	if err := i.apply(ctx); err != nil {
		return err
	}
	if !req.Wait {
		return nil
	}
	return i.wait(ctx)
}

// manifests returns the objects to install.
func (r Request) manifests(o Options) ([]*unstructured.Unstructured, error) {
	switch {
	case r.Objects == nil:
		return Manifests(o)
	case o.RegistryLogin != "":
		return append(slices.Clone(r.Objects), o.pullSecret()), nil
	}
	return r.Objects, nil
}

// preview reports what apply would change.
func (i *installer) preview(ctx context.Context) error {
	if _, err := i.stopFlux(ctx); err != nil {
		return err
	}
	stale, err := i.stale(ctx)
	if err != nil {
		return err
	}
	changes, err := i.Diff(ctx, apply.Request{Owner: Owner(i.Namespace), Objects: i.objects, Previous: stale})
	for _, c := range changes {
		if c.Action == apply.Unchanged {
			i.change("%s would be unchanged", c.Ref)
		} else {
			i.change("%s would be %s", c.Ref, c.Action)
		}
	}
	return cluster.Explain("the installation would fail", refused(err))
}

// apply writes the objects, then deletes those that former options installed.
func (i *installer) apply(ctx context.Context) error {
	i.Step("installing %d objects into namespace %s", len(i.objects), i.Namespace)
	i.Live("waiting for the cluster to serve the CustomResourceDefinitions")
	stopped, err := i.stopFlux(ctx)
	if err != nil {
		return err
	}
	if err := i.waitStopped(ctx, stopped); err != nil {
		return err
	}
	result, err := i.Apply(ctx, apply.Request{Owner: Owner(i.Namespace), Objects: i.objects})
	i.report(result.Changes)
	if err != nil {
		return cluster.Explain("installation failed", refused(err))
	}
	stale, err := i.stale(ctx)
	if err != nil {
		return err
	}
	pruned, err := i.Prune(ctx, Owner(i.Namespace), stale)
	i.report(pruned)
	return cluster.Explain("cannot remove what is no longer part of the installation", err)
}

// keepArgs adds the further arguments that the installation has, if the options do not say which. Objects that are
// given have their own.
func (i *installer) keepArgs(ctx context.Context) (err error) {
	if i.Args != nil || i.Objects != nil {
		return nil
	}
	if i.Args, err = i.recordedArgs(ctx, i.Namespace); err == nil && i.Args != nil {
		i.objects, err = Manifests(i.Options)
	}
	return err
}

// keepReplicas sets the replicas that run now in Deployments that do not say how many, as an autoscaler does. Without
// them, the cluster would go back to one when a former installation had set a number.
func (i *installer) keepReplicas(ctx context.Context) error {
	for _, u := range i.objects {
		_, isSet, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		if isSet || u.GetKind() != deploymentKind {
			continue
		}
		live, err := i.live(ctx, u)
		if err != nil {
			return cluster.Explain("cannot get Deployment '"+u.GetName()+"'", err)
		}
		if live == nil {
			continue
		}
		if replicas, found, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); found {
			set(u, replicas, "spec", "replicas")
		}
	}
	return nil
}

func (i *installer) report(changes []apply.Change) {
	for _, c := range changes {
		i.Done("%s %s", c.Ref, c.Action)
	}
}

// refused adds what to do if an admission webhook or policy refused an object.
func refused(err error) error {
	if err == nil {
		return nil
	}
	for _, text := range []string{"admission webhook", "failed calling webhook", "ValidatingAdmissionPolicy"} {
		if strings.Contains(err.Error(), text) {
			return fmt.Errorf("%w. Nothing was changed. Exempt namespace and objects of Sluice from this admission "+
				"check, or repair its webhook, then run the command again", err)
		}
	}
	return err
}

// prunable are the resources whose objects may be deleted if options change. Definitions and namespaces never are.
var prunable = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "resourcequotas"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
}

// stale returns the objects that were installed by other options, and are not part of these.
func (i *installer) stale(ctx context.Context) (apply.Inventory, error) {
	if i.CRDsOnly {
		return nil, nil
	}
	installed, err := i.Installed(ctx, i.Namespace)
	if err != nil {
		return nil, err
	}
	var stale apply.Inventory
	for _, u := range installed {
		if !slices.ContainsFunc(i.objects, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind().GroupKind() == u.GroupVersionKind().GroupKind() && o.GetName() == u.GetName()
		}) {
			stale = append(stale, refOf(u).Entry())
		}
	}
	return stale, nil
}

// Installed returns the objects that Run installed into a namespace, without definitions, the namespace and Secrets.
func (t *Target) Installed(ctx context.Context, namespace string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	own := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: Owner(namespace).Labels()})
	for _, resource := range prunable {
		list, err := t.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: own})
		if err != nil {
			return nil, cluster.Explain("cannot list "+resource.Resource, err)
		}
		for k := range list.Items {
			objects = append(objects, &list.Items[k])
		}
	}
	return objects, nil
}

func refOf(u *unstructured.Unstructured) apply.Ref {
	gvk := u.GroupVersionKind()
	return apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: u.GetNamespace(),
		Name: u.GetName()}
}

// timedOut reports whether the time of the command is over, not its caller's.
func timedOut(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
