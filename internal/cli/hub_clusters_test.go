package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const webCommit = "main@sha1:3f2a9c1d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"

// fleetOf are five clusters: live, moving, waiting, without the commit, and silent.
func fleetOf(now time.Time) fleet.List {
	at := func(revision string, current int) *fleet.Summary {
		r := fleet.Revision{Source: "GitRepository/flux-system/fleet", Revision: revision, Subject: "Raise <web>",
			Objects: 5, Current: current, Fetched: now.Add(-time.Hour)}
		if current == 5 {
			r.Since = now.Add(-time.Hour)
		}
		return &fleet.Summary{Counts: fleet.Counts{"ready": current, "progressing": 5 - current},
			Revisions: []fleet.Revision{r}}
	}
	waiting := at(webCommit, 0)
	waiting.Changes = []fleet.Change{{Gate: "Gate/flux-system/night", Object: "Kustomization/flux-system/apps",
		Revision: webCommit, Since: now.Add(-2 * time.Hour), Message: "opens at 22:00", Required: 2, Approved: 1}}
	eu := map[string]string{"region": "eu"}
	return fleet.List{Time: now, Clusters: []fleet.Cluster{
		{Name: "edge-1", Labels: eu, Status: fleet.Reporting, Summary: at(webCommit, 5)},
		{Name: "edge-2", Labels: eu, Status: fleet.Reporting, Summary: at(webCommit, 3)},
		{Name: "edge-3", Status: fleet.Reporting, Summary: waiting},
		{Name: "edge-4", Status: fleet.Reporting, Summary: at("main@sha1:0000000000000000000000000000000000000000", 5)},
		{Name: "edge-5", Status: fleet.Silent, Received: now.Add(-time.Hour), Summary: at(webCommit, 5)},
	}}
}

