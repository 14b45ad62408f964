package install

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// Backend is the bucket in which all replicas store artifacts. Without an endpoint there is none.
type Backend struct {
	Endpoint string `json:"endpoint,omitempty"`
	Bucket   string `json:"bucket,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Region   string `json:"region,omitempty"`
	Secret   string `json:"secret,omitempty"` // whose keys become environment variables, such as AWS_ACCESS_KEY_ID
}

const (
	// sharedReplicas is how many replicas run with a storage backend, unless options say otherwise: one can fail while
	// another one is replaced.
	sharedReplicas = 3
	maxReplicas    = 20
)

// validateReplicas reports the flag that is wrong.
func (o Options) validateReplicas() error {
	b := o.Backend
	if o.Replicas < 0 || o.Replicas > maxReplicas {
		return fmt.Errorf("invalid --replicas %d: choose 1 to %d", o.Replicas, maxReplicas)
	}
	if b == (Backend{}) && o.Replicas > 1 {
		return fmt.Errorf("--replicas %d needs --storage-backend-s3-endpoint and --storage-backend-s3-bucket: "+
			"replicas serve the same artifacts from a bucket", o.Replicas)
	}
	if b != (Backend{}) && (b.Endpoint == "" || b.Bucket == "") {
		return errors.New("a storage backend needs --storage-backend-s3-endpoint and --storage-backend-s3-bucket: " +
			"set both")
	}
	if o.AutoShards && b == (Backend{}) {
		return errors.New("--auto-shards needs --storage-backend-s3-endpoint and --storage-backend-s3-bucket: " +
			"replicas get the artifacts of each other from a bucket")
	}
	if o.MaxReplicas != 0 && !o.AutoShards {
		return errors.New("--max-replicas needs --auto-shards: more standbys do no more work")
	}
	if o.MaxReplicas != 0 && (o.MaxReplicas <= o.replicas() || o.MaxReplicas > maxReplicas) {
		return fmt.Errorf("invalid --max-replicas %d: choose %d to %d", o.MaxReplicas, o.replicas()+1, maxReplicas)
	}
	if problems := validation.IsDNS1123Subdomain(b.Secret); b.Secret != "" && len(problems) > 0 {
		return fmt.Errorf("invalid --storage-backend-secret %q: %s", b.Secret, problems[0])
	}
	return nil
}

// replicas returns the number of replicas of a Deployment.
func (o Options) replicas() int {
	switch {
	case o.Replicas > 0:
		return o.Replicas
	case o.Backend == (Backend{}):
		return 1
	}
	return sharedReplicas
}

// replicaArgs returns the arguments of a process that shares its work, or its artifacts, with other replicas.
func (o Options) replicaArgs(components []string) []string {
	args := o.backendArgs(components)
	if o.AutoShards {
		args = append(args, "--auto-shards")
	}
	return args
}

// backendArgs returns the arguments of a process that stores artifacts in a bucket.
func (o Options) backendArgs(components []string) []string {
	if o.Backend == (Backend{}) || !slices.Contains(components, options.SourceController) {
		return nil
	}
	var args []string
	for _, f := range []struct{ flag, value string }{
		{flag: "endpoint", value: o.Backend.Endpoint}, {flag: "bucket", value: o.Backend.Bucket},
		{flag: "prefix", value: o.Backend.Prefix}, {flag: "region", value: o.Backend.Region},
	} {
		if f.value != "" {
			args = append(args, "--storage-backend-s3-"+f.flag+"="+f.value)
		}
	}
	return args
}

// addReplicas lets several replicas of a Deployment run, on different nodes, and replaces one after another. Without a
// storage backend, a new replica starts when the old one has ended.
func (o Options) addReplicas(d *appsv1.Deployment, components []string) {
	if d.Spec.Replicas = ptr.To(int32(o.replicas())); o.MaxReplicas > 0 {
		d.Spec.Replicas = nil // the autoscaler's
	}
	if o.Backend == (Backend{}) {
		return
	}
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)),
			MaxUnavailable: ptr.To(intstr.FromInt32(0))}}
	pod := &d.Spec.Template.Spec
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: d.Name}},
			MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey}})
	}
	if o.Backend.Secret != "" && slices.Contains(components, options.SourceController) {
		c := &pod.Containers[0]
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: o.Backend.Secret}}})
	}
}

// cpuTarget is the use of CPU at which the autoscaler adds replicas, as a percentage of what a pod requests. An idle
// replica uses next to nothing.
const cpuTarget = 400

// autoscaler returns the autoscaler of a Deployment. A replica that joins or leaves moves objects, so it removes
// replicas slowly.
func (o Options) autoscaler(name string, labels map[string]string) (*unstructured.Unstructured, error) {
	a := &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv2.SchemeGroupVersion.String(),
			Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: name, Labels: labels},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: appsv1.SchemeGroupVersion.String(),
				Kind: deploymentKind, Name: name},
			MinReplicas: ptr.To(int32(o.replicas())), MaxReplicas: int32(o.MaxReplicas),
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType,
						AverageUtilization: ptr.To(int32(cpuTarget))}}}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: ptr.To(int32(600)),
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 1,
					PeriodSeconds: 300}}}},
		},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	delete(object, "status")
	return &unstructured.Unstructured{Object: object}, err
}
