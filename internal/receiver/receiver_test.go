package receiver_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

const webhookToken = "s3cr3t-of-the-webhook"

// hooks is a system that accepts webhooks.
type hooks struct {
	*system.System
	url string
}

func newHooks(t *testing.T, configure ...func(*options.Options)) *hooks {
	t.Helper()
	address := testenv.FreeAddress(t)
	s := system.New(t, append(configure, func(o *options.Options) { o.ReceiverAddr = address })...)
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "webhook-token"},
		StringData: map[string]string{"token": webhookToken}})
	return &hooks{s, "http://" + address}
}

// receiver creates a Receiver and waits until its Ready condition has a reason.
func (h *hooks) receiver(name, kind string, change func(*notificationv1.ReceiverSpec),
	reason string) *notificationv1.Receiver {
	h.Helper()
	r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: name},
		Spec: notificationv1.ReceiverSpec{
			Type: kind, SecretRef: &meta.LocalObjectReference{Name: "webhook-token"},
		}}
	change(&r.Spec)
	h.Create(r)
	testenv.Eventually(h, name+" is "+reason, func() error {
		if err := h.Get(r, name); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(r.Status.Conditions, "Ready"); c == nil || c.Reason != reason {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	return r
}

// post sends a POST request and returns status and body of the response.
func (h *hooks) post(path, body string, headers ...string) (int, string) {
	h.Helper()
	return h.send(http.MethodPost, path, body, headers...)
}

func (h *hooks) send(method, path, body string, headers ...string) (int, string) {
	h.Helper()
	var code int
	var response []byte
	testenv.Eventually(h, "a response", func() error { // the path is in the status before it is in the cache
		req, err := http.NewRequestWithContext(h.Context(), method, h.url+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		code = resp.StatusCode
		response, err = io.ReadAll(resp.Body)
		if err == nil && code == http.StatusNotFound && path != "/hook/0" {
			return fmt.Errorf("not found: %s", response)
		}
		return err
	})
	if bytes.Contains(response, []byte(webhookToken)) {
		h.Errorf("the response contains the token: %s", response)
	}
	return code, string(response)
}

func signature(body string) string {
	mac := hmac.New(sha256.New, []byte(webhookToken))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// requested returns the names of the GitRepositories with a reconcile request.
func (h *hooks) requested() string {
	h.Helper()
	var all sourcev1.GitRepositoryList
	if err := h.Client.List(h.Context(), &all); err != nil {
		h.Fatal(err)
	}
	var names []string
	for _, g := range all.Items {
		if g.Namespace == h.Namespace && g.Annotations[meta.ReconcileRequestAnnotation] != "" {
			names = append(names, g.Name)
		}
	}
	return strings.Join(names, " ")
}

func withLabels(labels map[string]string) func(*sourcev1.GitRepository) {
	return func(g *sourcev1.GitRepository) { g.Labels = labels }
}

func revisionOf(g *sourcev1.GitRepository) string {
	if g.Status.Artifact == nil {
		return ""
	}
	return g.Status.Artifact.Revision
}

const pushed = `{"ref":"refs/heads/main","repository":{"full_name":"shop/app","name":"app"}}`

func TestGitHubPushReconcilesItsRepository(t *testing.T) {
	h := newHooks(t)
	first := h.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	h.GitRepository("app")
	h.GitRepository("other")
	r := h.receiver("github", "github", func(s *notificationv1.ReceiverSpec) {
		s.Events = []string{"ping", "push"}
		s.Resources = []notificationv1.ReceiverResource{{APIVersion: "source.toolkit.fluxcd.io/v1beta2",
			Kind: "GitRepository", Name: "app"}}
	}, "Succeeded")
	if want := hook.Path(webhookToken, "github", h.Namespace); r.Status.WebhookPath != want || r.Status.URL != want {
		t.Errorf("path is %q, want %q", r.Status.WebhookPath, want)
	}
	fetched := func(revision string) {
		t.Helper()
		testenv.Eventually(t, "fetched "+revision, func() error {
			g := &sourcev1.GitRepository{}
			if err := h.Get(g, "app"); err != nil {
				return err
			}
			if !strings.HasSuffix(revisionOf(g), revision) {
				return fmt.Errorf("%+v", g.Status)
			}
			return nil
		})
	}
	fetched(first)

	second := h.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	postRefused(t, h, r)
	if got := h.requested(); got != "" {
		t.Fatalf("reconciled: %s", got)
	}

	if code, response := h.post(r.Status.WebhookPath, pushed, "X-GitHub-Event", "push", "X-Hub-Signature-256",
		signature(pushed)); code != http.StatusOK {
		t.Fatalf("%d %s", code, response)
	}
	if got := h.requested(); got != "app" {
		t.Errorf("reconciled: %q, want app", got)
	}
	fetched(second)
}

// postRefused posts requests that the Receiver refuses or ignores.
func postRefused(t *testing.T, h *hooks, r *notificationv1.Receiver) {
	t.Helper()
	for what, headers := range map[string][]string{
		"unsigned": {"X-GitHub-Event", "push"},
		"signed by another key": {"X-GitHub-Event", "push", "X-Hub-Signature-256", "sha256=" +
			strings.Repeat("00", 32)},
		"of another body": {"X-GitHub-Event", "push", "X-Hub-Signature-256", signature(pushed + " ")},
	} {
		if code, response := h.post(r.Status.WebhookPath, pushed, headers...); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", what, code, response)
		}
	}
	if code, response := h.post(r.Status.WebhookPath, pushed, "X-GitHub-Event", "star", "X-Hub-Signature-256",
		signature(pushed)); code != http.StatusOK || !strings.Contains(response, "spec.events") {
		t.Errorf("event that the Receiver does not select: %d %s", code, response)
	}
	if code, _ := h.post("/hook/0", pushed); code != http.StatusNotFound {
		t.Errorf("unknown path: %d", code)
	}
	if code, response := h.post(r.Status.WebhookPath,
		strings.Repeat("x", hook.MaxBody+1)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("large body: %d %s", code, response)
	}
}

// Some clients of generic Receivers can only send GET requests. Other types accept POST only.
func TestGenericWebhookByAnyMethod(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app")
	resources := []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "app"}}
	for name, c := range map[string]struct {
		kind, action string
		want         int
	}{
		"signed": {kind: "generic-hmac", want: http.StatusMethodNotAllowed},
		"opener": {kind: "generic", action: notificationv1.OpenAction, want: http.StatusMethodNotAllowed},
		"plain":  {kind: "generic", want: http.StatusOK},
	} {
		r := h.receiver(name, c.kind, func(s *notificationv1.ReceiverSpec) {
			s.Resources, s.Action = resources,
				c.action
		}, "Succeeded")
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			if code, response := h.send(method, r.Status.WebhookPath, ""); code != c.want {
				t.Errorf("%s of %s: %d %s", method, name, code, response)
			}
		}
	}
	if got := h.requested(); got != "app" {
		t.Errorf("reconciled: %q, want app", got)
	}
}

