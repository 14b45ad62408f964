package install

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

func deploymentOf(t *testing.T, u *unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReplicasFollowTheStorageBackend(t *testing.T) {
	o := Default("v1")
	d := deploymentOf(t, manifests(t, o)["Deployment/sluice"])
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType ||
		len(d.Spec.Template.Spec.TopologySpreadConstraints) > 0 {
		t.Errorf("without a backend: %+v", d.Spec)
	}
	o.Backend = Backend{Endpoint: "https://s3.example", Bucket: "b", Region: "r", Secret: "login"}
	got := manifests(t, o)
	d = deploymentOf(t, got["Deployment/sluice"])
	if *d.Spec.Replicas != 3 || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 ||
		len(d.Spec.Template.Spec.TopologySpreadConstraints) != 2 || got["PodDisruptionBudget/sluice"] == nil {
		t.Errorf("with a backend: %+v", d.Spec)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef.Name != "login" || !slices.Contains(c.Args,
		"--storage-backend-s3-region=r") {
		t.Errorf("the container has %v and %q", c.EnvFrom, c.Args)
	}
	o.Replicas = 5
	if d = deploymentOf(t, manifests(t, o)["Deployment/sluice"]); *d.Spec.Replicas != 5 {
		t.Errorf("--replicas 5: %d", *d.Spec.Replicas)
	}
}

// TestAutoscalerOfShards checks that an autoscaler, and not the Deployment, has the number of replicas.
func TestAutoscalerOfShards(t *testing.T) {
	o := Default("v1")
	o.AutoShards, o.MaxReplicas, o.Backend = true, 6, Backend{Endpoint: "https://s3.example", Bucket: "b"}
	got := manifests(t, o)
	d := deploymentOf(t, got["Deployment/sluice"])
	if d.Spec.Replicas != nil || !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--auto-shards") {
		t.Errorf("%v replicas; %q", d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Args)
	}
	a := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(
		got["HorizontalPodAutoscaler/sluice"].Object, a); err != nil {
		t.Fatal(err)
	}
	if *a.Spec.MinReplicas != 3 || a.Spec.MaxReplicas != 6 || a.Spec.ScaleTargetRef.Name != "sluice" {
		t.Errorf("autoscaler: %+v", a.Spec)
	}
	for name, change := range map[string]func(*Options){
		"--auto-shards needs --storage-backend-s3-endpoint and --storage-backend-s3-bucket: replicas get the " +
			"artifacts of each other from a bucket": func(o *Options) { o.Backend = Backend{} },
		"--max-replicas needs --auto-shards: more standbys do no more work": func(o *Options) { o.AutoShards = false },
		"invalid --max-replicas 3: choose 4 to 20":                          func(o *Options) { o.MaxReplicas = 3 },
		"invalid --max-replicas 21: choose 4 to 20":                         func(o *Options) { o.MaxReplicas = 21 },
	} {
		wrong := o
		change(&wrong)
		if _, err := Manifests(wrong); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// TestOnlySourceControllerHasTheBucket checks the Deployments of --split: all have replicas, one has the credentials.
func TestOnlySourceControllerHasTheBucket(t *testing.T) {
	o := Default("v1")
	o.Split, o.Backend = true, Backend{Endpoint: "https://s3.example", Bucket: "b", Secret: "login"}
	got := manifests(t, o)
	for _, name := range options.AllControllers {
		d := deploymentOf(t, got["Deployment/"+name])
		c := d.Spec.Template.Spec.Containers[0]
		isSource := name == options.SourceController
		if *d.Spec.Replicas != 3 || (len(c.EnvFrom) > 0) != isSource ||
			slices.Contains(c.Args, "--storage-backend-s3-bucket=b") != isSource {
			t.Errorf("%s has %d replicas, %v and %q", name, *d.Spec.Replicas, c.EnvFrom, c.Args)
		}
		constraint := d.Spec.Template.Spec.TopologySpreadConstraints[0]
		if constraint.LabelSelector.MatchLabels[appLabel] != name {
			t.Errorf("%s is spread by %v", name, constraint.LabelSelector)
		}
	}
}
