package inputprovider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// +kubebuilder:rbac:groups=inputs.toolkit.fluxcd.io,resources=clusterinputproviders,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=inputs.toolkit.fluxcd.io,resources=clusterinputproviders,verbs=update;patch;delete
// +kubebuilder:rbac:groups=inputs.toolkit.fluxcd.io,resources=clusterinputproviders/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=inputs.toolkit.fluxcd.io,resources=clusterinputproviders/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=inputs.toolkit.fluxcd.io,resources=clusterinputproviders/finalizers,verbs=update;patch
// +kubebuilder:rbac:groups=inputs.toolkit.fluxcd.io,resources=clusterinputproviders/finalizers,verbs=delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// ClusterGroupKind is the kind of providers of clusters.
var ClusterGroupKind = schema.GroupKind{Group: inputsv1.GroupVersion.Group, Kind: inputsv1.ClusterInputProviderKind}

const (
	maxClusters       = 1000 // of a provider
	maxParallelProbes = 8    // of a provider

	// clusterNameLabel is the label of Cluster API on the Secret with the kubeconfig of a Cluster.
	clusterNameLabel = "cluster.x-k8s.io/cluster-name"
)

// probeTimeout is the time in which a cluster must answer. Otherwise it is not reachable until it is asked again.
var probeTimeout = 5 * time.Second

// clusterKind is the kind of Cluster API.
var clusterKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}

type (
	metadataStore = kubewatch.Store[*metav1.PartialObjectMetadata, struct{}, reconcile.Ref]
	metadataWatch = kubewatch.Watch[*metav1.PartialObjectMetadata, struct{}, reconcile.Ref]
)

// Clusters is the domain step of ClusterInputProviders: one input set for each cluster.
type Clusters struct {
	Live   client.Reader // the API server, not the cache
	Mapper apimeta.RESTMapper
	Edges  *reconcile.Edges
	Clock  clock.PassiveClock
	// Config returns the connection to the cluster of a kubeconfig in a Secret.
	Config func(ctx context.Context, namespace string, ref *meta.KubeConfigReference) (*rest.Config, string, error)

	mu     sync.Mutex
	store  *metadataStore
	users  map[kubewatch.Key]map[reconcile.Ref]bool
	probes map[types.UID]map[string]probe // by provider and name of the Secret
}

// probe is what a cluster answered.
type probe struct {
	secret    string // UID and version of the Secret
	at        time.Time
	version   string // empty if it never answered
	reachable bool
}

// NewClusters completes the step with the watches, whose objects enqueue the providers.
func NewClusters(c *Clusters, metadata kubewatch.Client[*metav1.PartialObjectMetadata]) *Clusters {
	c.users, c.probes = map[kubewatch.Key]map[reconcile.Ref]bool{}, map[types.UID]map[string]probe{}
	c.store = kubewatch.New(&c.mu, metadata, kubewatch.Handler[*metav1.PartialObjectMetadata, struct{}, reconcile.Ref]{
		Object: func(w *metadataWatch, _ *metav1.PartialObjectMetadata, _ bool) {
			for ref := range c.users[w.Key()] {
				c.Edges.Enqueue(ref)
			}
		}})
	return c
}

// References implements [reconcile.Step]. The watches enqueue the providers.
func (c *Clusters) References(*inputsv1.ClusterInputProvider) []reconcile.Ref { return nil }

// Finalize implements [reconcile.Step].
func (c *Clusters) Finalize(_ context.Context, obj *inputsv1.ClusterInputProvider) error {
	c.watch(reconcile.RefTo(ClusterGroupKind, obj.Namespace, obj.Name))
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.probes, obj.UID)
	return nil
}

// Leave implements [reconcile.Leaver].
func (c *Clusters) Leave(obj *inputsv1.ClusterInputProvider) {
	_ = c.Finalize(context.Background(), obj)
}

// Close ends all watches.
func (c *Clusters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.Close()
}

// watch sets which watches enqueue a provider. A watch without users ends.
func (c *Clusters) watch(ref reconcile.Ref, keys ...kubewatch.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if c.users[key] == nil {
			c.users[key] = map[reconcile.Ref]bool{}
		}
		c.users[key][ref] = true
		c.store.Watch(key, func(*metav1.PartialObjectMetadata) struct{} { return struct{}{} }).Resume()
	}
	for key, users := range c.users {
		if slices.Contains(keys, key) || !users[ref] {
			continue
		}
		if delete(users, ref); len(users) == 0 {
			delete(c.users, key)
			if w := c.store.Get(key); w != nil {
				c.store.Remove(w)
			}
		}
	}
}

