package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const onCallKey = "s3cr3t-of-the-on-call-team"

// channel is the server of a Provider. It validates and records messages.
type channel struct {
	*httptest.Server
	mu       sync.Mutex
	messages []string
}

// newChannel starts a channel. read returns the text of a valid request.
func newChannel(t *testing.T, read func(r *http.Request, body []byte) (string, error)) *channel {
	t.Helper()
	p := &channel{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method != http.MethodPost {
			err = fmt.Errorf("method %s", r.Method)
		}
		var message string
		if err == nil {
			message, err = read(r, body)
		}
		if err != nil {
			t.Errorf("%v: %s", err, body)
			http.Error(w, "invalid_payload", http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.messages = append(p.messages, message)
		fmt.Fprint(w, "ok")
	}))
	t.Cleanup(p.Close)
	return p
}

// receives waits for a message that contains all words.
func (p *channel) receives(t *testing.T, words ...string) {
	t.Helper()
	testenv.Eventually(t, "a message with "+strings.Join(words, ", "), func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, message := range p.messages {
			missing := false
			for _, w := range words {
				missing = missing || !strings.Contains(message, w)
			}
			if !missing {
				return nil
			}
		}
		return fmt.Errorf("messages: %q", p.messages)
	})
}

// never fails the test if a message contains any of the words.
func (p *channel) never(t *testing.T, words ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, message := range p.messages {
		for _, w := range words {
			if strings.Contains(message, w) {
				t.Errorf("unexpected message with %s: %s", w, message)
			}
		}
	}
}

// signed returns the event of a request of a generic-hmac Provider with a valid signature.
func signed(r *http.Request, body []byte) (string, error) {
	mac := hmac.New(sha256.New, []byte(onCallKey))
	mac.Write(body)
	if got := r.Header.Get("X-Signature"); got != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
		return "", fmt.Errorf("signature %q", got)
	}
	if got := r.Header.Get("Gotk-Component"); !strings.HasSuffix(got, "-controller") {
		return "", fmt.Errorf("component %q", got)
	}
	var e event.Event
	if err := json.Unmarshal(body, &e); err != nil {
		return "", err
	}
	if e.Severity != event.Error {
		return "", fmt.Errorf("event of severity %s", e.Severity)
	}
	return fmt.Sprintf("%s/%s/%s %s: %s %v", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name,
		e.Reason, e.Message, e.Metadata), nil
}

// posted returns the message of a request to an incoming webhook of Slack.
func posted(r *http.Request, body []byte) (string, error) {
	if r.URL.Path != "/services/T0/B0/x" || r.Header.Get("Content-Type") != "application/json" {
		return "", fmt.Errorf("request to %s with content type %s", r.URL.Path, r.Header.Get("Content-Type"))
	}
	var m struct {
		Text        string
		Attachments []struct {
			Color  string
			Blocks []json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return "", err
	}
	if m.Text == "" || len(m.Attachments) != 1 || len(m.Attachments[0].Blocks) == 0 {
		return "", fmt.Errorf("not a Slack message")
	}
	message := m.Text
	for _, b := range m.Attachments[0].Blocks {
		message += "\n" + string(b)
	}
	return message, nil
}

// cluster runs the built binary for all namespaces.
type cluster struct {
	*testing.T
	client client.Client
	git    *testenv.Git
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := testenv.Kubeconfig(t)
	if out, err := exec.Command(sluice, "install", "--crds-only", "--kubeconfig", kubeconfig).
		CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sluice, "controller", "--kubeconfig", kubeconfig, "--storage-path", t.TempDir(),
		"--storage-addr", "127.0.0.1:0", "--metrics-addr", "0",
		"--health-addr", "0", "--receiverAddr", "0", "--events-addr", "0", "--images-addr", "0", "--min-retry-delay",
		"50ms", "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have stopped already
		_ = cmd.Wait()
	})
	return &cluster{T: t, client: c, git: testenv.NewGit(t)}
}

func (c *cluster) create(objects ...client.Object) {
	c.Helper()
	for _, o := range objects {
		if err := c.client.Create(c.Context(), o); err != nil {
			c.Fatal(err)
		}
	}
}

// deploy declares an app in a namespace: a source, and a Kustomization that waits until the app is healthy.
func (c *cluster) deploy(namespace, name string, labels map[string]string) {
	c.Helper()
	second := meta.Duration{Duration: time.Second}
	c.create(
		&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: sourcev1.GitRepositorySpec{
				URL: c.git.URL + "/" + name, Interval: second, Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
			}},
		&kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Spec: kustomizev1.KustomizationSpec{
				Interval: meta.Duration{Duration: time.Minute}, Timeout: &meta.Duration{Duration: 3 * time.Minute},
				Prune: true, Wait: true, TargetNamespace: namespace,
				SourceRef: kustomizev1.SourceReference{Kind: sourcev1.GitRepositoryKind,
					NamespacedName: meta.NamespacedName{Name: name}},
			}},
	)
}

