package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/fleet"
	fleetclient "github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// fleetSite is a hub over TLS, and a cluster that joins it as edge-7. The hub is registered in another cluster.
type fleetSite struct {
	*testing.T
	url, ca    string
	other      string // URL of a second replica
	kubeconfig string // for the cluster of the hub
	namespace  string // of the hub
	hub        client.Client
	client     client.Client // for the cluster that joins
}

func newFleetSite(t *testing.T) *fleetSite {
	t.Helper()
	t.Parallel()
	s := &fleetSite{T: t, kubeconfig: testenv.Kubeconfig(t), hub: clusterClient(t), namespace: testenv.Namespace(t)}
	s.startHub()
	testenv.Exclusive(t)
	s.client = clusterClient(t)
	return s
}

// startHub runs two replicas of `sluice hub`, which share summaries. The first one knows the second one.
func (s *fleetSite) startHub() {
	s.Helper()
	first := testenv.FreeAddress(s)
	_, port, _ := net.SplitHostPort(first)
	second := net.JoinHostPort("127.0.0.2", port)
	var key string
	s.ca, key = certificate(s.T, net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2))
	s.url, s.other = "https://"+first, "https://"+second
	shared := s.TempDir()
	s.startReplica(key, first, "--storage-path", shared, "--peers", "127.0.0.2")
	s.startReplica(key, second, "--storage-path", shared)
}

// startReplica runs a replica of the hub until the test ends.
func (s *fleetSite) startReplica(key, addr string, flags ...string) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	ended := make(chan result, 1)
	go func() {
		ended <- runWith(ctx, "", append([]string{"hub", "--kubeconfig", s.kubeconfig, "-n", s.namespace, "--addr",
			addr, "--external-url", s.url, "--tls-cert-file", s.ca, "--tls-key-file", key, "--metrics-addr", "0",
			"--health-addr", "0", "--log-level", "error"}, flags...)...)
	}()
	s.Cleanup(func() {
		cancel()
		if r := <-ended; r.code != exitOK {
			s.Errorf("sluice hub exited with code %d:\n%s", r.code, r.err)
		}
	})
}

// membership runs `sluice cluster VERB` for edge-7.
func (s *fleetSite) membership(verb string, args ...string) result {
	s.Helper()
	return at(s.T, append([]string{"cluster", verb, "--name", "edge-7", "--hub-kubeconfig", s.kubeconfig,
		"--hub-namespace", s.namespace}, args...)...)
}

// registrations returns the Secrets of clusters at the hub.
func (s *fleetSite) registrations() []corev1.Secret {
	s.Helper()
	found := &corev1.SecretList{}
	if err := s.hub.List(s.Context(), found, client.InNamespace(s.namespace),
		client.HasLabels{fleet.ClusterLabel}); err != nil {
		s.Fatal(err)
	}
	return found.Items
}

// registration returns the Secret of the one cluster at the hub.
func (s *fleetSite) registration() *corev1.Secret {
	s.Helper()
	all := s.registrations()
	if len(all) != 1 {
		s.Fatalf("%d Secrets register clusters", len(all))
	}
	return &all[0]
}

// deployment returns the controllers of the cluster, and their arguments.
func (s *fleetSite) deployment() (*appsv1.Deployment, []string) {
	s.Helper()
	d := &appsv1.Deployment{}
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "sluice"},
		d); err != nil {
		s.Fatal(err)
	}
	return d, d.Spec.Template.Spec.Containers[0].Args
}

// token returns a token of the account of the controllers.
func (s *fleetSite) token(audience string) string {
	s.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: "sluice"}}
	if err := s.client.SubResource("token").Create(s.Context(), account, request); err != nil {
		s.Fatal(err)
	}
	return request.Status.Token
}

