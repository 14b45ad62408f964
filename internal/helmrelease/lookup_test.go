package helmrelease

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestLookedUpListsAreBounded has more objects than one request asks for, then more bytes than a template may read.
func TestLookedUpListsAreBounded(t *testing.T) {
	cfg := testenv.Cluster(t)
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	all, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	namespace := testenv.Namespace(t)
	client := all.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
	create := func(from, to int, text string) {
		for i := from; i < to; i++ {
			if _, err := typed.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Data: map[string]string{"x": text},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(0, 70, "x")
	list, err := listBounded(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, o := range list.Items {
		names[o.GetName()]++
	}
	for i := range 70 {
		if names[fmt.Sprintf("c%d", i)] != 1 {
			t.Errorf("c%d occurs %d times in %v", i, names[fmt.Sprintf("c%d", i)], names)
		}
	}
	if content := list.UnstructuredContent(); list.GetContinue() != "" || content["kind"] != "ConfigMapList" {
		t.Errorf("a list of kind %v", content["kind"])
	}
	create(100, 137, strings.Repeat("x", 1_000_000))
	if _, err := listBounded(t.Context(), client); err == nil || !strings.Contains(err.Error(), "more than 32 MiB") {
		t.Errorf("the error is %v", err)
	}
}