// Reconcile implements [reconcile.Step]: it lists the clusters, asks those that are new, changed or due for their
// version, and exports all. A cluster that does not answer keeps the version that it had.
func (c *Clusters) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*inputsv1.ClusterInputProvider]) reconcile.Outcome {
	obj := pass.Object
	if err := checkDefaults(obj.Spec.DefaultValues); err != nil {
		return reconcile.Failed(err)
	}
	found, err := c.find(ctx, obj)
	if err != nil {
		return reconcile.Failed(err)
	}
	probes, err := c.probeAll(ctx, obj, found, pass.Requested)
	if err != nil {
		return reconcile.Failed(err)
	}
	sets, unreachable := []controlplanev1.InputSet{}, 0
	for _, f := range found {
		p := probes[f.secret.Name]
		if !p.reachable {
			unreachable++
		}
		sets = append(sets, f.set(p))
	}
	if sets, err = withDefaults(sets, obj.Spec.DefaultValues); err != nil {
		return reconcile.Failed(err)
	}
	revision, err := revisionOf(sets)
	if err != nil {
		return reconcile.Failed(err)
	}
	o := reconcile.Ready(meta.ReconciliationSucceededReason, "exported %s, %d not reachable",
		excerpt.Count(len(sets), "input set"), unreachable).WithMetadata(meta.EventRevisionKey, revision)
	if obj.Status.LastExportedRevision == revision {
		return o.Unchanged()
	}
	obj.Status.ExportedInputs, obj.Status.LastExportedRevision = sets, revision
	return o
}

// foundCluster is an object that stands for a cluster, and the Secret with its kubeconfig.
type foundCluster struct {
	metav1.ObjectMeta
	secret metav1.ObjectMeta // without a UID if the Secret does not exist
}

