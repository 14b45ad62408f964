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

	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/cli/manifest"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// TestAlertTestShowsResponse sends test events to an HTTP server.
func TestAlertTestShowsResponse(t *testing.T) {
	c, namespace := withDefinitions(t)
	var got event.Event
	status, body := http.StatusOK, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(content, &got) != nil {
			t.Errorf("the request is not an event: %s", content)
		}
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "90")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body+r.URL.Path)
	}))
	defer s.Close()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "address"},
		StringData: map[string]string{"address": s.URL + "/s3cretPath"}}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	create := func(line string) {
		t.Helper()
		made := run(t, strings.Fields("create "+line+" --export -n "+namespace)...).wants(t, exitOK).out
		objects, err := manifest.Decode([]byte(made))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), objects[0]); err != nil {
			t.Fatal(err)
		}
	}
	create("alert-provider hook --type generic --secret-ref address")
	create("alert ops --provider-ref hook --event-source Kustomization/*.* --event-severity error --event-metadata " +
		"summary=production")
	create("alert lost --provider-ref none --event-source Kustomization/app")

	at(t, "alert", "test", "ops", "-n", namespace).wants(t, exitOK, "/hook' (type generic) sent the event")
	if o := got.InvolvedObject; o.Kind != "Kustomization" || o.Name != "example" || o.Namespace != namespace ||
		got.Severity != event.Error ||
		got.Metadata[event.Summary] != "production" ||
		!strings.Contains(got.Message, "This is a test of Alert '"+namespace+"/ops'") {
		t.Errorf("the event is %+v", got)
	}
	at(t, "alert", "test", "ops", "-n", namespace, "--severity", "info", "--metadata",
		"revision=main@sha1:1,change_request=42").wants(t, exitOK)
	if got.Severity != event.Info || got.Metadata[event.ChangeRequest] != "42" {
		t.Errorf("the event is %+v", got)
	}

	for _, failure := range []struct {
		status int
		body   string
		want   []string
	}{
		{
			status: http.StatusUnauthorized,
			body:   "who are you: ",
			want:   []string{"returned Unauthorized (401)", "who are you", "Renew the credentials"},
		},
		{
			status: http.StatusTooManyRequests,
			want:   []string{"retry after 1m30s", "(429)"},
		},
		{status: http.StatusBadGateway, want: []string{"(502)", "will be retried"}},
	} {
		status, body = failure.status, failure.body
		r := at(t, "alert", "test", "ops", "-n", namespace).wants(t, exitFailed, failure.want...)
		if strings.Contains(r.out+r.err, "s3cretPath") {
			t.Errorf("the address is printed: %s", r.err)
		}
	}
	status, body = http.StatusOK, ""

	provider := &v1beta3.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hook"}}
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
