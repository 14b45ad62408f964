package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func (a *alive) namespace(t *testing.T) {
	ns := a.newNamespace(t)
	eventually(t, func(ctx context.Context) error {
		_, err := a.client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", get)
		return err
	})
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: named, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	must[*corev1.PersistentVolumeClaim](t)(a.client.CoreV1().PersistentVolumeClaims(ns).
		Create(t.Context(), claim, create))
	d := &appsv1.Deployment{ObjectMeta: named,
		Spec: appsv1.DeploymentSpec{Selector: selector, Template: pods(corev1.RestartPolicyAlways, nil)}}
	must[*appsv1.Deployment](t)(a.client.AppsV1().Deployments(ns).Create(t.Context(), d, create))
	eventually(t, func(ctx context.Context) error {
		d, err := a.client.AppsV1().Deployments(ns).Get(ctx, "x", get)
		if err != nil || d.Status.AvailableReplicas != 1 {
			return fmt.Errorf("%+v, %w", d.Status, err)
		}
		return nil
	})
	if err := a.client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		left, err := a.client.CoreV1().Namespaces().Get(ctx, ns, get)
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %+v, %w", left.Status, err)
		}
		return nil
	})
}

func (a *alive) owners(t *testing.T) {
	ns := a.newNamespace(t)
	client := must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(a.config))
	things := defineThings(t, client).Namespace(ns)
	thing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.example/v1", "kind": "Thing", "metadata": map[string]any{"name": "owned"},
	}}
	owner := must[*corev1.ConfigMap](t)(a.client.CoreV1().ConfigMaps(ns).
		Create(t.Context(), &corev1.ConfigMap{ObjectMeta: named}, create))
	thing.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name,
		UID: owner.UID}})
	eventually(t, func(ctx context.Context) error { // the kind takes a moment to be served
		_, err := things.Create(ctx, thing, create)
		return err
	})
	if err := a.client.CoreV1().ConfigMaps(ns).Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		if _, err := things.Get(ctx, "owned", get); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there, %w", err)
		}
		return nil
	})
}

// defineThings makes the API server serve a custom kind that has any fields. It may be defined already.
func defineThings(t *testing.T, client dynamic.Interface) dynamic.NamespaceableResourceInterface {
	t.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things.test.example"},
		"spec": map[string]any{
			"group": "test.example", "scope": "Namespaced",
			"names": map[string]any{"plural": "things", "kind": "Thing"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	if _, err := client.Resource(crds).Create(t.Context(), crd, create); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "test.example", Version: "v1", Resource: "things"})
}

// abandoned deletes two namespaces with an object that a finalizer holds. Only one of them says that the controller
// that would remove it is gone.
func (a *alive) abandoned(t *testing.T) {
	things := defineThings(t, must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(a.config)))
	thing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.example/v1", "kind": "Thing", "metadata": map[string]any{"name": "held"},
	}}
	thing.SetFinalizers([]string{"test.example/held"})
	namespaces := a.client.CoreV1().Namespaces()
	names := []string{a.newNamespace(t), a.newNamespace(t)}
	must[*corev1.Namespace](t)(namespaces.Patch(t.Context(), names[1], types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"playground.sluice.dev/abandoned":""}}}`), metav1.PatchOptions{}))
	for _, ns := range names {
		eventually(t, func(ctx context.Context) error { // the kind takes a moment to be served
			_, err := things.Namespace(ns).Create(ctx, thing, create)
			return err
		})
		if err := namespaces.Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func(ctx context.Context) error {
		if left, err := namespaces.Get(ctx, names[1], get); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %+v, %w", left.Status, err)
		}
		return nil
	})
	held := must[*unstructured.Unstructured](t)(things.Namespace(names[0]).Get(t.Context(), "held", get))
	if len(held.GetFinalizers()) != 1 {
		t.Errorf("the object of another namespace has lost its finalizer: %v", held.GetFinalizers())
	}
}

func (a *alive) rbac(t *testing.T) {
	ns := a.newNamespace(t)
	user := "system:serviceaccount:" + ns + ":default"
	cfg := rest.CopyConfig(a.config)
	cfg.Impersonate.UserName = user
	client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(cfg))
	if _, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Fatalf("without a role it may list: %v", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: ns}},
	}
	must[*rbacv1.RoleBinding](t)(a.client.RbacV1().RoleBindings(ns).Create(t.Context(), binding, create))
	eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(ns).List(ctx, list)
		return err
	})
	if _, err := client.CoreV1().Secrets(ns).List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("as a viewer it may list secrets: %v", err)
	}
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	eventually(t, func(ctx context.Context) error { // a token of an account that is not there yet is collected
		_, err := a.client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", get)
		return err
	})
	must[*corev1.Secret](t)(a.client.CoreV1().Secrets(ns).Create(t.Context(), token, create))
	eventually(t, func(ctx context.Context) error {
		s, err := a.client.CoreV1().Secrets(ns).Get(ctx, "token", get)
		if err != nil || len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.Join(errors.New("it has no token"), err)
		}
		cfg := rest.AnonymousClientConfig(a.config)
		cfg.BearerToken = string(s.Data[corev1.ServiceAccountTokenKey])
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().ConfigMaps(ns).List(ctx, list)
		return err
	})
}
