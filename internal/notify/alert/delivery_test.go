package alert_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// inbox is an HTTP server that receives events.
type inbox struct {
	*httptest.Server
	mu     sync.Mutex
	events []event.Event
	raw    []string
	down   bool
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	in := &inbox{}
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		var raw json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
			t.Error(err)
		}
		e, err := event.Parse(raw)
		if err != nil {
			t.Error(err)
		}
		if !slices.Contains(in.raw, string(raw)) { // it is sent again if the answer comes late
			in.events, in.raw = append(in.events, e), append(in.raw, string(raw))
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(in.Close)
	return in
}

// find returns the first event of an object with a reason, and the number of such events.
func (in *inbox) find(kind, name, reason string) (found event.Event, raw string, n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, e := range in.events {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason {
			if n++; n == 1 {
				found, raw = e, in.raw[i]
			}
		}
	}
	return found, raw, n
}

// turn makes the server fail or work.
func (in *inbox) turn(down bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.down = down
}

// A process without notification-controller posts its events to another one, and stores them until that accepts them.
func TestEventsAreForwarded(t *testing.T) {
	t.Parallel()
	in := newInbox(t)
	in.turn(true)
	s := newHarness(t, func(o *options.Options) {
		o.Controllers = []string{options.SourceController, options.KustomizeController}
		o.EventsAddr = in.URL
	})
	commit := s.Git.Commit("app", map[string]string{"app/config.yaml": system.ConfigMap("sent", "x")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "./app", func(k *kustomizev1.Kustomization) {
		k.Annotations = map[string]string{event.AnnotationGroup + "/env": "prod"}
	})
	s.Ready("app", commit)
	s.Stop()
	waiting, err := filepath.Glob(filepath.Join(s.Storage, "events", "*", "*", "*", "*"))
	if err != nil || len(waiting) == 0 {
		t.Fatalf("undelivered events are not stored: %v, %v", waiting, err)
	}
	in.turn(false)
	s.Start()
	testenv.Eventually(t, "the events are posted", func() error {
		for want, events := range map[[3]string]int{{"GitRepository", "app", "NewArtifact"}: 1,
			{"Kustomization", "app", "ReconciliationSucceeded"}: 2} { // applied, and finished
			if _, _, n := in.find(want[0], want[1], want[2]); n < events {
				return errNotYet(want)
			}
		}
		return nil
	})
	e, raw, n := in.find("Kustomization", "app", "ReconciliationSucceeded")
	if n != 2 || e.Severity != event.Info || e.ReportingController != "kustomize-controller" ||
		e.ReportingInstance == "" || e.Timestamp.IsZero() || e.InvolvedObject.UID == "" {
		t.Errorf("%d events: %+v", n, e)
	}
	for key, want := range map[string]string{
		event.Revision: "main@sha1:", event.CommitAuthor: "<", event.CommitMessage: "", event.AnnotationGroup +
			"/env": "prod",
	} {
		if got, ok := e.Metadata[key]; !ok || !strings.Contains(got, want) {
			t.Errorf("metadata %s is %q", key, got)
		}
	}
	if !strings.Contains(raw, `"kustomize.toolkit.fluxcd.io/revision":"main@sha1:`) {
		t.Errorf("posted event: %s", raw)
	}
	if _, err := os.Stat(filepath.Join(s.Storage, "events", "intake")); err != nil {
		t.Error(err)
	}
}

type errNotYet [3]string

func (e errNotYet) Error() string { return strings.Join(e[:], " ") + ": no event yet" }

// Events of this process and of others reach the Providers of Alerts, also after an outage.
// delete deletes an object of the namespace.
func (s *harness) delete(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	if err := s.Client.Delete(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// eventIsAccepted posts an event until it is accepted: the endpoint listens once the process leads.
func eventIsAccepted(t *testing.T, address, token, body string) {
	t.Helper()
	testenv.Eventually(t, "an event is posted", func() error {
		resp, err := postEvent(t, address, token, body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("the response is %s", resp.Status)
		}
		return nil
	})
}

func TestEventDelivery(t *testing.T) {
	t.Parallel()
	in, address := newInbox(t), testenv.FreeAddress(t)
	s := newHarness(t, func(o *options.Options) { o.EventsAddr = address })
	token := s.ServiceAccountToken("flagger")
	s.GrantAll("flagger")
	post := func(name string) {
		t.Helper()
		body := fmt.Sprintf(`{"involvedObject":{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization",
			"namespace":%q,"name":%q},"severity":"info","reason":"Posted"}`,
			s.Namespace, name)
		eventIsAccepted(t, address, token, body)
	}
	arrives := func(name, reason string) {
		t.Helper()
		testenv.Eventually(t, "the event of "+name+" arrives", func() error {
			if _, _, n := in.find("Kustomization", name, reason); n == 0 {
				return errNotYet{name, reason}
			}
			return nil
		})
	}
	listen := func(name string) {
		t.Helper()
		s.provider(name, in.URL)
		s.alert(name, name)
		s.known(providerNamed(name), alertNamed(name))
	}
	listen("team")
	s.Git.Commit("app", map[string]string{"app/config.yaml": system.ConfigMap("alerted", "x")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "./app")
	arrives("app", "ReconciliationSucceeded")
	post("theirs")
	arrives("theirs", "Posted")
	if _, _, n := in.find("GitRepository", "app", "NewArtifact"); n != 0 {
		t.Error("got an event that the Alert does not select")
	}

	in.turn(true)
	post("waiting")
	s.NotReady(&notificationv1.Provider{}, "team", "SendFailed", "503")
	s.Stop()
	in.turn(false)
	s.Start()
	arrives("waiting", "Posted")
	s.known(providerNamed("team"))

	in.turn(true)
	post("dropped")
	s.NotReady(&notificationv1.Provider{}, "team", "SendFailed", "503")
	s.delete(&notificationv1.Provider{}, "team")
	s.Gone(&notificationv1.Provider{}, "team")
	in.turn(false)
	listen("other")
	post("last")
	arrives("last", "Posted")
	if _, _, n := in.find("Kustomization", "dropped", "Posted"); n != 0 {
		t.Error("got an event that was queued for a deleted Provider")
	}
}

// postEvent posts an event with a bearer token, unless that is empty.
func postEvent(t *testing.T, address, token, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return http.DefaultClient.Do(req)
}

// A sender speaks only for the objects of namespaces in which it may create events.
func TestSendersOfEventsAreAuthorized(t *testing.T) {
	t.Parallel()
	address := testenv.FreeAddress(t)
	s := newHarness(t, func(o *options.Options) { o.EventsAddr = address })
	none, own := s.ServiceAccountToken("none"), s.ServiceAccountToken("own")
	bound := s.ServiceAccountToken("bound", accessreview.EventsAudience)
	s.GrantAll("own")
	s.GrantAll("bound")
	for n, c := range []struct {
		sender, token, namespace string
		status                   int
	}{
		{sender: "in its namespace", token: own, namespace: s.Namespace, status: http.StatusAccepted},
		{sender: "with the audience", token: bound, namespace: s.Namespace, status: http.StatusAccepted},
		{sender: "in another namespace", token: own, namespace: "default", status: http.StatusForbidden},
		{sender: "without rights", token: none, namespace: s.Namespace, status: http.StatusForbidden},
		{sender: "with an invalid token", token: own + "x", namespace: s.Namespace, status: http.StatusUnauthorized},
		{sender: "without a token", namespace: s.Namespace, status: http.StatusUnauthorized},
	} {
		// The endpoint listens once the process leads, and the authorizer of the API server lags behind.
		testenv.Eventually(t, c.sender, func() error {
			resp, err := postEvent(t, address, c.token, fmt.Sprintf(`{"involvedObject":{"kind":"Canary","name":"it-%d",
				"namespace":%q,"apiVersion":"flagger.app/v1"},"severity":"info","reason":"Posted"}`, n, c.namespace))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != c.status {
				return fmt.Errorf("the response is %s, want %d", resp.Status, c.status)
			}
			return nil
		})
	}
}
