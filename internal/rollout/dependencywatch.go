package rollout

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Reviewer authorizes reads of dependencies.
type Reviewer interface {
	// Allowed reports whether a user may do what the attributes say.
	Allowed(ctx context.Context, user *authenticationv1.UserInfo,
		what *authorizationv1.ResourceAttributes) (bool, error)
}

// DependencyWatch watches dependencies of any kind, with the rights of the controllers. All controllers of a process
// share it, so that it also knows the dependencies of their kinds. It is safe for concurrent use.
type DependencyWatch struct {
	reviewer Reviewer
	cluster  *apply.Cluster
	watcher  *health.Watcher

	mu      sync.Mutex
	watched map[reconcile.Ref]int // number of dependencies of each owner
	kinds   map[schema.GroupKind]func(ctx context.Context, name types.NamespacedName) []reconcile.Ref
}

// NewDependencyWatch returns a watch without dependencies. Dependents are enqueued when the health of a dependency
// changes.
func NewDependencyWatch(cfg *rest.Config, edges *reconcile.Edges, reviewer Reviewer) (*DependencyWatch, error) {
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		return nil, err
	}
	enqueue := func(key string) { edges.Enqueue(dependentOf(key)) }
	return &DependencyWatch{reviewer: reviewer, cluster: cluster,
		watcher: health.NewWatcher(cluster.Dynamic(), cluster.Mapper(), enqueue), watched: map[reconcile.Ref]int{},
		kinds: map[schema.GroupKind]func(context.Context, types.NamespacedName) []reconcile.Ref{}}, nil
}

// Close stops all watches.
func (w *DependencyWatch) Close() {
	w.watcher.Close()
	w.cluster.Close()
}

// dependencyKey identifies a dependency to the watcher. Each has its own key, as the readyExpr of one does not apply to
// the others.
func dependencyKey(owner reconcile.Ref, n int) string {
	return strings.Join([]string{owner.Group, owner.Kind, owner.Namespace, owner.Name, strconv.Itoa(n)}, "/")
}

func dependentOf(key string) reconcile.Ref {
	part := strings.Split(key, "/")
	return reconcile.RefTo(schema.GroupKind{Group: part[0], Kind: part[1]}, part[2], part[3])
}

// keep ends the watches of the dependencies of an owner from number count on.
func (w *DependencyWatch) keep(owner reconcile.Ref, count int) {
	w.mu.Lock()
	before := w.watched[owner]
	w.watched[owner] = count
	if count == 0 {
		delete(w.watched, owner)
	}
	w.mu.Unlock()
	for n := count; n < before; n++ {
		w.watcher.Forget(dependencyKey(owner, n))
	}
}

// Bounds of the wait for the first result of a new watch.
const (
	syncTimeout = 5 * time.Second
	syncPause   = 20 * time.Millisecond
)

// result returns the health of a dependency. It is false if it could not be observed in time.
func (w *DependencyWatch) result(ctx context.Context, key string, d *dependency) (health.Result, bool) {
	var checks []*health.Check
	if d.check != nil {
		checks = append(checks, d.check)
	}
	w.watcher.SetTargets(key, []health.Target{d.target}, checks...)
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		results, synced := w.watcher.Results(key)
		if synced && len(results) == 1 {
			return results[0], true
		}
		select {
		case <-ctx.Done():
			return health.Result{}, false
		case <-time.After(syncPause):
		}
	}
}

// dependency is an entry of spec.dependsOn with a kind.
type dependency struct {
	target health.Target
	check  *health.Check // nil: kstatus
	waits  bool          // for more than its existence
}

// ownReady and ownFailed are when objects of ResourceSets' group are ready, and when they cannot become so. By kstatus
// they count as ready without a status.
const (
	ownReady = "status.conditions.exists(c, c.type == 'Ready' && c.status == 'True' && " +
		"c.observedGeneration == metadata.generation)"
	ownFailed = "status.conditions.exists(c, c.type == 'Stalled' && c.status == 'True')"
)

// dataField matches a use of the data of a Secret in an expression.
var dataField = regexp.MustCompile(`\b(data|stringData)\b`)

// targetOf returns the object that entry n of spec.dependsOn of an object in a namespace names by its kind.
func targetOf(n int, on meta.DependencyReference, namespace string) (health.Target, error) {
	target, err := health.Resolve(on.APIVersion, on.Kind, cmp.Or(on.Namespace, namespace), on.Name)
	switch {
	case on.Kind == "":
		return target, fault.New(meta.InvalidSpecReason, "spec.dependsOn[%d] has an apiVersion, but no kind", n).
			WithHint("Set kind, or remove apiVersion").Final()
	case err != nil:
		return target, fault.New(meta.InvalidSpecReason, "the apiVersion of spec.dependsOn[%d] is missing or invalid",
			n).WithHint("Use group/version, such as apps/v1").Final()
	}
	return target, nil
}

