package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// state is what the cluster has before a run.
type state struct {
	source     string            // URL that the cluster reads; empty before the first bootstrap
	path       string            // spec.path of the Kustomization
	applied    string            // revision that the cluster applied last
	secret     map[string][]byte // data of the Secret; nil if it does not exist
	knownHosts []byte            // of the SSH host
}

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

// inspect reads what the cluster has.
func (r *run) inspect(ctx context.Context) error {
	r.Output.Live("reading the cluster")
	namespace := &corev1.Namespace{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: r.Namespace}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return clusterFault("cannot get namespace '"+r.Namespace+"'", err)
	}
	if namespace.DeletionTimestamp != nil {
		return failed("namespace '%s' is being deleted", r.Namespace).
			WithHint("Wait until it is gone, and run the command again")
	}
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Namespace}
	k := &kustomizev1.Kustomization{}
	source := r.newSource()
	secret := &corev1.Secret{}
	for _, get := range []struct {
		what string
		key  types.NamespacedName
		into client.Object
	}{
		{what: "Kustomization", key: key, into: k},
		{what: r.sourceKind(), key: key, into: source},
		{what: "Secret", key: types.NamespacedName{Namespace: r.Namespace, Name: r.SecretName}, into: secret},
	} {
		err := r.Client.Get(ctx, get.key, get.into)
		if client.IgnoreNotFound(err) != nil && !apimeta.IsNoMatchError(err) {
			return clusterFault(fmt.Sprintf("cannot get %s '%s'", get.what, get.key), err)
		}
	}
	if secret.UID != "" {
		r.state.secret = secret.Data
		if r.state.secret == nil {
			r.state.secret = map[string][]byte{}
		}
	}
	r.state.source, r.state.path, r.state.applied = urlOf(source), k.Spec.Path, k.Status.LastAppliedRevision
	return r.checkPath()
}

// checkPath refuses to move a cluster to another path, which would delete what the cluster has from the previous one.
func (r *run) checkPath() error {
	if r.state.path == "" || r.Force {
		return nil
	}
	current, err := CleanPath(r.state.path)
	if err == nil && current == r.Path {
		return nil
	}
	return failed("the cluster manages itself from path '%s', not from '%s': it would delete everything that the new "+
		"path does not contain", r.state.path, r.specPath()).
		WithHint("Set --path=%s, or --force to move the cluster", r.state.path).Final()
}

// install applies the manifests of the controllers, unless the cluster manages itself already: then it applies the
// commit as any other.
func (r *run) install(ctx context.Context) error {
	var objects []*unstructured.Unstructured
	for _, o := range r.objects {
		if !r.isSync(o) {
			objects = append(objects, o)
		}
	}
	if r.state.applied != "" && !r.AlwaysInstall {
		running, err := r.isRunning(ctx, objects)
		if err != nil || running {
			return err
		}
	}
	return r.Install(ctx, objects)
}

// isRunning reports whether all Deployments are available.
func (r *run) isRunning(ctx context.Context, objects []*unstructured.Unstructured) (bool, error) {
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		d := &appsv1.Deployment{}
		err := r.Client.Get(ctx, keyOf(o), d)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, clusterFault(fmt.Sprintf("cannot get Deployment '%s'", keyOf(o)), err)
		}
		if d.Status.AvailableReplicas == 0 {
			return false, nil
		}
	}
	return true, nil
}

// applySync applies the source and the Kustomization as the Kustomization will apply them itself: with its field
// manager and its labels, so that it finds nothing to change.
func (r *run) applySync(ctx context.Context) error {
	owner := apply.Owner{Group: kustomizev1.GroupVersion.Group, Namespace: r.Namespace, Name: r.Namespace}
	applied := 0
	for _, o := range r.objects {
		if !r.isSync(o) {
			continue
		}
		u := o.DeepCopy()
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		for name, value := range owner.Labels() {
			labels[name] = value
		}
		u.SetLabels(labels)
		err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
			client.FieldOwner(apply.DefaultFieldManager), client.ForceOwnership)
		if err != nil {
			return clusterFault(fmt.Sprintf("cannot apply %s '%s'", u.GetKind(), keyOf(u)), err)
		}
		applied++
	}
	if applied != 2 {
		return failed("directory '%s' of %s does not declare %s and Kustomization '%s'", r.dir(), r.where(),
			r.sourceKind(), r.Namespace).
			WithHint("Remove patches of %s that rename or delete them", KustomizationFile).Final()
	}
	return nil
}

// clusterFault returns the fault of a request to the cluster.
func clusterFault(what string, err error) error {
	f := fault.New(meta.FailedReason, "%s", what).Because(err)
	var network *net.OpError
	var request *url.Error
	switch {
	case apply.IsMissingRight(err):
		return f.WithHint("Use an account that may administer the cluster, with --context or --as")
	case apierrors.IsUnauthorized(err):
		return f.WithHint("The cluster rejected the credentials: log in again, or choose another --context")
	case apimeta.IsNoMatchError(err):
		return f.WithHint("The definitions are not installed: run the command again")
	case errors.As(err, &network), errors.As(err, &request):
		return f.WithHint("Check that the cluster is running, and that --context is correct")
	}
	return f
}
