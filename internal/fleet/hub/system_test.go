package hub_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/hub"
	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestControllerReports lets a controller report with a token that the API server signed, verified by the keys that the
// API server publishes. Reports read nothing from the API server.
func TestControllerReports(t *testing.T) {
	t.Parallel()
	clients, err := kubernetes.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) []byte {
		t.Helper()
		b, err := clients.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var issuer struct{ Issuer string }
	if err := json.Unmarshal(read("/.well-known/openid-configuration"), &issuer); err != nil {
		t.Fatal(err)
	}
	s := &hub.Server{Hub: &hub.Hub{Log: logr.Discard(), Now: time.Now, Epoch: "e",
		Registry: &hub.Registry{Now: time.Now,
			Egress: &egress.Policy{}}}}
	server := httptest.NewTLSServer(s.Handler())
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	h := system.Prepare(t, func(o *options.Options) {
		o.Report = options.ReportOptions{To: server.URL, As: "edge-7", CAFile: hub.CAFile(t, server), TokenFile: token,
			Labels: map[string]string{"region": "eu"}}
		o.Version = "v9"
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sluice", Namespace: h.Namespace}}
	if err := h.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request, err := clients.CoreV1().ServiceAccounts(h.Namespace).CreateToken(t.Context(), "sluice",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{server.URL}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte(request.Status.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Hub.Registry.Set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "edge-7",
		Labels: map[string]string{fleet.ClusterLabel: "edge-7"}}, Data: map[string][]byte{
		"issuer": []byte(issuer.Issuer), "jwks": read("/openid/v1/jwks"), "audience": []byte(server.URL),
		"subject": []byte("system:serviceaccount:" + h.Namespace + ":sluice")}})
	go func() { _ = s.Hub.Start(t.Context()) }()
	h.Start()
	await := func(what string, limit time.Duration, ok func(*fleet.Cluster) bool) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			c, err := s.Hub.Get(t.Context(), "edge-7")
			if err == nil && c.Summary != nil && ok(c) {
				return
			}
			if time.Since(began) > limit {
				t.Fatalf("%s: the hub has %+v, %v", what, c, err)
			}
		}
	}
	await("the start", time.Minute, func(c *fleet.Cluster) bool {
		return c.Summary.Version == "v9" && c.Labels["region"] == "eu"
	})
	h.Requests.Reset()
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: h.Namespace}}
	ks.Spec.Suspend, ks.Spec.Interval.Duration, ks.Spec.Path = true, time.Hour, "./"
	ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name = "GitRepository", "app"
	if err := h.Client.Create(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	await("a change", 10*time.Second, func(c *fleet.Cluster) bool {
		return c.Summary.Kinds["Kustomization"]["suspended"] == 1
	})
	for _, line := range h.Requests.Matching("GET ") {
		if !strings.Contains(line, "watch=") && !strings.Contains(line, "/leases/") {
			t.Errorf("the controllers sent %s", line)
		}
	}
}