// set returns the input set of a cluster. The annotation of kubectl is left out, as it has the data of a Secret.
func (f foundCluster) set(p probe) controlplanev1.InputSet {
	annotations := maps.Clone(f.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return inputs{
		idKey: checksum(f.Namespace + "/" + f.Name), "name": f.Name, "namespace": f.Namespace,
		"labels": orEmpty(f.Labels), "annotations": orEmpty(annotations), "kubeConfigSecret": f.secret.Name,
		"version": p.version, "reachable": p.reachable,
	}.set()
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// find returns the clusters by name.
func (c *Clusters) find(ctx context.Context, obj *inputsv1.ClusterInputProvider) (found []foundCluster, err error) {
	selector, err := metav1.LabelSelectorAsSelector(&obj.Spec.Selector)
	if err != nil {
		return nil, invalidSpec("spec.selector is not valid").Because(err)
	}
	if obj.Spec.Kind == inputsv1.ClusterOfCluster {
		found, err = c.findClusters(ctx, obj, selector)
	} else {
		found, err = c.findSecrets(ctx, obj, selector)
	}
	if err == nil && len(found) > maxClusters {
		err = failed("spec.selector selects %d clusters, more than %d", len(found), maxClusters)
	}
	slices.SortFunc(found, func(a, b foundCluster) int { return cmp.Compare(a.Name, b.Name) })
	return found, err
}

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

// findSecrets returns the selected Secrets with a kubeconfig, or that register a cluster at a hub.
func (c *Clusters) findSecrets(ctx context.Context, obj *inputsv1.ClusterInputProvider,
	selector labels.Selector) (found []foundCluster, err error) {
	c.watch(reconcile.RefTo(ClusterGroupKind, obj.Namespace, obj.Name),
		kubewatch.Key{Resource: secretResource, Namespace: obj.Namespace, LabelSelector: selector.String()})
	secrets, registered, err := c.secrets(ctx, obj.Namespace, selector)
	for _, s := range secrets {
		found = append(found, foundCluster{s, s})
	}
	for _, s := range registered {
		found = append(found, foundCluster{ObjectMeta: s})
	}
	return found, err
}

// secrets returns the metadata of Secrets with a kubeconfig, and of those without one that register a cluster at a hub.
func (c *Clusters) secrets(ctx context.Context, namespace string, selector labels.Selector) (
	found, registered []metav1.ObjectMeta, err error) {
	var list corev1.SecretList
	if err := c.Live.List(ctx, &list, client.InNamespace(namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, nil, failed("cannot list the Secrets of spec.selector").Because(err)
	}
	for _, s := range list.Items {
		switch {
		case !s.DeletionTimestamp.IsZero():
		case len(s.Data["value"]) > 0 || len(s.Data["value.yaml"]) > 0:
			found = append(found, s.ObjectMeta)
		case s.Labels[fleet.ClusterLabel] != "":
			registered = append(registered, s.ObjectMeta)
		}
	}
	return found, registered, nil
}

// findClusters returns the selected Clusters of Cluster API, with the Secrets that it writes.
func (c *Clusters) findClusters(ctx context.Context, obj *inputsv1.ClusterInputProvider,
	selector labels.Selector) (found []foundCluster, err error) {
	mapping, err := c.Mapper.RESTMapping(clusterKind)
	if err != nil {
		return nil, failed("the cluster does not serve the kind Cluster of group '%s'", clusterKind.Group).
			Because(err).WithHint("Install Cluster API, or set spec.kind to Secret")
	}
	ofSecrets, err := labels.Parse(clusterNameLabel)
	if err != nil {
		return nil, err
	}
	c.watch(reconcile.RefTo(ClusterGroupKind, obj.Namespace, obj.Name),
		kubewatch.Key{Resource: mapping.Resource, Namespace: obj.Namespace, LabelSelector: selector.String()},
		kubewatch.Key{Resource: secretResource, Namespace: obj.Namespace, LabelSelector: ofSecrets.String()})
	secrets, _, err := c.secrets(ctx, obj.Namespace, ofSecrets)
	if err != nil {
		return nil, err
	}
	byName := map[string]metav1.ObjectMeta{}
	for _, s := range secrets {
		byName[s.Name] = s
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(clusterKind.Kind + "List"))
	if err := c.Live.List(ctx, &list, client.InNamespace(obj.Namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, failed("cannot list the Clusters of spec.selector").Because(err)
	}
	for _, o := range list.Items {
		if o.DeletionTimestamp.IsZero() {
			f := foundCluster{ObjectMeta: o.ObjectMeta, secret: byName[o.Name+"-kubeconfig"]}
			f.secret.Name = o.Name + "-kubeconfig"
			found = append(found, f)
		}
	}
	return found, nil
}

// probeAll returns what the clusters answered. It asks those that are new or changed, and the others when they are due
// or the pass was requested.
func (c *Clusters) probeAll(ctx context.Context, obj *inputsv1.ClusterInputProvider, found []foundCluster,
	all bool) (map[string]probe, error) {
	c.mu.Lock()
	before := c.probes[obj.UID]
	c.mu.Unlock()
	due := c.Clock.Now().Add(-obj.Schedule().Interval / 2) // intervals have a jitter
	known := versionsOf(obj)
	now, mu := map[string]probe{}, sync.Mutex{}
	group, ctx := guard.GroupWithContext(ctx, "asking clusters for their version")
	group.SetLimit(maxParallelProbes)
	for _, f := range found {
		last, ok := before[f.secret.Name]
		id := string(f.secret.UID) + "/" + f.secret.ResourceVersion
		if !ok {
			last.version = known[f.Name]
		}
		if ok && !all && last.secret == id && last.at.After(due) {
			mu.Lock()
			now[f.secret.Name] = last
			mu.Unlock()
			continue
		}
		group.Go(func() error {
			p := probe{secret: id, at: c.Clock.Now(), version: last.version}
			if f.secret.UID != "" {
				version, err := c.ask(ctx, f.Namespace, f.secret.Name)
				if err == nil {
					p.version, p.reachable = version, true
				}
			}
			mu.Lock()
			defer mu.Unlock()
			now[f.secret.Name] = p
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, failed("the clusters were not all asked within the timeout").Because(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probes[obj.UID] = now
	return now, nil
}

// versionsOf returns the exported versions by the name of the cluster, for the first pass of a process.
func versionsOf(obj *inputsv1.ClusterInputProvider) map[string]string {
	known := map[string]string{}
	for _, set := range obj.Status.ExportedInputs {
		var name, version string
		if json.Unmarshal(set["name"].Raw, &name) == nil && json.Unmarshal(set["version"].Raw, &version) == nil {
			known[name] = version
		}
	}
	return known
}

// ask returns the version of the API server of a cluster.
func (c *Clusters) ask(ctx context.Context, namespace, secret string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	config, _, err := c.Config(ctx, namespace,
		&meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: secret}})
	if err != nil {
		return "", err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	raw, err := d.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	var info apiversion.Info
	if err == nil {
		err = json.Unmarshal(raw, &info)
	}
	if err == nil && info.GitVersion == "" {
		err = errors.New("the answer has no version")
	}
	return info.GitVersion, err
}
