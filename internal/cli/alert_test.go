package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
)

// eventServer stores the last event that it receives, and responds with status and body.
type eventServer struct {
	url    string
	event  event.Event
	status int
	body   string
}

func newEventServer(t *testing.T) *eventServer {
	t.Helper()
	e := &eventServer{status: http.StatusOK}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(content, &e.event) != nil {
			t.Errorf("the request is not an event: %s", content)
		}
		if e.status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "90")
		}
		w.WriteHeader(e.status)
		_, _ = io.WriteString(w, e.body+r.URL.Path)
	}))
	t.Cleanup(s.Close)
	e.url = s.URL
	return e
}

// createAlerts creates the Provider hook and the Alerts ops, which uses it, and lost, whose Provider does not exist.
func createAlerts(t *testing.T, c client.Client, namespace, address string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "address"},
		StringData: map[string]string{"address": address}}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"alert-provider hook --type generic --secret-ref address",
		"alert ops --provider-ref hook --event-source Kustomization/*.* --event-severity error --event-metadata " +
			"summary=production",
		"alert lost --provider-ref none --event-source Kustomization/app",
	} {
		made := run(t, strings.Fields("create "+line+" --export -n "+namespace)...).wants(t, exitOK).out
		objects, err := manifest.Decode([]byte(made))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), objects[0]); err != nil {
			t.Fatal(err)
		}
	}
	return secret
}

// TestAlertTestShowsResponse sends test events to an HTTP server.
func TestAlertTestShowsResponse(t *testing.T) {
	c, namespace := withDefinitions(t)
	server := newEventServer(t)
	createAlerts(t, c, namespace, server.url+"/s3cretPath")
	at(t, "alert", "test", "ops", "-n", namespace).wants(t, exitOK, "/hook' (type generic) sent the event")
	if o := server.event.InvolvedObject; o.Kind != "Kustomization" || o.Name != "example" ||
		o.Namespace != namespace || server.event.Severity != event.Error ||
		server.event.Metadata[event.Summary] != "production" ||
		!strings.Contains(server.event.Message, "This is a test of Alert '"+namespace+"/ops'") {
		t.Errorf("the event is %+v", server.event)
	}
	at(t, "alert", "test", "ops", "-n", namespace, "--severity", "info", "--metadata",
		"revision=main@sha1:1,change_request=42").wants(t, exitOK)
	if server.event.Severity != event.Info || server.event.Metadata[event.ChangeRequest] != "42" {
		t.Errorf("the event is %+v", server.event)
	}

	for _, failure := range []struct {
		status int
		body   string
		want   []string
	}{
		{
			status: http.StatusUnauthorized,
			body:   "who are you: ",
			want:   []string{"returned Unauthorized (401)", "who are you", "Check the credentials in the Secret"},
		},
		{
			status: http.StatusTooManyRequests,
			want:   []string{"retry after 1m30s", "(429)"},
		},
		{status: http.StatusBadGateway, want: []string{"(502)", "The test is not retried: run it again"}},
	} {
		server.status, server.body = failure.status, failure.body
		r := at(t, "alert", "test", "ops", "-n", namespace).wants(t, exitFailed, failure.want...)
		if strings.Contains(r.out+r.err, "s3cretPath") {
			t.Errorf("the address is printed: %s", r.err)
		}
	}
}

func TestAlertTestOfSuspendedAndMissingObjects(t *testing.T) {
	c, namespace := withDefinitions(t)
	server := newEventServer(t)
	secret := createAlerts(t, c, namespace, server.url)
	provider := &notificationv1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hook"}}
	at(t, "suspend", "alert-provider", "hook", "-n", namespace).wants(t, exitOK)
	at(t, "alert", "test", "ops", "-n", namespace).
		wants(t, exitOK, "/hook' is suspended: it sends only test events", "sent the event")
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	at(t, "alert", "test", "ops", "-n", namespace).
		wants(t, exitFailed, "Secret '"+namespace+"/address' not found", "Create it")
	if err := c.Delete(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	at(t, "alert", "test", "ops", "-n", namespace).
		wants(t, exitFailed, "Provider '"+namespace+"/hook' not found", "sluice get alert-providers")
	at(t, "alert", "test", "lost", "-n", namespace).wants(t, exitFailed, "/none' not found")
	at(t, "alert", "test", "none", "-n", namespace).wants(t, exitFailed, "Alert '"+namespace+"/none' not found")
	at(t, "alert", "test", "ops", "--severity", "fatal").wants(t, exitUsage, "choose from info, error")
}
