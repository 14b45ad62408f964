package resourceset

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// Dependencies watches the objects of any kind that ResourceSets depend on, with the rights of the controllers.
type Dependencies struct {
	cluster *apply.Cluster
	watcher *health.Watcher
}

// NewDependencies returns the dependencies of ResourceSets, which are enqueued when one of them becomes ready.
func NewDependencies(cfg *rest.Config, edges *reconcile.Edges) (*Dependencies, error) {
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		return nil, err
	}
	return &Dependencies{cluster: cluster, watcher: health.NewWatcher(cluster.Dynamic(), cluster.Mapper(),
		func(key string) {
			name, _, _ := strings.Cut(key, "#")
			namespace, name, _ := strings.Cut(name, "/")
			edges.Enqueue(reconcile.RefTo(GroupKind, namespace, name))
		})}, nil
}

// Close stops all watches.
func (d *Dependencies) Close() {
	d.watcher.Close()
	d.cluster.Close()
}

// keyOf identifies a dependency of a ResourceSet to the watcher. Each has its own key, as the readyExpr of one does not
// apply to the others.
func keyOf(owner reconcile.Ref, n int) string {
	return owner.NamespacedName.String() + "#" + strconv.Itoa(n)
}

// forget ends the watches of the dependencies of an owner from number on.
func (d *Dependencies) forget(owner reconcile.Ref, from, count int) {
	for n := from; n < count; n++ {
		d.watcher.Forget(keyOf(owner, n))
	}
}

// Bounds of the wait for the first result of a new watch.
const (
	syncTimeout = 5 * time.Second
	syncPause   = 20 * time.Millisecond
)

// result returns the health of a dependency. It is false if it could not be observed in time.
func (d *Dependencies) result(ctx context.Context, key string, target health.Target,
	checks ...*health.Check) (health.Result, bool) {
	d.watcher.SetTargets(key, []health.Target{target}, checks...)
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		results, synced := d.watcher.Results(key)
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

// ownReady is when objects of this group are ready. They count as ready without a status otherwise.
const ownReady = "status.conditions.exists(c, c.type == 'Ready' && c.status == 'True' && " +
	"c.observedGeneration == metadata.generation)"

// validateSpec checks the parts of the spec that only later steps use: the expressions of dependencies.
func (c *Controller) validateSpec(obj *controlplanev1.ResourceSet) error {
	policy := rollout.ReferencePolicy{NoCrossNamespace: c.Options.NoCrossNamespaceRefs}
	for i, on := range obj.Spec.DependsOn {
		if _, err := checkOf(on); err != nil {
			return fault.New(meta.InvalidCELExpressionReason, "spec.dependsOn[%d].readyExpr is invalid", i).
				Because(err).WithHint("Correct it. It can use the fields of the object by name, such as status").Final()
		}
		if on.Namespace == "" {
			continue
		}
		if err := policy.Check(fmt.Sprintf("spec.dependsOn[%d]", i), obj.Namespace, on.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// checkOf returns the check that a dependency is ready by; nil for the default.
func checkOf(on controlplanev1.Dependency) (*health.Check, error) {
	expression := on.ReadyExpr
	if gv, err := schema.ParseGroupVersion(on.APIVersion); expression == "" && err == nil &&
		gv.Group == GroupKind.Group {
		expression = ownReady
	}
	if expression == "" {
		return nil, nil
	}
	return health.NewCheck(on.APIVersion, on.Kind, expression, "", "")
}

// checkDependencies returns the outcome of a ResourceSet with a dependency that is not ready; nil if all are.
func (c *Controller) checkDependencies(ctx context.Context, obj *controlplanev1.ResourceSet,
	s *state) *reconcile.Outcome {
	owner := refOf(obj)
	c.Dependencies.forget(owner, len(obj.Spec.DependsOn), s.dependencies)
	s.dependencies = len(obj.Spec.DependsOn)
	for i, on := range obj.Spec.DependsOn {
		target, err := health.Resolve(on.APIVersion, on.Kind, cmp.Or(on.Namespace, obj.Namespace), on.Name)
		if err != nil {
			return ptr.To(reconcile.Failed(err))
		}
		check, err := checkOf(on)
		if err != nil {
			return ptr.To(reconcile.Failed(err))
		}
		if why := c.notReady(ctx, keyOf(owner, i), target, on, check, obj); why != "" {
			return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "%s", why))
		}
	}
	return nil
}

// dataField matches a use of the data of a Secret in an expression.
var dataField = regexp.MustCompile(`\b(data|stringData)\b`)

// notReady returns why a dependency is not ready; empty if it is.
func (c *Controller) notReady(ctx context.Context, key string, target health.Target, on controlplanev1.Dependency,
	check *health.Check, obj *controlplanev1.ResourceSet) string {
	name := fmt.Sprintf("dependency '%s'", target)
	if on.Kind == "Secret" && on.APIVersion == "v1" && target.Namespace != obj.Namespace &&
		dataField.MatchString(on.ReadyExpr) {
		return name + " is in another namespace: its readyExpr cannot use the data of the Secret"
	}
	var checks []*health.Check
	if check != nil {
		checks = append(checks, check)
	}
	r, ok := c.Dependencies.result(ctx, key, target, checks...)
	switch {
	case !ok:
		return name + " is not known yet"
	case r.Status == health.NotFound:
		return name + " not found. Create it, or remove it from spec.dependsOn"
	case (on.Ready || on.ReadyExpr != "") && r.Status != health.Current:
		return fmt.Sprintf("%s is not ready: %s", name, cmp.Or(r.Message, r.Status))
	}
	return ""
}
