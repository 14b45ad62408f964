package inputprovider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// providers adds the helpers of this package.
type providers struct{ *system.System }

func newProviders(t *testing.T, configure ...func(*options.Options)) *providers {
	t.Helper()
	return &providers{system.New(t, append([]func(*options.Options){func(o *options.Options) {
		o.Controllers = []string{options.ResourceSetController}
	}}, configure...)...)}
}

// provider creates a provider from the YAML of its spec.
func (s *providers) provider(name, spec string, change ...func(*controlplanev1.ResourceSetInputProvider)) {
	s.Helper()
	obj := &controlplanev1.ResourceSetInputProvider{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &obj.Spec); err != nil {
		s.Fatal(err)
	}
	for _, c := range change {
		c(obj)
	}
	s.Create(obj)
}

// exports waits until a provider is ready and its input sets are those of a YAML text.
func (s *providers) exports(name, want string) *controlplanev1.ResourceSetInputProvider {
	s.Helper()
	wanted := normalized(s.T, want)
	var obj controlplanev1.ResourceSetInputProvider
	testenv.Eventually(s, name+" exports its inputs", func() error {
		if err := s.Get(&obj, name); err != nil {
			return err
		}
		ready := apimeta.FindStatusCondition(obj.Status.Conditions, "Ready")
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != "ReconciliationSucceeded" ||
			obj.Status.ObservedGeneration != obj.Generation {
			return fmt.Errorf("not ready: %+v", ready)
		}
		text, err := yaml.Marshal(obj.Status.ExportedInputs)
		if err != nil {
			return err
		}
		if got := normalized(s.T, string(text)); got != wanted {
			return fmt.Errorf("exports\n%s, want\n%s", got, wanted)
		}
		return nil
	})
	return &obj
}

// normalized returns a YAML list in canonical form.
func normalized(t *testing.T, text string) string {
	t.Helper()
	list := []map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// host is a stub of a git host or a service. Its answers can be changed.
type host struct {
	URL string

	mu       sync.Mutex
	answers  map[string]string // by path
	failure  func(http.ResponseWriter)
	login    string // required Authorization header
	requests []string
}

func newHost(t *testing.T, login string) *host {
	t.Helper()
	h := &host{answers: map[string]string{}, login: login}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.URL.Path)
	if h.failure != nil {
		h.failure(w)
		return
	}
	answer, ok := h.answers[r.URL.Path]
	switch {
	case r.Header.Get("Authorization") != h.login:
		w.WriteHeader(http.StatusUnauthorized)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = w.Write([]byte(answer))
	}
}

// answer sets the answer of a path.
func (h *host) answer(path, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[path] = fmt.Sprintf(format, args...)
}

// fail sets what is answered to all requests; nil ends that.
func (h *host) fail(failure func(http.ResponseWriter)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = failure
}

// sent returns how many requests the host got.
func (h *host) sent() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.requests)
}

// commitOf returns a commit that consists of one digit.
func commitOf(digit string) string { return strings.Repeat(digit, 40) }

// text returns a text as a value of an input.
func text(s string) apiextensionsv1.JSON { return apiextensionsv1.JSON{Raw: []byte(`"` + s + `"`)} }