// as returns a client that asks the hub as a cluster, with a token of the one that joined.
func (s *fleetSite) as(name, audience string) *fleetclient.Client {
	s.Helper()
	token := s.token(audience)
	c, err := fleetclient.New(fleetclient.Options{URL: s.url, CAFile: s.ca, Cluster: name,
		Token: func(context.Context) (string, error) { return token, nil }})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// report reports as a cluster, with a token of the one that joined.
func (s *fleetSite) report(as, audience string) error {
	s.Helper()
	body, err := json.Marshal(fleet.Report{Cluster: as, Instance: "one", Sequence: 1,
		Summary: &fleet.Summary{Time: time.Now(), Version: "v9"}})
	if err != nil {
		s.Fatal(err)
	}
	return s.as(as, audience).Report(s.Context(), body)
}

// awaitLogin waits until the hub accepts the token as that of a cluster, or refuses it with a text.
func (s *fleetSite) awaitLogin(as, refusal string) {
	s.Helper()
	c := s.as(as, s.url)
	testenv.Eventually(s, "the hub follows its Secrets", func() error {
		_, err := c.Get(s.Context(), as)
		return wantRefusal(err, refusal)
	})
}

// wantRefusal returns an error unless a request was refused with a text; with an empty one, unless it was accepted.
func wantRefusal(err error, text string) error {
	if err != nil && text != "" && strings.Contains(err.Error(), text) || err == nil && text == "" {
		return nil
	}
	return fmt.Errorf("the hub answers %w, want %q", err, text)
}

// exportedSecret returns the Secret that `sluice cluster join --export` prints.
func exportedSecret(t *testing.T, r result) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := yaml.UnmarshalStrict([]byte(r.wants(t, exitOK).out), s); err != nil {
		t.Fatal(err)
	}
	s.Data = map[string][]byte{}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
	return s
}

// TestClusterJoinAndLeave registers a cluster at a hub in another one.
func TestClusterJoinAndLeave(t *testing.T) {
	s := newFleetSite(t)
	at(t, "install", "--image", "registry.example.com/sluice:v9", "--log-level", "debug", "--controller-arg",
		"--concurrent=8").wants(t, exitOK)
	before, args := s.deployment()
	join := []string{"--hub", s.url, "--labels", "region=eu,stage=production"}
	written := exportedSecret(t, s.membership("join", append(join, "--export")...))
	if n := len(s.registrations()); n != 0 {
		t.Fatalf("--export wrote %d Secrets", n)
	}
	s.awaitLogin("edge-7", "the hub does not know cluster 'edge-7'")
	s.membership("join", join...).wants(t, exitOK, "the hub knows cluster 'edge-7'")
	registered, joined := s.registration(), s.checkJoined(before, args)
	if diff := cmp.Diff(written.Data, registered.Data); diff != "" || written.Name != registered.Name ||
		written.Namespace != registered.Namespace || !maps.Equal(written.Labels, registered.Labels) {
		t.Errorf("--export prints %s with %v, the Secret has %v\n%s", written.Name, written.Labels, registered.Labels,
			diff)
	}
	s.checkRegistration(registered)

	s.membership("join", join...).wants(t, exitOK, "have these settings already")
	again, _ := s.deployment()
	if v := s.registration().ResourceVersion; v != registered.ResourceVersion || again.Generation != joined.Generation {
		t.Errorf("joining again changed something: generations %d, %d", joined.Generation, again.Generation)
	}
	s.checkReports()
	s.checkRotate()

	s.membership("leave", "--name", "edge-9").wants(t, exitFailed, "reports as 'edge-7', not as 'edge-9'")
	s.membership("leave").wants(t, exitOK, "no longer knows cluster 'edge-7'")
	if after, left := s.deployment(); !slices.Equal(left, args) ||
		after.Spec.Template.Spec.Containers[0].Image != before.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("after leaving, the controllers have %v, want %v", left, args)
	}
	s.awaitLogin("edge-7", "the hub does not know cluster 'edge-7'")
	s.membership("leave").wants(t, exitOK)
	s.membership("rotate").wants(t, exitFailed, "run sluice cluster join")
	s.checkSecretOfAnotherTool(written)
}

// checkSecretOfAnotherTool checks that commands use the Secret of the cluster by its label, under each name.
func (s *fleetSite) checkSecretOfAnotherTool(written *corev1.Secret) {
	s.Helper()
	theirs := written.DeepCopy()
	theirs.Name, theirs.Data["subject"] = "of-terraform", []byte("system:serviceaccount:flux-system:reporter")
	delete(theirs.Data, "jwks")
	if err := s.hub.Create(s.Context(), theirs); err != nil {
		s.Fatal(err)
	}
	s.membership("rotate").wants(s.T, exitOK)
	theirs.Data["jwks"] = written.Data["jwks"]
	if rotated := s.registration(); !cmp.Equal(rotated.Data, theirs.Data) {
		s.Errorf("after rotation, the Secret has %s, want %s", rotated.Data, theirs.Data)
	}
	s.membership("leave").wants(s.T, exitOK)
	if n := len(s.registrations()); n != 0 {
		s.Errorf("%d Secrets remain", n)
	}
}

