package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/fleet/stream"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// user is a ServiceAccount of the cluster that uses the hub in a browser.
type user struct {
	*fleetSite
	name    string
	replica string // URL of the hub
	browser *http.Client
	csrf    string
}

// newUser creates a user who may do what the rules say in a namespace.
func (s *fleetSite) newUser(namespace, name string, rules ...rbacv1.PolicyRule) (u *user, token string) {
	s.Helper()
	in := metav1.ObjectMeta{Namespace: namespace, Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: in}
	for _, o := range []client.Object{account, &rbacv1.Role{ObjectMeta: in, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: in,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}}} {
		if err := s.client.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(s.Context(), account, request); err != nil {
		s.Fatal(err)
	}
	return &user{fleetSite: s, name: "system:serviceaccount:" + namespace + ":" + name, replica: s.url,
		browser: s.newBrowser()}, request.Status.Token
}

func (s *fleetSite) newBrowser() *http.Client {
	s.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	authority, err := os.ReadFile(s.ca)
	if err != nil {
		s.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport}
}

// do sends a request to the UI of the cluster, by the hub.
func (u *user) do(method, path, body string) (status int, answer string, err error) {
	u.Helper()
	r, err := http.NewRequestWithContext(u.Context(), method, u.replica+stream.Prefix("edge-7")+path,
		strings.NewReader(body))
	if err != nil {
		u.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Sluice-Csrf", u.csrf)
	resp, err := u.browser.Do(r)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), errors.Join(err, resp.Body.Close())
}

// wants waits until a request has a status and a text in its answer, since the API server reads rights from a cache.
func (u *user) wants(method, path, body string, status int, text string) (answer string) {
	u.Helper()
	testenv.Eventually(u, u.name+": "+method+" "+path, func() error {
		got, said, err := u.do(method, path, body)
		if answer = said; err != nil || got != status || !strings.Contains(answer, text) {
			return fmt.Errorf("%w: status %d, want %d with %q: %s", err, got, status, text, answer)
		}
		return nil
	})
	return answer
}

// logIn logs in at the cluster, and checks who the cluster says the user is.
func (u *user) logIn(token string) {
	u.Helper()
	u.wants(http.MethodGet, "/api/v1/me", "", http.StatusUnauthorized, "log in")
	u.wants(http.MethodPost, "/login/token", `{"token":"`+token+`"}`, http.StatusOK, "login")
	var me struct{ User, Cluster, CSRF string }
	if err := json.Unmarshal([]byte(u.wants(http.MethodGet, "/api/v1/me", "", http.StatusOK, u.name)),
		&me); err != nil || me.User != u.name || me.Cluster != "edge-7" {
		u.Errorf("the cluster says that %s is %+v (%v)", u.name, me, err)
	}
	u.csrf = me.CSRF
}

// joinWithoutInstallation registers the cluster by what `join --export` prints, and runs its controllers, with a web
// UI, outside of it. They have their stream to the second replica.
func (s *fleetSite) joinWithoutInstallation() (stop func() error) {
	s.Helper()
	at(s.T, "install", "--crds-only").wants(s.T, exitOK)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: "sluice"}}
	registered := exportedSecret(s.T, s.membership("join", "--hub", s.url, "--export"))
	if err := errors.Join(s.client.Create(s.Context(), account), s.hub.Create(s.Context(), registered)); err != nil {
		s.Fatal(err)
	}
	ui := testenv.FreeAddress(s.T)
	return controllers(s.T, "--report-to", s.other, "--report-as", "edge-7", "--report-ca-file", s.ca,
		"--report-token-file", file(s.T, "token", s.token(s.url)), "--ui-addr", ui, "--ui-external-url", "http://"+ui)
}

// TestClusterStream lets users of a hub use the web UI of a cluster, at the replica that has its stream and at another
// one: each is who the cluster says, and may do what its RBAC says.
func TestClusterStream(t *testing.T) {
	s := newFleetSite(t)
	stop := s.joinWithoutInstallation()
	namespace := testenv.Namespace(t)
	gates := rbacv1.PolicyRule{APIGroups: []string{gatingv1.GroupVersion.Group}, Resources: []string{"gates"},
		Verbs: []string{"get", "list", "watch"}}
	approvals := rbacv1.PolicyRule{APIGroups: gates.APIGroups, Resources: []string{"gateapprovals"},
		Verbs: []string{"get", "list", "watch", "create"}}
	gate := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "release"}}
	gate.Spec.Approvals = &gatingv1.Approvals{Required: 1}
	if err := s.client.Create(t.Context(), gate); err != nil {
		t.Fatal(err)
	}
	object := "/api/v1/objects/Gate/" + namespace + "/release"

	stranger, token := s.newUser(namespace, "stranger")
	stranger.logIn(token)
	stranger.wants(http.MethodGet, object, "", http.StatusForbidden, "")
	stranger.wants(http.MethodPost, object+"/approve", "{}", http.StatusForbidden, "")
	viewer, token := s.newUser(namespace, "viewer", gates)
	viewer.replica = s.other
	viewer.logIn(token)
	viewer.wants(http.MethodGet, object, "", http.StatusOK, "release")
	viewer.wants(http.MethodPost, object+"/approve", "{}", http.StatusForbidden, viewer.name)
	approver, token := s.newUser(namespace, "approver", gates, approvals)
	approver.logIn(token)
	approver.wants(http.MethodGet, "/api/v1/gates", "", http.StatusOK, namespace+"/release")
	if _, answer, _ := stranger.do(http.MethodGet, "/api/v1/gates", ""); strings.Contains(answer, "release") {
		t.Errorf("a user without rights sees %s", answer)
	}
	approver.wants(http.MethodPost, object+"/approve", `{"reason":"tested"}`, http.StatusOK, "approve")
	made := &gatingv1.GateApprovalList{}
	if err := s.client.List(t.Context(), made, client.InNamespace(namespace)); err != nil || len(made.Items) != 1 ||
		made.Items[0].Spec.User != approver.name || made.Items[0].Spec.Comment != "tested" {
		t.Errorf("the approvals are %+v (%v)", made.Items, err)
	}

	other, _ := s.newUser(namespace, "other")
	other.wants(http.MethodPost, "/login/token", `{"token":"`+s.tokenOfHub()+`"}`, http.StatusUnauthorized, "")
	testenv.Eventually(t, "another replica knows the summary and the stream", func() error {
		c, err := s.as("edge-7", s.url).Get(t.Context(), "edge-7")
		if err == nil && (!c.IsLinked || c.Summary == nil || c.Summary.Kinds["Gate"] == nil) {
			err = fmt.Errorf("it has %+v", c)
		}
		return err
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	approver.wants(http.MethodGet, "/api/v1/me", "", http.StatusServiceUnavailable, "only its summary")
}

// tokenOfHub returns a token of the cluster of the hub.
func (s *fleetSite) tokenOfHub() string {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "reader"}}
	if err := errors.Join(s.hub.Create(s.Context(), account),
		s.hub.SubResource("token").Create(s.Context(), account, request)); err != nil {
		s.Fatal(err)
	}
	return request.Status.Token
}