// needsReady reports whether a dependency with a kind must be ready, and not only exist.
func needsReady(on meta.DependencyReference) bool { return on.Ready || on.ReadyExpr != "" }

// parseDependency returns entry n of spec.dependsOn of an object in a namespace, which has a kind.
func parseDependency(n int, on meta.DependencyReference, namespace string) (*dependency, error) {
	target, err := targetOf(n, on, namespace)
	if err != nil {
		return nil, err
	}
	if on.Kind == "Secret" && target.Group == "" && target.Namespace != namespace &&
		dataField.MatchString(on.ReadyExpr) {
		return nil, fault.New(meta.AccessDeniedReason, "dependency '%s' is in another namespace: its readyExpr "+
			"cannot use the data of the Secret", target).
			WithHint("Use another object, or conditions without data").Final()
	}
	d := &dependency{target: target, waits: needsReady(on)}
	ready, failed := on.ReadyExpr, ""
	if ready == "" && target.Group == controlplanev1.GroupVersion.Group {
		ready, failed = ownReady, ownFailed
	}
	if ready == "" {
		return d, nil
	}
	version := schema.GroupVersion{Group: target.Group, Version: target.Version}.String()
	if d.check, err = health.NewCheck(version, on.Kind, ready, "", failed); err != nil {
		return nil, fault.New(meta.InvalidCELExpressionReason, "spec.dependsOn[%d].readyExpr is invalid", n).
			Because(err).WithHint("Correct it. It can use the fields of the object by name, such as status").Final()
	}
	return d, nil
}

// unmet returns the outcome of an owner with a dependency that is not ready; nil if it is. Account is the
// ServiceAccount that the owner deploys with; empty for the controllers.
func (w *DependencyWatch) unmet(ctx context.Context, owner reconcile.Ref, account string, n int,
	d *dependency) *reconcile.Outcome {
	known, err := w.authorize(ctx, owner, account, d)
	if err != nil {
		return ptr.To(reconcile.Failed(err))
	}
	r, observed := w.result(ctx, dependencyKey(owner, n), d)
	if !known { // the kind may be newer than the discovery
		if known, err = w.authorize(ctx, owner, account, d); err != nil {
			return ptr.To(reconcile.Failed(err))
		}
	}
	waiting := func(why string, args ...any) *reconcile.Outcome {
		return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "dependency '%s' %s", d.target,
			fmt.Sprintf(why, args...)))
	}
	switch {
	case !observed || !known && r.Status != health.NotFound:
		return waiting("is not known yet")
	case r.Status == health.NotFound:
		return waiting("not found. Create it, or remove it from spec.dependsOn")
	case r.Status == health.Unknown || d.waits && r.Status != health.Current:
		return waiting("is not ready: %s", cmp.Or(r.Message, r.Status))
	}
	return nil
}

// definitions are public to all users of a cluster, by its discovery.
var definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// authorize checks that the account of an owner may get a dependency outside of the owner's namespace, so that tenants
// learn nothing about the objects of others. It sets the scope of the dependency. Known is false if the cluster does
// not serve the kind.
func (w *DependencyWatch) authorize(ctx context.Context, owner reconcile.Ref, account string,
	d *dependency) (known bool, err error) {
	gk := schema.GroupKind{Group: d.target.Group, Kind: d.target.Kind}
	mapping, err := w.cluster.Mapper().RESTMapping(gk, d.target.Version)
	if err != nil {
		return false, nil //nolint:nilerr // the watch finds out when the kind is served, and reports it
	}
	if mapping.Scope.Name() != apimeta.RESTScopeNameNamespace {
		d.target.Namespace = ""
	}
	switch {
	case d.target.Namespace == owner.Namespace || gk == definitions:
		return true, nil
	case account == "":
		return true, nil
	}
	allowed, err := w.reviewer.Allowed(ctx, userInfo(owner.Namespace, account), &authorizationv1.ResourceAttributes{
		Verb: "get", Group: gk.Group, Version: d.target.Version, Resource: mapping.Resource.Resource,
		Namespace: d.target.Namespace, Name: d.target.Name})
	if err == nil && !allowed {
		return true, fault.New(meta.AccessDeniedReason, "ServiceAccount '%s' may not get dependency '%s'", account,
			d.target).WithHint("Allow the ServiceAccount to get %s, or remove the entry of spec.dependsOn",
			mapping.Resource.Resource)
	}
	return true, err
}

// userInfo returns a service account as the API server authenticates it.
func userInfo(namespace, account string) *authenticationv1.UserInfo {
	const all = "system:serviceaccounts"
	return &authenticationv1.UserInfo{Username: UserName(types.NamespacedName{Namespace: namespace, Name: account}),
		Groups: []string{all, all + ":" + namespace, "system:authenticated"}}
}
