// Package discover creates ImageRepositories and ImagePolicies for the workloads of namespaces with the
// discovery label. It does not modify objects that users created.
package discover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=get;list
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=watch;create
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=update;patch;delete

// Label and annotation of namespaces.
const (
	// Label enables discovery for a namespace if its value is Enabled.
	Label   = "image.toolkit.fluxcd.io/discovery"
	Enabled = "enabled"
	// Interval is the annotation that sets the scan interval of created ImageRepositories.
	Interval = "image.toolkit.fluxcd.io/scan-interval"
)

const (
	defaultInterval = 5 * time.Minute
	minInterval     = 10 * time.Second
	maxProblems     = 5   // per event
	maxNote         = 900 // bytes of an event message
)

// Discovery reconciles the image objects of namespaces. It implements [ctrl.Reconciler]; requests name a namespace.
type Discovery struct {
	Client       client.Client // the cache has ImageRepositories and ImagePolicies
	Namespaces   client.Reader // reads the metadata of namespaces
	PollInterval time.Duration // of namespaces that are not watched; zero: they are watched
	Workloads    client.Reader // the API server, as the cache has no pod templates
	Recorder     events.EventRecorder
	Replica      Replica
	// Watch starts to watch a kind of workload. It is called once per kind, when the first namespace enables discovery.
	Watch func(kind schema.GroupVersionKind) error

	watchedMu sync.Mutex
	watched   map[schema.GroupVersionKind]bool

	reportedMu sync.Mutex
	reported   map[string]string // problems that were reported, by namespace
}

// Reconcile implements [ctrl.Reconciler]: it creates, updates and deletes the image objects of a namespace.
func (d *Discovery) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !d.Replica.discovers() {
		return ctrl.Result{RequeueAfter: d.PollInterval}, nil
	}
	namespace := metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := d.Namespaces.Get(ctx, req.NamespacedName, namespace)
	if apierrors.IsNotFound(err) || err == nil && !namespace.DeletionTimestamp.IsZero() {
		d.report(namespace, "")
		return ctrl.Result{}, nil // its objects are deleted with it
	}
	if apierrors.IsForbidden(err) {
		// without the right to read the namespace, discovery is not enabled
		return ctrl.Result{RequeueAfter: d.PollInterval}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted := plan.Plan{}
	existing, err := d.objects(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if namespace.Labels[Label] == Enabled {
		if err := d.watch(); err != nil {
			return ctrl.Result{}, err
		}
		workloads, err := d.workloads(ctx, req.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		interval, problem := intervalOf(namespace)
		wanted = plan.New(req.Name, interval, existing.ofUsers(), workloads)
		if problem != "" {
			wanted.Problems = append(wanted.Problems, plan.Problem{Workload: "Namespace/" + req.Name, Message: problem})
		}
	}
	d.report(namespace, problems(wanted.Problems))
	return ctrl.Result{RequeueAfter: d.PollInterval}, d.apply(ctx, existing, wanted)
}

// watch starts to watch workloads, unless they are watched. Clusters that do not use discovery do not pay for
// these watches.
func (d *Discovery) watch() error {
	d.watchedMu.Lock()
	defer d.watchedMu.Unlock()
	if d.watched == nil {
		d.watched = map[schema.GroupVersionKind]bool{}
	}
	for kind := range kinds {
		if d.watched[kind] {
			continue
		}
		if err := d.Watch(kind); err != nil {
			return err
		}
		d.watched[kind] = true
	}
	return nil
}

func intervalOf(namespace *metav1.PartialObjectMetadata) (interval time.Duration, problem string) {
	text, ok := namespace.Annotations[Interval]
	if !ok {
		return defaultInterval, ""
	}
	interval, err := time.ParseDuration(text)
	if err != nil || interval < minInterval {
		return defaultInterval, fmt.Sprintf("annotation %s: set it to a duration of at least %s, such as 10m", Interval,
			minInterval)
	}
	return interval, ""
}

// imageObjects is the image objects of a namespace, by name.
type imageObjects struct {
	repositories map[string]*imagev1.ImageRepository
	policies     map[string]*imagev1.ImagePolicy
}

func (d *Discovery) objects(ctx context.Context, namespace string) (imageObjects, error) {
	found := imageObjects{repositories: map[string]*imagev1.ImageRepository{},
		policies: map[string]*imagev1.ImagePolicy{}}
	var repositories imagev1.ImageRepositoryList
	var policies imagev1.ImagePolicyList
	if err := errors.Join(d.Client.List(ctx, &repositories, client.InNamespace(namespace)),
		d.Client.List(ctx, &policies, client.InNamespace(namespace))); err != nil {
		return found, err
	}
	for i := range repositories.Items {
		found.repositories[repositories.Items[i].Name] = &repositories.Items[i]
	}
	for i := range policies.Items {
		found.policies[policies.Items[i].Name] = &policies.Items[i]
	}
	return found, nil
}

// ofUsers returns the names of repositories that users created, by image. If there are several, it returns
// the first by name.
func (o imageObjects) ofUsers() map[string]string {
	images := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.repositories)) {
		if r := o.repositories[name]; !isDiscovered(r) && images[r.Spec.Image] == "" {
			images[r.Spec.Image] = name
		}
	}
	return images
}

