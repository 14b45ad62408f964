package install

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestHub(t *testing.T) {
	of := func(o Options) (all []*unstructured.Unstructured, names []string) {
		t.Helper()
		all, err := Manifests(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range all {
			names = append(names, u.GetKind()+"/"+u.GetName())
		}
		return all, names
	}
	o := Default("v1")
	_, without := of(o)
	o.Hub = Hub{URL: "https://hub.example.com", TLSSecret: "hub-tls"}
	_, beside := of(o)
	own := slices.DeleteFunc(slices.Clone(beside), func(name string) bool { return slices.Contains(without, name) })
	want := []string{"ServiceAccount/sluice-hub", "Role/sluice-hub", "Secret/sluice-hub-session",
		"RoleBinding/sluice-hub", "ClusterRoleBinding/sluice-hub", "ClusterRole/sluice-fleet-viewer",
		"Service/sluice-hub", "Service/sluice-hub-peers", "NetworkPolicy/sluice-hub", "PodDisruptionBudget/sluice-hub",
		"Deployment/sluice-hub"}
	if !slices.Equal(own, want) || len(beside) != len(without)+len(want) {
		t.Errorf("a hub adds %v", own)
	}
	o.Components, o.Namespace = []string{HubComponent}, "fleet"
	o.Backend = Backend{Endpoint: "https://s3.example.com", Bucket: "b", Secret: "s"}
	o.UI = UI{Issuer: "https://login.example.com", ClientID: "sluice", ClientSecret: "login", NoTokenLogin: true}
	all, only := of(o)
	if !slices.Equal(only, append([]string{"Namespace/fleet"}, want...)) {
		t.Errorf("a hub alone is %v", only)
	}
	for _, u := range all {
		if subjects, ok, _ := unstructured.NestedSlice(u.Object, "subjects"); ok {
			if s := subjects[0].(map[string]any); s["name"] != hubName || s["namespace"] != "fleet" {
				t.Errorf("%s is for %v", u.GetName(), subjects)
			}
		}
		if u.GetName() == hubPeers {
			checkPeers(t, u)
		}
		if u.GetKind() != deploymentKind {
			continue
		}
		replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		if got := strings.Join(args, " "); replicas != sharedReplicas || got != "hub --peers=sluice-hub-peers "+
			"--external-url=https://hub.example.com "+
			"--storage-backend-s3-endpoint=https://s3.example.com --storage-backend-s3-bucket=b "+
			"--ui-oidc-issuer=https://login.example.com --ui-oidc-client-id=sluice "+
			"--ui-oidc-client-secret-file=/etc/sluice-ui/client-secret --ui-token-login=false "+
			"--tls-cert-file=/etc/sluice-hub/tls.crt --tls-key-file=/etc/sluice-hub/tls.key" {
			t.Errorf("%d replicas run %s", replicas, got)
		}
	}
	for says, o := range map[string]Options{
		"--components hub needs --hub-url": {Components: []string{HubComponent}},
		"--hub-tls-secret needs --hub-url": {Hub: Hub{TLSSecret: "a"}},
		"--hub-url":                        {Hub: Hub{URL: "http://hub.example.com"}},
		"invalid --hub-tls-secret":         {Hub: Hub{URL: "https://hub.example.com", TLSSecret: "A"}},
		"--ui-oidc-issuer and --ui-oidc-client-id": {Hub: Hub{URL: "https://hub.example.com"},
			UI: UI{Issuer: "https://login.example.com"}},
		"need --ui-url": {Hub: Hub{URL: "https://hub.example.com"}, UI: UI{MCPURL: "https://mcp.example.com"}},
	} {
		if _, err := o.Complete(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// checkPeers checks that the name of the Service leads to each replica, at the port that it listens on.
func checkPeers(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	s := &corev1.Service{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		t.Fatal(err)
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone || s.Namespace != "fleet" ||
		!maps.Equal(s.Spec.Selector, map[string]string{appLabel: hubName}) {
		t.Errorf("the Service of the replicas is %+v", s)
	}
}
