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

// webhook is asked about every ConfigMap of the test's namespace that is labelled for it, and waited for so
// many seconds.
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

// answer answers as an admission webhook does.
func answer(allowed bool, message string) http.HandlerFunc {
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

// silent does not answer before it is given up on. A server notices that once the request is read.
func silent(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestWebhooks(t *testing.T) {
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		gone   bool // nothing listens
		says   []string
	}{
		"that deny": {answer(false, "no owner is named"), false,
			[]string{"denied the request: no owner is named", "change it as they ask"}},
		"that time out": {silent, false,
			[]string{"failed calling webhook", "deadline exceeded", "does not answer"}},
		"that answer nonsense": {func(w http.ResponseWriter,
			_ *http.Request) {
			http.Error(w, "broken", http.StatusInternalServerError)
		}, false, []string{"failed calling webhook", "does not answer"}},
		"that nobody serves": {nil, true, []string{"failed calling webhook", "connection refused",
			"does not answer"}},
		"that allow": {answer(true, ""), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			timeout := 30 // the longest that there is
			if name == "that time out" {
				timeout = 1
			}
			server := f.webhook(c.handle, timeout)
			if c.gone {
				server.Close()
			}
			checked := strings.Replace(f.cm("checked"), "name: checked,", `name: checked, labels: {checked: "yes"},`, 1)
			testenv.Eventually(t, "webhook to be known to the API server", func() error {
				err := patched(types.ApplyPatchType, "probe",
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe","labels":{"checked":"yes"}}}`)(
					t.Context(), f.client(configMaps, f.ns), "probe")
				if (err == nil) != (c.says == nil) {
					return fmt.Errorf("asked: %w", err)
				}
				return nil
			})
			result, err := f.try(f.request(f.cm("other") + "---\n" + checked))
			if c.says == nil {
				if err != nil || !f.has(configMaps, f.ns, "checked") {
					t.Fatal(err)
				}
				same(t, "again", f.apply(f.cm("other")+"---\n"+checked),
					[]string{"ConfigMap/checked unchanged", "ConfigMap/other unchanged"})
				return
			}
			if err == nil {
				t.Fatalf("applied: %v", result.Changes)
			}
			for _, s := range append(c.says, "ConfigMap/"+f.ns+"/checked", "check."+f.ns+".example.com") {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if f.has(configMaps, f.ns, "other") {
				t.Error("the other object was created although one is refused")
			}
		})
	}
}
