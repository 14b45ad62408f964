// Package discover keeps the repositories and policies of images that the workloads of a namespace call for:
// those of namespaces that ask for it by a label. What people made is left as it is.
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
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=get;list
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=watch;create
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=update;patch;delete

// How a namespace asks.
const (
	Label   = "image.toolkit.fluxcd.io/discovery" // label of a namespace; the value "enabled" asks for it
	Enabled = "enabled"                           //
	// annotation of a namespace: how often its repositories are scanned
	Interval = "image.toolkit.fluxcd.io/scan-interval"
)

const (
	defaultInterval = 5 * time.Minute
	leastInterval   = 10 * time.Second
	maxProblems     = 5   // that one event tells
	maxNote         = 900 // bytes of one
)

// Discovery keeps what namespaces call for. It implements [ctrl.Reconciler] by the name of a namespace.
type Discovery struct {
	Client    client.Client // whose cache has the repositories and policies
	Asking    client.Reader // has the namespaces' metadata
	Again     time.Duration // after which a namespace that is not watched is read again; zero if it is
	Workloads client.Reader // past the cache, which has no pod templates
	Recorder  events.EventRecorder
	// begins to watch workloads; called once a kind, when a namespace asks
	Watch func(kind schema.GroupVersionKind) error

	watching sync.Mutex
	watched  map[schema.GroupVersionKind]bool

	telling sync.Mutex
	told    map[string]string // by namespace: problems are told once
}

// Reconcile makes the objects of a namespace those that its workloads call for.
func (d *Discovery) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	namespace := metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := d.Asking.Get(ctx, req.NamespacedName, namespace)
	if apierrors.IsNotFound(err) || err == nil && !namespace.DeletionTimestamp.IsZero() {
		d.tell(namespace, "")
		return ctrl.Result{}, nil // its objects go with it
	}
	if apierrors.IsForbidden(err) {
		// who may not read its namespace was not meant to act on its label
		return ctrl.Result{RequeueAfter: d.Again}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted := plan.Plan{}
	had, err := d.objects(ctx, req.Name)
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
		wanted = plan.New(req.Name, interval, had.ofPeople(), workloads)
		if problem != "" {
			wanted.Problems = append(wanted.Problems, plan.Problem{Workload: "Namespace/" + req.Name, Message: problem})
		}
	}
	d.tell(namespace, problems(wanted.Problems))
	return ctrl.Result{RequeueAfter: d.Again}, d.apply(ctx, had, wanted)
}

// watch begins to watch workloads once somebody asks: no cluster pays for what it does not use.
func (d *Discovery) watch() error {
	d.watching.Lock()
	defer d.watching.Unlock()
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
	said, ok := namespace.Annotations[Interval]
	if !ok {
		return defaultInterval, ""
	}
	interval, err := time.ParseDuration(said)
	if err != nil || interval < leastInterval {
		return defaultInterval, fmt.Sprintf("annotation %s: write a time of %s or more, such as 10m", Interval,
			leastInterval)
	}
	return interval, ""
}

// existing are the image objects of a namespace, by name.
type existing struct {
	repositories map[string]*imagev1.ImageRepository
	policies     map[string]*imagev1.ImagePolicy
}

func (d *Discovery) objects(ctx context.Context, namespace string) (existing, error) {
	had := existing{map[string]*imagev1.ImageRepository{}, map[string]*imagev1.ImagePolicy{}}
	var repositories imagev1.ImageRepositoryList
	var policies imagev1.ImagePolicyList
	if err := errors.Join(d.Client.List(ctx, &repositories, client.InNamespace(namespace)),
		d.Client.List(ctx, &policies, client.InNamespace(namespace))); err != nil {
		return had, err
	}
	for i := range repositories.Items {
		had.repositories[repositories.Items[i].Name] = &repositories.Items[i]
	}
	for i := range policies.Items {
		had.policies[policies.Items[i].Name] = &policies.Items[i]
	}
	return had, nil
}

// ofPeople names, by image, the repositories that are not discovery's; of two, the first by name.
func (e existing) ofPeople() map[string]string {
	images := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(e.repositories)) {
		if r := e.repositories[name]; !ours(r) && images[r.Spec.Image] == "" {
			images[r.Spec.Image] = name
		}
	}
	return images
}

func ours(o client.Object) bool { return o.GetLabels()[plan.Discovered] == "true" }

// apply writes what differs: repositories before the policies that refer to them, and away in the other
// order. One object that is refused keeps no other from being written.
func (d *Discovery) apply(ctx context.Context, had existing, wanted plan.Plan) error {
	var errs []error
	write := func(err error) { errs = append(errs, err) }
	for _, name := range slices.Sorted(maps.Keys(wanted.Repositories)) {
		w, is := wanted.Repositories[name], had.repositories[name]
		if is == nil {
			write(d.Client.Create(ctx, w))
		} else if ours(is) && !reflect.DeepEqual(is.Spec, w.Spec) {
			is.Spec = w.Spec
			write(d.Client.Update(ctx, is))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted.Policies)) {
		w, is := wanted.Policies[name], had.policies[name]
		if is == nil {
			write(d.Client.Create(ctx, w))
		} else if ours(is) && (!reflect.DeepEqual(is.Spec, w.Spec) ||
			is.Labels[plan.Automated] != w.Labels[plan.Automated] ||
			!reflect.DeepEqual(is.OwnerReferences, w.OwnerReferences)) {
			is.Spec, is.OwnerReferences = w.Spec, w.OwnerReferences
			delete(is.Labels, plan.Automated)
			maps.Copy(is.Labels, w.Labels)
			write(d.Client.Update(ctx, is))
		}
	}
	for name, is := range had.policies {
		if ours(is) && wanted.Policies[name] == nil {
			write(d.Client.Delete(ctx, is))
		}
	}
	for name, is := range had.repositories {
		if ours(is) && wanted.Repositories[name] == nil {
			write(d.Client.Delete(ctx, is))
		}
	}
	return errors.Join(slices.DeleteFunc(errs, expected)...)
}

// expected is an error after which the cache has news that wake the namespace anyway.
func expected(err error) bool {
	return err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// problems tells in one line what is wrong.
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

// tell says what is wrong in a namespace as an event of it, once.
func (d *Discovery) tell(namespace *metav1.PartialObjectMetadata, text string) {
	d.telling.Lock()
	defer d.telling.Unlock()
	if d.told == nil {
		d.told = map[string]string{}
	}
	if text == "" {
		delete(d.told, namespace.Name)
		return
	}
	if d.told[namespace.Name] == text {
		return
	}
	d.told[namespace.Name] = text
	d.Recorder.Eventf(namespace, nil, corev1.EventTypeWarning, imagev1.InvalidPolicyReason, "Discover", "%s", text)
}