func TestClustersOfAHub(t *testing.T) {
	list := fleetOf(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer reader" || r.URL.Path != fleet.ClustersPath {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(fleet.Error{Error: "who are you", Hint: "send a token"})
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(hub.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("reader\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := []string{"--clusters", "--hub", hub.URL, "--hub-token-file", file}
	shows := func(args []string, code int, texts ...string) string {
		t.Helper()
		r := run(t, append(args, asked...)...).wants(t, code)
		for _, text := range texts {
			if !strings.Contains(r.out+r.err, text) {
				t.Errorf("%v lacks %q:\n%s%s", args, text, r.out, r.err)
			}
		}
		return r.out
	}
	out := shows([]string{"get", "all"}, exitOK, "silent since 2026-11-29 11:00 UTC", "main@sha1:3f2a9c1d")
	if lines := strings.Split(out, "\n"); !strings.HasPrefix(lines[1], "edge-5 ") {
		t.Errorf("the worst is not first: %s", out)
	}
	shows([]string{"get", "all", "--by", "region"}, exitOK, "REGION", "eu", "none")
	shows([]string{"get", "all", "-o", "json"}, exitOK, `"silent": 1`)
	shows([]string{"why", "3f2a9c1"}, exitOK,
		"3f2a9c1 Raise <web>: live in 1 of 5 clusters, silent 1, waiting 1, moving 1, absent 1",
		"3 of 5 objects of GitRepository/flux-system/fleet are Ready at it",
		"Kustomization/flux-system/apps at Gate/flux-system/night: opens at 22:00",
		"edge-2    moving", "edge-3    waiting", "edge-5    silent")
	shows([]string{"why", "3f2a9c1", "-o", "json"}, exitOK, `"state": "waiting"`)
	shows([]string{"why", "ffffff"}, exitFailed, "no cluster of the hub has a revision")
	shows([]string{"gate", "status"}, exitOK, "flux-system/night", "1/2", "2h0m", "cluster 'edge-5' is silent")
	shows([]string{"gate", "status", "-o", "json"}, exitOK, `"approved": 1`)
	run(t, "gate", "status", "--clusters", "--kubeconfig", filepath.Join(t.TempDir(), "none")).wants(t, exitFailed,
		"Set --hub to its URL", "set $SLUICE_HUB", "or use a kubeconfig")
	if err := os.WriteFile(file, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	shows([]string{"get", "all"}, exitFailed, "who are you. send a token")
}

// TestHubOfTheKubeconfig finds the hub that runs in the cluster, by the proxy of the API server. The hub gets the token
// in a header of its own. The list also has a cluster that is only an input of ResourceSets.
func TestHubOfTheKubeconfig(t *testing.T) {
	c, namespace := withDefinitions(t)
	list := fleetOf(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	list.Version = "e.1"
	var token atomic.Value
	serve := func(w http.ResponseWriter, r *http.Request) {
		token.Store(r.Header.Get(fleet.TokenHeader))
		if r.URL.Path != fleet.ClustersPath || r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(fleet.Error{Error: "who are you", Hint: "send a token"})
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}
	for name, start := range map[string]func(*httptest.Server){"http": (*httptest.Server).Start,
		"https": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) {
			namespace := testenv.Namespace(t)
			serveService(t, c, namespace, http.HandlerFunc(serve), start)
			shop := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "viewer"}}
			reader := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"},
					ResourceNames: []string{"sluice-hub"}},
				{APIGroups: []string{""}, Resources: []string{"services/proxy"}, Verbs: []string{"get"},
					ResourceNames: []string{"https:sluice-hub:443", "http:sluice-hub:443"}},
				{APIGroups: []string{inputsv1.GroupVersion.Group}, Resources: []string{"clusterinputproviders"},
					Verbs: []string{"list"}}}}
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "viewer"}}}
			provider := &inputsv1.ClusterInputProvider{}
			provider.Namespace, provider.Name = namespace, "fleet"
			for _, o := range []client.Object{shop, reader, binding, provider} {
				if err := c.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			provider.Status.ExportedInputs = []controlplanev1.InputSet{
				{"name": {Raw: []byte(`"registered"`)}, "labels": {Raw: []byte(`{"sluice.dev/cluster":"edge-1"}`)}},
				{"name": {Raw: []byte(`"input-` + name + `"`)}, "labels": {Raw: []byte(`{"region":"eu"}`)}}}
			if err := c.Status().Update(t.Context(), provider); err != nil {
				t.Fatal(err)
			}
			kubeconfig := accountKubeconfig(t, namespace, "viewer")
			as := func(args ...string) result {
				return run(t, append(args, "--clusters", "--kubeconfig", kubeconfig, "-n", namespace)...)
			}
			var r result
			testenv.Eventually(t, "the API server knows the rights and the endpoint", func() error {
				if r = as("get", "all"); r.code != exitOK || !strings.Contains(r.out, "input-"+name) {
					return fmt.Errorf("%d %s%s", r.code, r.out, r.err)
				}
				return nil
			})
			if got, _ := token.Load().(string); len(got) < 100 {
				t.Errorf("the hub got the token %q", got)
			}
			if !strings.Contains(r.out, "edge-5") || strings.Contains(r.out, "registered") ||
				strings.Count(r.out, "edge-1 ") != 1 || !strings.Contains(r.out, "only an input of ResourceSets") {
				t.Errorf("the list is %s", r.out)
			}
			if r := as("get", "all", "-o", "json", "--by", "region"); !strings.Contains(r.out, `"inputs": `) {
				t.Errorf("by region: %s%s", r.out, r.err)
			}
			for text, args := range map[string][]string{"live in 1 of 5 clusters": {"why", "3f2a9c1"},
				"flux-system/night": {"gate", "status"}} {
				if r := as(args...).wants(t, exitOK); !strings.Contains(r.out, text) {
					t.Errorf("%v: %s%s", args, r.out, r.err)
				}
			}
		})
	}
	at(t, "why", "3f2a9c1", "--clusters", "-n", namespace).wants(t, exitFailed, "--clusters needs a hub",
		"Service '"+namespace+"/sluice-hub' cannot be read")
	at(t, "get", "all", "--clusters", "-n", namespace).wants(t, exitOK, "use -A for all namespaces")
}

// serveService serves a handler at the Service of a hub. The API server reaches addresses of pods only, and no loopback
// addresses.
func serveService(t *testing.T, c client.Client, namespace string, h http.Handler, start func(*httptest.Server)) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var own netip.Addr
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			own = p.Addr()
		}
	}
	if !own.IsValid() {
		t.Skip("needs an address that is not a loopback address")
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of a handshake with the wrong scheme
	if server.Listener, err = net.Listen("tcp", net.JoinHostPort(own.String(), "0")); err != nil {
		t.Fatal(err)
	}
	start(server)
	t.Cleanup(server.Close)
	port := netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	in := metav1.ObjectMeta{Namespace: namespace, Name: "sluice-hub"}
	pod := &corev1.Pod{ObjectMeta: in, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "hub", Image: "hub"}}}}
	slice := in
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "sluice-hub"}
	testenv.AwaitAccount(t, namespace)
	for _, o := range []client.Object{
		&corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone,
			Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: slice, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(port))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{own.String()},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod.Name}}}},
		pod,
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	// The nodes of the playground leave pods alone that have ended.
	status := fmt.Sprintf(`{"status":{"phase":"Succeeded","podIP":"%[1]s","podIPs":[{"ip":"%[1]s"}]}}`, own)
	if err := c.Status().Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
		t.Fatal(err)
	}
}

func TestCommitsOfRevisions(t *testing.T) {
	for commit, want := range map[string]bool{"3f2a9c1": true, webCommit: true, "main": true, "": false, "3f2": false,
		"sha1:3f2a9c1d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b": true, "2a9c1": false} {
		if hasCommit(webCommit, commit) != want {
			t.Errorf("%q: want %t", commit, want)
		}
	}
}