// checkJoined checks that the controllers have the arguments of the report, and that nothing else of them changed.
func (s *fleetSite) checkJoined(before *appsv1.Deployment, args []string) *appsv1.Deployment {
	s.Helper()
	joined, got := s.deployment()
	if want := append(slices.Clone(args), "--report-to="+s.url, "--report-as=edge-7"); !slices.Equal(got, want) {
		s.Errorf("the controllers have %v, want %v", got, want)
	}
	want := before.Spec.DeepCopy()
	want.Template.Spec.Containers[0].Args = got
	if diff := cmp.Diff(want, &joined.Spec); diff != "" {
		s.Errorf("the Deployment changed:\n%s", diff)
	}
	return joined
}

// checkRegistration checks a Secret against what the API server says of itself.
func (s *fleetSite) checkRegistration(registered *corev1.Secret) {
	s.Helper()
	clients, err := kubernetes.NewForConfig(testenv.Cluster(s))
	if err != nil {
		s.Fatal(err)
	}
	keys, err := clients.RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	want := map[string]string{"issuer": "https://kubernetes.default.svc.cluster.local", "jwks": string(keys),
		"subject": "system:serviceaccount:flux-system:sluice", "labels": "region=eu,stage=production", "reads": "true"}
	got := map[string]string{}
	for key, value := range registered.Data {
		got[key] = string(value)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("the Secret differs:\n%s", diff)
	}
	if want := map[string]string{fleet.ClusterLabel: "edge-7", "region": "eu", "stage": "production"}; !maps.Equal(want,
		registered.Labels) {
		s.Errorf("the Secret has labels %v", registered.Labels)
	}
}

// checkReports checks what the hub accepts with tokens of the account of the controllers.
func (s *fleetSite) checkReports() {
	s.Helper()
	theirs := exportedSecret(s.T, runWith(s.Context(), "", "cluster", "join", "--hub", s.url, "--name", "edge-8",
		"--export", "--kubeconfig", s.kubeconfig, "--hub-namespace", s.namespace))
	if err := s.hub.Create(s.Context(), theirs); err != nil {
		s.Fatal(err)
	}
	s.awaitLogin("edge-7", "")
	s.awaitLogin("edge-8", "not signed by")
	for _, c := range []struct{ as, audience, refusal string }{
		{"edge-7", s.url, ""},
		{"edge-9", s.url, "the hub does not know cluster 'edge-9'"},
		{"edge-8", s.url, "not signed by the keys of cluster 'edge-8'"},
		{"edge-7", "https://hub.example.com", "not for this hub"},
	} {
		if err := wantRefusal(s.report(c.as, c.audience), c.refusal); err != nil {
			s.Errorf("as %s for %s: %v", c.as, c.audience, err)
		}
	}
	if err := s.hub.Delete(s.Context(), theirs); err != nil {
		s.Fatal(err)
	}
}

// checkRotate replaces the keys at the hub by others, then lets `sluice cluster rotate` correct them.
func (s *fleetSite) checkRotate() {
	s.Helper()
	registered := s.registration()
	other := registered.DeepCopy()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	other.Data["jwks"], err = json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(),
		KeyID: "other", Algorithm: "ES256"}}})
	other.Data["kubeconfig"] = []byte("of another tool")
	if err := errors.Join(err, s.hub.Update(s.Context(), other)); err != nil {
		s.Fatal(err)
	}
	s.awaitLogin("edge-7", "run sluice cluster join again")
	s.membership("rotate").wants(s.T, exitOK, "knows the current keys of cluster 'edge-7'")
	s.awaitLogin("edge-7", "")
	registered.Data["kubeconfig"] = other.Data["kubeconfig"]
	if rotated := s.registration(); !cmp.Equal(rotated.Data, registered.Data) ||
		!maps.Equal(rotated.Labels, registered.Labels) {
		s.Errorf("after rotation, the Secret has %s with %v", rotated.Data, rotated.Labels)
	}
}