func isDiscovered(o client.Object) bool { return o.GetLabels()[plan.Discovered] == "true" }

// apply writes the differences. Repositories are written before the policies that refer to them, and deleted
// after them. An error does not stop the other writes.
func (d *Discovery) apply(ctx context.Context, existing imageObjects, wanted plan.Plan) error {
	var errs []error
	write := func(err error) { errs = append(errs, err) }
	for _, name := range slices.Sorted(maps.Keys(wanted.Repositories)) {
		w, current := wanted.Repositories[name], existing.repositories[name]
		if current == nil {
			write(d.Client.Create(ctx, w))
		} else if isDiscovered(current) && !reflect.DeepEqual(current.Spec, w.Spec) {
			current.Spec = w.Spec
			write(d.Client.Update(ctx, current))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted.Policies)) {
		w, current := wanted.Policies[name], existing.policies[name]
		if current == nil {
			write(d.Client.Create(ctx, w))
		} else if isDiscovered(current) && (!reflect.DeepEqual(current.Spec, w.Spec) ||
			current.Labels[plan.Automated] != w.Labels[plan.Automated] ||
			!reflect.DeepEqual(current.OwnerReferences, w.OwnerReferences)) {
			current.Spec, current.OwnerReferences = w.Spec, w.OwnerReferences
			delete(current.Labels, plan.Automated)
			maps.Copy(current.Labels, w.Labels)
			write(d.Client.Update(ctx, current))
		}
	}
	for name, current := range existing.policies {
		if isDiscovered(current) && wanted.Policies[name] == nil {
			write(d.Client.Delete(ctx, current))
		}
	}
	for name, current := range existing.repositories {
		if isDiscovered(current) && wanted.Repositories[name] == nil {
			write(d.Client.Delete(ctx, current))
		}
	}
	return errors.Join(slices.DeleteFunc(errs, isTransient)...)
}

// isTransient reports whether an error is nil, or means that the cache is stale. The update of the cache
// enqueues the namespace.
func isTransient(err error) bool {
	return err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// problems returns the problems in one line.
func problems(all []plan.Problem) string {
	var texts []string
	for i, p := range all {
		if i == maxProblems {
			texts = append(texts, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		texts = append(texts, p.Workload+": "+p.Message)
	}
	return excerpt.Bytes(strings.Join(texts, "; "), maxNote)
}

// report records the problems of a namespace as an event, unless they were reported before. An empty text
// means no problems.
func (d *Discovery) report(namespace *metav1.PartialObjectMetadata, text string) {
	d.reportedMu.Lock()
	defer d.reportedMu.Unlock()
	if d.reported == nil {
		d.reported = map[string]string{}
	}
	if text == "" {
		delete(d.reported, namespace.Name)
		return
	}
	if d.reported[namespace.Name] == text {
		return
	}
	d.reported[namespace.Name] = text
	d.Recorder.Eventf(namespace, nil, corev1.EventTypeWarning, imagev1.InvalidPolicyReason, "Discover", "%s", text)
}