// alert declares a Provider with its Secret, and an Alert for it, in a namespace.
func (c *cluster) alert(namespace, name, kind string, secret map[string]string, spec notificationv1.AlertSpec) {
	c.Helper()
	at := metav1.ObjectMeta{Namespace: namespace, Name: name}
	spec.ProviderRef.Name = name
	c.create(
		&corev1.Secret{ObjectMeta: at, StringData: secret},
		&notificationv1.Provider{ObjectMeta: at, Spec: notificationv1.ProviderSpec{Type: kind,
			SecretRef: &meta.LocalObjectReference{Name: name}}},
		&notificationv1.Alert{ObjectMeta: at, Spec: spec},
	)
	testenv.Eventually(c, "alert "+name+" is Ready", func() error {
		var a notificationv1.Alert
		if err := c.client.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name},
			&a); err != nil {
			return err
		}
		for _, condition := range a.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == metav1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", a.Status.Conditions)
	})
}

// release commits a version of an app: a Deployment, whose Pods fail with the given failure of the playground.
func (c *cluster) release(name, version, failure string) string {
	c.Helper()
	deadline := 600
	if failure != healthy {
		deadline = 5
	}
	return c.git.Commit(name, map[string]string{"deployment.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  progressDeadlineSeconds: %[4]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {playground.sluice.dev/fail: %[3]q}}
    spec: {containers: [{name: app, image: "shop/%[1]s:%[2]s"}]}
`, name, version, failure, deadline)})
}

const (
	healthy = ""
	sick    = "not-ready"
)

// The on-call team gets all failures of the namespace prod, and nothing else.
func TestAlertOnFailuresInNamespace(t *testing.T) {
	c := newCluster(t)
	prod, staging, ops := testenv.Namespace(t), testenv.Namespace(t), testenv.Namespace(t)
	onCall := newChannel(t, signed)
	var sources []notificationv1.EventSource
	for _, kind := range []string{kustomizev1.KustomizationKind, sourcev1.GitRepositoryKind} {
		sources = append(sources, notificationv1.EventSource{Kind: kind, Name: notificationv1.Any, Namespace: prod})
	}
	c.alert(ops, "on-call", notificationv1.GenericHMACProvider,
		map[string]string{"address": onCall.URL, "token": onCallKey}, notificationv1.AlertSpec{
			EventSeverity: notificationv1.ErrorSeverity, EventSources: sources,
			EventMetadata: map[string]string{"cluster": "prod-1"},
		})
	c.release("shop", "1.0.0", healthy)
	c.git.Commit("broken", map[string]string{"app.yaml": "kind: ["})
	c.deploy(prod, "shop", nil)
	c.deploy(prod, "broken", nil)
	c.deploy(prod, "missing", nil) // the repository does not exist
	c.deploy(staging, "broken", nil)

	onCall.receives(t, "Kustomization/"+prod+"/broken BuildFailed", "app.yaml", "cluster:prod-1")
	onCall.receives(t, "GitRepository/"+prod+"/missing GitOperationFailed")
	commit := c.release("shop", "2.0.0", sick)
	onCall.receives(t, "Kustomization/"+prod+"/shop HealthCheckFailed", "Deployment", commit)
	onCall.never(t, staging, "ReconciliationSucceeded")
}

// The frontend team is notified of new versions and their health, in any namespace.
func TestAlertOnVersionsByLabel(t *testing.T) {
	c := newCluster(t)
	one, two, team := testenv.Namespace(t), testenv.Namespace(t), testenv.Namespace(t)
	slack := newChannel(t, posted)
	c.alert(team, "frontend", notificationv1.SlackProvider,
		map[string]string{"address": slack.URL + "/services/T0/B0/x"}, notificationv1.AlertSpec{
			EventSources: []notificationv1.EventSource{{
				Kind: kustomizev1.KustomizationKind, Name: notificationv1.Any, Namespace: notificationv1.Any,
				MatchLabels: map[string]string{"team": team},
			}},
			EventMetadata: map[string]string{"summary": "the shop's frontend"},
		})
	c.release("web", "1.0.0", healthy)
	c.release("cart", "1.0.0", healthy)
	c.release("stock", "1.0.0", healthy)
	ours := map[string]string{"team": team}
	c.deploy(one, "web", ours)
	c.deploy(two, "cart", ours)
	c.deploy(two, "stock", map[string]string{"team": "backend"})
	slack.receives(t, "kustomization/web."+one, "ReconciliationSucceeded", "the shop's frontend")
	slack.receives(t, "kustomization/cart."+two, "ReconciliationSucceeded")

	second := c.release("web", "2.0.0", healthy)
	slack.receives(t, "kustomization/web."+one, "ReconciliationSucceeded", second[:8])
	third := c.release("cart", "2.0.0", sick)
	slack.receives(t, "kustomization/cart."+two, "HealthCheckFailed", third[:8])
	slack.never(t, "kustomization/stock")
}
