package rollout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// objects is a reader of some objects, by type and name.
type objects []client.Object

func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range o {
		if o.GetName() == key.Name && reflect.TypeOf(o) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (objects) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func wantHint(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(), ". "+want) {
		t.Errorf("%s: got %v, want the hint %q", what, err, want)
	}
}

func TestHintsOfDependencies(t *testing.T) {
	named := func(name, on, expr string) *kustomizev1.Kustomization {
		k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name}}
		k.Spec.DependsOn = []meta.DependencyReference{{
			NamespacedName: meta.NamespacedName{Name: on}, ReadyExpr: expr}}
		return k
	}
	for want, all := range map[string]objects{
		"Remove one of these dependsOn entries": {named("a", "b", ""), named("b", "a", "")},
		"Correct spec.dependsOn[].readyExpr. It can use self, the dependent object, and dep, the dependency": {
			named("a", "b", "dep.status +"), named("b", "c", "")},
	} {
		outcome := dependenciesOf(all).Check(t.Context(), all[0].(*kustomizev1.Kustomization), "main@sha1:1", nil)
		wantHint(t, "dependency", fmt.Errorf("%s", outcome), want)
	}
	_, err := (&Health{}).Expressions(&kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Generation: 1}},
		[]meta.HealthCheckExpr{{APIVersion: "v1", Kind: "Pod", Current: "status +"}})
	wantHint(t, "health check", err, "Correct the expression. It can use the fields of the object by name, such as "+
		"status")
}

func TestHintsOfAccounts(t *testing.T) {
	refused := errors.New(`User "system:serviceaccount:apps:gone" cannot patch resource "pods"`)
	err := Destination{ServiceAccount: "gone"}.ExplainMissingAccount(t.Context(), objects{}, "apps", refused)
	wantHint(t, "missing account", err, "Create it, and bind a role to it that allows what it applies")

	r := &RemoteClusters{Transports: NewTransports(&egress.Policy{}, nil), Reader: objects{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "unnamed"},
			Data: map[string]string{"provider": "generic", "address": "https://10.0.0.1"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "exec"},
			Data: map[string][]byte{"value": fmt.Appendf(nil, kubeConfig, "", execUser)}},
	}, Self: func(context.Context) (types.NamespacedName, error) {
		return types.NamespacedName{}, errors.New("not in a pod")
	}}
	_, err = connect(t, r, "unnamed")
	wantHint(t, "no account", err, "Set the key serviceAccountName")
	for name, want := range map[string]string{
		"empty": "Put the kubeconfig there, or name its key in spec.kubeConfig.secretRef.key",
		"exec":  "It must contain the server, certificate-authority-data, and a token or client certificate data",
	} {
		_, err = r.connect(t.Context(), "team", &meta.KubeConfigReference{
			SecretRef: &meta.SecretKeyReference{Name: name}})
		wantHint(t, name, err, want)
	}
}

func TestHintFitsTheReference(t *testing.T) {
	err := ReferencePolicy{NoCrossNamespace: true}.Check("spec.sourceRef", "team", "other")
	if f := fault.As(err); f == nil || f.Hint != "Move the referenced object to namespace 'team', or ask the "+
		"administrator of Sluice to change --no-cross-namespace-refs or --watch-all-namespaces=false" {
		t.Errorf("got %v", err)
	}
	_, err = IgnoreRules([]meta.IgnoreRule{{Paths: []string{"spec.replicas"}}}, nil)
	if f := fault.As(err); f == nil || f.Hint != "Write it like /spec/replicas (RFC 6901)" {
		t.Errorf("got %v", err)
	}
}