func TestReceiverSelects(t *testing.T) {
	h := newHooks(t)
	for name, labels := range map[string]map[string]string{"app": {"team": "shop", "any": "yes"},
		"lib": {"team": "shop", "any": "yes"}, "other": {"team": "x", "any": "yes"}} {
		h.GitRepository(name, withLabels(labels))
	}
	for name, c := range map[string]struct {
		filter, own string
		labels      map[string]string
		code        int
		want        string
	}{
		"all":    {code: 200, want: "app lib other"},
		"labels": {labels: map[string]string{"team": "shop"}, code: 200, want: "app lib"},
		"filter": {filter: "res.metadata.name == req.repository.name", code: 200, want: "app"},
		"both": {filter: "res.metadata.labels.team == 'shop'", own: "res.metadata.name != 'app'", code: 200,
			want: "lib"},
		"fails":   {filter: "req.nothing.at.all == 1", code: 422},
		"nothing": {filter: "false", code: 200},
		"endless": {filter: "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, " +
			"[1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, " +
			"[1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))", code: 422},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hooks{h.For(t), h.url}
			if c.labels == nil {
				c.labels = map[string]string{"any": "yes"}
			}
			r := h.receiver(name, "generic", func(s *notificationv1.ReceiverSpec) {
				s.ResourceFilter = c.filter
				s.Resources = []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "*",
					MatchLabels: c.labels, Filter: c.own}}
			}, "Succeeded")
			before := time.Now()
			if code, response := h.post(r.Status.WebhookPath, pushed); code != c.code {
				t.Fatalf("%d %s", code, response)
			}
			var all sourcev1.GitRepositoryList
			if err := h.Client.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, g := range all.Items {
				at, err := time.Parse(time.RFC3339Nano, g.Annotations[meta.ReconcileRequestAnnotation])
				if g.Namespace == h.Namespace && err == nil && !at.Before(before) {
					names = append(names, g.Name)
				}
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("reconciled: %q, want %q", got, c.want)
			}
		})
	}
}

