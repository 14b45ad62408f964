package cluster

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"
	"k8s.io/kubernetes/pkg/kubeapiserver"
)

// emptiers is the number of namespaces emptied concurrently. An attempt waits for several requests, so that on a slow
// machine a namespace would otherwise wait for all others.
const emptiers = 16

// abandoned is an annotation of namespaces whose controllers are gone, for example because their test ended. They would
// have removed the finalizers of custom resources there, so the deletion of the namespace does.
const abandoned = "playground.sluice.dev/abandoned"

// startNamespaces empties and removes namespaces that are deleted. It is Kubernetes' own deletion, without
// the controller around it: that waits 5 s for the API servers to agree, of which there is one here, and 16 s
// for a pod that is gone. Kinds that etcd has no object of take no requests: of two for each kind, more than a hundred
// for a namespace, almost all would find nothing.
func startNamespaces(ctx context.Context, client kubernetes.Interface, meta metadata.Interface,
	shared informers.SharedInformerFactory, etcd *etcdServer) error {
	core := client.CoreV1()
	return loop(ctx, shared.Core().V1().Namespaces().Informer(), emptiers,
		func(ctx context.Context, ns *corev1.Namespace) (time.Duration, error) {
			if ns.DeletionTimestamp == nil {
				return 0, nil
			}
			all, unknown := client.Discovery().ServerPreferredNamespacedResources()
			if len(all) == 0 { // the process would end
				return 0, unknown
			}
			if _, ok := ns.Annotations[abandoned]; ok {
				if err := etcd.removeFinalizers(ctx, meta, all, ns.Name); err != nil {
					return 0, err
				}
			}
			kinds := func() ([]*metav1.APIResourceList, error) { return all, unknown }
			deleter := deletion.NewNamespacedResourcesDeleter(ctx, core.Namespaces(), meta, core,
				func() ([]*metav1.APIResourceList, error) { return kinds() }, corev1.FinalizerKubernetes)
			kinds = func() ([]*metav1.APIResourceList, error) {
				return stored(all, func(r schema.GroupResource) bool { return etcd.stores(ctx, r, ns.Name) }), unknown
			}
			// it is an error that something remains: it is tried again, less and less often
			return 0, deleter.Delete(ctx, ns.Name)
		})
}

// stored returns the resources that isStored reports true for.
func stored(lists []*metav1.APIResourceList, isStored func(schema.GroupResource) bool) []*metav1.APIResourceList {
	var result []*metav1.APIResourceList
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue // discovery ignores it as well
		}
		l := &metav1.APIResourceList{GroupVersion: l.GroupVersion, APIResources: slices.DeleteFunc(
			slices.Clone(l.APIResources), func(r metav1.APIResource) bool {
				return !isStored(schema.GroupResource{Group: gv.Group, Resource: r.Name})
			})}
		result = append(result, l)
	}
	return result
}

// removeFinalizers removes the finalizers of the custom resources in a namespace, by a request for each that has any.
func (e *etcdServer) removeFinalizers(ctx context.Context, objects metadata.Interface, lists []*metav1.APIResourceList,
	namespace string) error {
	var errs []error
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue // discovery ignores it as well
		}
		for _, r := range l.APIResources {
			of := objects.Resource(gv.WithResource(r.Name)).Namespace(namespace)
			names, err := e.finalized(ctx, gv.WithResource(r.Name).GroupResource(), namespace)
			errs = append(errs, err)
			for _, name := range names {
				_, err := of.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
					metav1.PatchOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// finalized returns the names of the custom resources of a kind in a namespace that have finalizers.
func (e *etcdServer) finalized(ctx context.Context, r schema.GroupResource, namespace string) ([]string, error) {
	key, end := keysOf(path.Join(r.Group, r.Resource), namespace)
	found, err := e.kv.Range(ctx, key, end, mvcc.RangeOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, kv := range found.KVs {
		if bytes.Contains(kv.Value, []byte(`"finalizers":[`)) { // custom resources are stored as JSON
			names = append(names, path.Base(string(kv.Key)))
		}
	}
	return names, nil
}

// stores reports whether there may be an object of a resource in a namespace.
func (e *etcdServer) stores(ctx context.Context, r schema.GroupResource, namespace string) bool {
	builtIn := r.Resource
	if special, ok := kubeapiserver.SpecialDefaultResourcePrefixes[r]; ok {
		builtIn = special
	}
	for _, prefix := range []string{builtIn, path.Join(r.Group, r.Resource)} { // the other one is of definitions
		key, end := keysOf(prefix, namespace)
		found, err := e.kv.Range(ctx, key, end, mvcc.RangeOptions{CountOnly: true})
		if err != nil || found.Count > 0 {
			return true
		}
	}
	return false
}

// keysOf returns the first key of the objects of a namespace, and the first after them.
func keysOf(prefix, namespace string) (first, after []byte) {
	all := path.Join("/registry", prefix, namespace)
	return []byte(all + "/"), []byte(all + "0") // the byte after "/"
}
