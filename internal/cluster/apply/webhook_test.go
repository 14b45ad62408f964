package apply

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// webhook starts an admission webhook for labeled ConfigMaps in the namespace of the test. The timeout is in seconds.
func (f *fixture) webhook(handle http.HandlerFunc, timeout int) *httptest.Server {
	f.t.Helper()
	server := httptest.NewTLSServer(handle)
	f.t.Cleanup(server.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw}))
	admin := f.another("webhooks")
	admin.apply(fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: check.%s.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: %d
  clientConfig: {url: %s, caBundle: %s}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  objectSelector: {matchLabels: {checked: "yes"}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]
`, f.ns, f.ns, timeout, server.URL, ca, f.ns))
	f.t.Cleanup(admin.pruneAll)
	return server
}

// review returns a handler that allows or denies all objects.
func review(allowed bool, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed,
			Result: &metav1.Status{Message: message}}
		_ = json.NewEncoder(w).Encode(review)
	}
}

// block does not respond before the client gives up. The server only detects that after the body is read.
func block(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

var webhookCases = map[string]struct {
	handle http.HandlerFunc
	closed bool     // the server does not listen
	want   []string // in the error; nil if the object is allowed
}{
	"denies": {handle: review(false, "no owner is named"),
		want: []string{"denied the request: no owner is named", "An admission rule of the cluster rejects"}},
	"times out": {handle: block,
		want: []string{"failed calling webhook", "deadline exceeded", "did not respond"}},
	"fails": {handle: func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "broken", http.StatusInternalServerError)
	}, want: []string{"failed calling webhook", "did not respond"}},
	"is not served": {closed: true, want: []string{"failed calling webhook", "connection refused",
		"did not respond"}},
	"allows": {handle: review(true, "")},
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	for name, c := range webhookCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			timeout := 30 // the maximum
			if name == "times out" {
				timeout = 1
			}
			server := f.webhook(c.handle, timeout)
			if c.closed {
				server.Close()
			}
			checked := strings.Replace(f.cm("checked"), "name: checked,", `name: checked, labels: {checked: "yes"},`, 1)
			testenv.Eventually(t, "webhook to take effect", func() error {
				err := patched(types.ApplyPatchType, "probe",
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe","labels":{"checked":"yes"}}}`)(
					t.Context(), f.client(configMaps, f.ns), "probe")
				if (err == nil) != (c.want == nil) {
					return fmt.Errorf("probe: %w", err)
				}
				return nil
			})
			var result *Result
			var err error
			testenv.Eventually(t, "the webhook answers in time", func() error {
				result, err = f.try(f.request(f.cm("other") + "---\n" + checked))
				if strings.Contains(fmt.Sprint(err), "deadline exceeded") && name != "times out" {
					return err
				}
				return nil
			})
			if c.want == nil {
				if err != nil || !f.has(configMaps, f.ns, "checked") {
					t.Fatal(err)
				}
				assertLines(t, "again", f.apply(f.cm("other")+"---\n"+checked),
					[]string{"ConfigMap/checked unchanged", "ConfigMap/other unchanged"})
				return
			}
			if err == nil {
				t.Fatalf("applied: %v", result.Changes)
			}
			for _, s := range append(c.want, "ConfigMap/"+f.ns+"/checked", "check."+f.ns+".example.com") {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not contain %q", err, s)
				}
			}
			if f.has(configMaps, f.ns, "other") {
				t.Error("the other object was created although one was refused")
			}
		})
	}
}
