package api_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// sameDuration compares texts of durations by their length: clients write 60s as 1m0s.
var sameDuration = cmp.Comparer(func(a, b string) bool {
	x, err := time.ParseDuration(a)
	y, err2 := time.ParseDuration(b)
	return a == b || err == nil && err2 == nil && x == y
})

// TestClientsLoseNothing has clients read every example in its own version and by the Go type of its kind, and write it
// back. A field that the type or the version lacks, or writes in another form, would change the object.
func TestClientsLoseNothing(t *testing.T) {
	dynamic := serve(t)
	typed, err := client.New(testenv.Cluster(t), client.Options{Scheme: goTypes()})
	if err != nil {
		t.Fatal(err)
	}
	stored := storageVersions(t)
	namespace := testenv.Namespace(t)
	spec := func(gvk schema.GroupVersionKind, name string) any {
		o, err := dynamic.Resource(resource(gvk, gvk.Version)).Namespace(namespace).Get(t.Context(), name,
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return declared(t, o.Object)
	}
	for name, example := range examples(t) {
		example.SetNamespace(namespace)
		gvk := example.GroupVersionKind()
		testenv.Eventually(t, name+" is created", func() error { return typed.Create(t.Context(), example.DeepCopy()) })
		versions := []schema.GroupVersion{gvk.GroupVersion()}
		for _, version := range append(versions, typed.Scheme().VersionsForGroupKind(gvk.GroupKind())...) {
			var before any
			// controllers that other packages test on the same cluster write their status in between
			if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				var o client.Object = &unstructured.Unstructured{}
				if obj, err := typed.Scheme().New(version.WithKind(gvk.Kind)); err == nil {
					o = obj.(client.Object)
				}
				o.GetObjectKind().SetGroupVersionKind(version.WithKind(gvk.Kind))
				if err := typed.Get(t.Context(), client.ObjectKeyFromObject(example), o); err != nil {
					return err
				}
				before = spec(gvk.GroupKind().WithVersion(stored[gvk.Kind]), example.GetName())
				return typed.Update(t.Context(), o)
			}); err != nil {
				t.Fatal(err)
			}
			after := spec(gvk.GroupKind().WithVersion(stored[gvk.Kind]), example.GetName())
			if diff := cmp.Diff(before, after, sameDuration); diff != "" {
				t.Errorf("%s as %s: a client that changes nothing changes\n%s", name, version, diff)
			}
		}
		if err := typed.Delete(t.Context(), example); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKubectlWorksWithEveryVersion has kubectl apply every example, find no difference afterwards, read it in its own
// version and in the stored one, and explain all fields of both.
func TestKubectlWorksWithEveryVersion(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed: no other client is tested")
	}
	serve(t)
	kubeconfig, namespace := testenv.Kubeconfig(t), testenv.Namespace(t)
	kubectl := func(input string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "kubectl", append(args, "--kubeconfig", kubeconfig, "-n", namespace)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return string(out), nil
	}
	// one run of kubectl for all objects, as it takes longer to start than to do it
	var manifests strings.Builder
	get, explained := []string{"get"}, map[string]bool{}
	stored := storageVersions(t)
	for _, example := range examples(t) {
		manifest, err := yaml.Marshal(example.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifests, "---\n%s", manifest)
		gvk := example.GroupVersionKind()
		kind := strings.ToLower(gvk.Kind)
		get = append(get, fmt.Sprintf("%s.%s.%s/%s", kind, gvk.Version, gvk.Group, example.GetName()))
		for _, version := range []string{gvk.Version, stored[gvk.Kind]} {
			explained[kind+" "+gvk.Group+"/"+version] = true
		}
	}
	testenv.Eventually(t, "all are applied", func() error {
		_, err := kubectl(manifests.String(), "apply", "-f", "-")
		return err
	})
	steps := [][]string{{"diff", "-f", "-"}, {"get", "-f", "-"}, get}
	for kindAndVersion := range explained {
		kind, version, _ := strings.Cut(kindAndVersion, " ")
		steps = append(steps, []string{"explain", kind, "--recursive", "--api-version", version})
	}
	for _, step := range append(steps, []string{"delete", "-f", "-"}) {
		if _, err := kubectl(manifests.String(), step...); err != nil {
			t.Error(err)
		}
	}
}