func TestReceiverOfOneName(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app", withLabels(map[string]string{"team": "shop"}))
	other := map[string]string{"team": "other"}
	for name, code := range map[string]int{"app": http.StatusOK, "missing": http.StatusInternalServerError} {
		r := h.receiver(name, "generic", func(s *notificationv1.ReceiverSpec) { // the labels do not count with a name
			s.Resources = []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: name, MatchLabels: other}}
		}, "Succeeded")
		if got, response := h.post(r.Status.WebhookPath, pushed); got != code {
			t.Errorf("%s: %d %s", name, got, response)
		}
		h.Update(r, name, func() { r.Spec.Suspend = true })
		testenv.Eventually(t, "the suspended receiver refuses", func() error {
			if got, response := h.post(r.Status.WebhookPath, pushed); got != http.StatusServiceUnavailable {
				return fmt.Errorf("%d %s", got, response)
			}
			return nil
		})
	}
}

func TestWebhookOpensAndClosesGate(t *testing.T) {
	h := newHooks(t)
	h.Gate("release")
	h.Gate("bystander")
	h.AnnotateGate("release", map[string]any{gatingv1.OpenPrefix + gatingv1.RevisionSuffix: "main@sha1:0000"})
	for _, action := range []string{notificationv1.OpenAction, notificationv1.CloseAction} {
		h.receiver(action, "generic", func(s *notificationv1.ReceiverSpec) {
			s.Action = action
			s.Resources = []notificationv1.ReceiverResource{{Kind: "Gate", Name: "release"}}
		}, "Succeeded")
	}
	for _, step := range []struct {
		action string
		status metav1.ConditionStatus
	}{{action: notificationv1.OpenAction, status: metav1.ConditionTrue},
		{action: notificationv1.CloseAction, status: metav1.ConditionFalse},
		{action: notificationv1.OpenAction, status: metav1.ConditionTrue}} {
		if code, response := h.post(hook.Path(webhookToken, step.action, h.Namespace), ""); code != http.StatusOK {
			t.Fatalf("%s: %d %s", step.action, code, response)
		}
		testenv.Eventually(t, "the gate handles "+step.action, func() error {
			g := &gatingv1.Gate{}
			if err := h.Get(g, "release"); err != nil {
				return err
			}
			if !apimeta.IsStatusConditionPresentAndEqual(g.Status.Conditions, gatingv1.OpenedCondition, step.status) ||
				len(g.Status.ApprovedRevisions) > 0 {
				return fmt.Errorf("%+v", g.Status)
			}
			return nil
		})
	}
	other := &gatingv1.Gate{}
	if err := h.Get(other, "bystander"); err != nil || other.Annotations[gatingv1.OpenRequestedAtAnnotation] != "" {
		t.Errorf("requests to the other gate: %v (%v)", other.Requests(), err)
	}
}

func TestInvalidReceivers(t *testing.T) {
	h := newHooks(t, func(o *options.Options) { o.NoCrossNamespaceRefs = true })
	app := notificationv1.ReceiverResource{Kind: "GitRepository", Name: "app"}
	for name, c := range map[string]struct {
		change func(*notificationv1.ReceiverSpec)
		reason string
	}{
		"no-secret": {change: func(s *notificationv1.ReceiverSpec) { s.SecretRef.Name = "none" },
			reason: "TokenNotFound"},
		"gcr": {change: func(s *notificationv1.ReceiverSpec) { s.Type = "gcr" }, reason: "TokenNotFound"},
		"far": {change: func(s *notificationv1.ReceiverSpec) { s.Resources[0].Namespace = "kube-system" },
			reason: "AccessDenied"},
		"filter": {change: func(s *notificationv1.ReceiverSpec) { s.ResourceFilter = "1 +" },
			reason: "InvalidCELExpression"},
		"number": {change: func(s *notificationv1.ReceiverSpec) { s.Resources[0].Filter = "1 + 1" },
			reason: "InvalidCELExpression"},
		"gate": {change: func(s *notificationv1.ReceiverSpec) { s.Resources[0].Kind = "Gate" }, reason: "Failed"},
		"group": {change: func(s *notificationv1.ReceiverSpec) { s.Resources[0].APIVersion = "apps/v1" },
			reason: "Failed"},
		"any": {change: func(s *notificationv1.ReceiverSpec) { s.Resources[0].Name = "*" }, reason: "Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hooks{h.For(t), h.url}
			r := h.receiver(name, "generic", func(s *notificationv1.ReceiverSpec) {
				s.Resources = []notificationv1.ReceiverResource{app}
				c.change(s)
			}, c.reason)
			if r.Status.WebhookPath != "" {
				t.Errorf("it has the path %s", r.Status.WebhookPath)
			}
		})
	}
}
