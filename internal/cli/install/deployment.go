package install

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// criticalPriority is a class whose pods tenants cannot preempt.
const criticalPriority = "system-cluster-critical"

// ports maps the ports of the container to the components that listen on them. All listen on the others.
var ports = map[string]string{
	"artifacts": options.SourceController, "images": options.ImageReflectorController,
	"webhooks": options.NotificationController, "events": options.NotificationController,
}

// Deployments returns the names of the Deployments: one for all components, or one for each.
func (o Options) Deployments() []string {
	if o.Split {
		return o.Components
	}
	return []string{ownName}
}

// configure returns the objects with the options applied to the Deployment and to what belongs to it.
func (o Options) configure(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var configured []*unstructured.Unstructured
	for _, u := range objects {
		own := u.GetName() == ownName
		switch kind := u.GetKind(); {
		case kind == deploymentKind && isHub(u):
			d, err := o.hubDeployment(u)
			if err != nil {
				return nil, err
			}
			configured = append(configured, d)
		case isHub(u):
			configured = append(configured, u)
		case kind == deploymentKind:
			for _, name := range o.Deployments() {
				d, err := o.deployment(u, name)
				if err != nil {
					return nil, err
				}
				configured = append(configured, d)
				if o.MaxReplicas > 0 {
					a, err := o.autoscaler(name, d.GetLabels())
					if err != nil {
						return nil, err
					}
					configured = append(configured, a)
				}
			}
		case kind == "PodDisruptionBudget", kind == "ServiceAccount" && own:
			configured = append(configured, o.perDeployment(u)...)
		case kind == "Service" && u.GetName() == uiName:
			set(u, o.uiDeployment(), "spec", "selector", appLabel)
			configured = append(configured, u)
		case kind == "Service" && o.Split:
			set(u, services[u.GetName()], "spec", "selector", appLabel)
			configured = append(configured, u)
		case strings.HasSuffix(kind, "RoleBinding"):
			o.bind(u)
			configured = append(configured, u)
		default:
			configured = append(configured, u)
		}
	}
	return distinct(configured), nil
}

// distinct returns the first object of each kind and name.
func distinct(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	seen := map[string]bool{}
	return slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
		key := u.GetKind() + "/" + u.GetName()
		defer func() { seen[key] = true }()
		return seen[key]
	})
}

// perDeployment returns a copy of an object for each Deployment.
func (o Options) perDeployment(u *unstructured.Unstructured) []*unstructured.Unstructured {
	var copies []*unstructured.Unstructured
	for _, name := range o.Deployments() {
		one := u.DeepCopy()
		one.SetName(name)
		if one.GetKind() == "PodDisruptionBudget" {
			set(one, name, "spec", "selector", "matchLabels", appLabel)
		}
		copies = append(copies, one)
	}
	return copies
}

// bind sets the subjects of a binding. Of several Deployments, only those that apply what others declare are
// administrators of the cluster.
func (o Options) bind(u *unstructured.Unstructured) {
	accounts := slices.Clone(o.Deployments())
	if u.GetName() == uiName {
		accounts = []string{o.uiDeployment()}
	}
	if u.GetName() == "sluice-reconciler" {
		accounts = slices.DeleteFunc(accounts, func(name string) bool {
			return name != ownName && !slices.Contains(reconcilers, name)
		})
		if o.Profile == ProfileMultiTenant || o.FluxCompatible {
			accounts = append(accounts, reconcilers...)
		}
	}
	slices.Sort(accounts)
	var subjects []any
	for _, name := range slices.Compact(accounts) {
		subjects = append(subjects, map[string]any{"kind": "ServiceAccount", "name": name, "namespace": o.Namespace})
	}
	u.Object["subjects"] = subjects
}

// reconcilers are the components that apply what others declare. The platform's own Kustomizations and HelmReleases
// may be applied as accounts of these names.
var reconcilers = []string{options.HelmController, options.KustomizeController}

// deployment returns the Deployment of a name, made from the one that runs all components.
func (o Options) deployment(u *unstructured.Unstructured, name string) (*unstructured.Unstructured, error) {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return nil, err
	}
	d.Name, d.Labels[appLabel], d.Spec.Selector.MatchLabels[appLabel] = name, name, name
	d.Spec.Template.Labels[appLabel] = name
	pod := &d.Spec.Template.Spec
	pod.ServiceAccountName = name
	c := &pod.Containers[0]
	c.Image = o.ImageReference()
	components := o.Components
	if o.Split {
		components, c.Name = []string{name}, "manager"
	}
	c.Args = slices.Concat(o.storageArgs(c.Args, components), o.replicaArgs(components), o.args(components), o.Args)
	c.Ports = slices.DeleteFunc(c.Ports, func(p corev1.ContainerPort) bool {
		component := ports[p.Name]
		return component != "" && !slices.Contains(components, component)
	})
	o.addReplicas(d, components)
	if o.runsUI(components) {
		o.addUI(pod)
	}
	o.place(pod)
	configured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	delete(configured, "status")
	return &unstructured.Unstructured{Object: configured}, err
}

// place sets where a Pod runs, and how its images are pulled.
func (o Options) place(pod *corev1.PodSpec) {
	if o.PullSecret != "" {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.PullSecret}}
	}
	for _, key := range o.TolerationKeys {
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	if o.Profile == ProfileMultiTenant {
		pod.PriorityClassName = criticalPriority
	}
}

// storageArgs returns the arguments without those that only source-controller has.
func (o Options) storageArgs(args, components []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return strings.HasPrefix(arg, "--storage-adv-addr=") && !slices.Contains(components, options.SourceController)
	})
}

// args returns the arguments of a process that runs the components.
func (o Options) args(components []string) []string {
	var args []string
	if !slices.Equal(components, options.AllControllers) {
		args = append(args, "--controllers="+strings.Join(components, ","))
	}
	if o.Split && o.Runs(options.NotificationController) &&
		!slices.Contains(components, options.NotificationController) {
		args = append(args, "--events-addr=http://notification-controller."+o.Namespace+".svc."+o.ClusterDomain+"./")
	}
	if o.LogLevel != defaultLogLevel {
		args = append(args, "--log-level="+o.LogLevel)
	}
	if !o.WatchAll {
		args = append(args, "--watch-all-namespaces=false")
	}
	if o.Profile == ProfileMultiTenant {
		args = append(args, "--no-cross-namespace-refs", "--no-remote-bases", "--default-service-account=default",
			"--default-identity-service-account=default", "--default-decryption-service-account=default",
			"--default-kubeconfig-service-account=default")
	}
	return args
}

// set sets a field, whose parents exist in the manifests of config.
func set(u *unstructured.Unstructured, value any, path ...string) {
	_ = unstructured.SetNestedField(u.Object, value, path...)
}
