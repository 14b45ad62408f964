package alert_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// provider creates a Provider, of the type generic by default.
func (s *harness) provider(name, address string, change ...func(*notificationv1.ProviderSpec)) {
	s.Helper()
	p := &notificationv1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	p.Spec = notificationv1.ProviderSpec{Type: notificationv1.GenericProvider, Address: address}
	for _, c := range change {
		c(&p.Spec)
	}
	s.Create(p)
}

// alert creates an Alert for all Kustomizations.
func (s *harness) alert(name, provider string, change ...func(*notificationv1.AlertSpec)) {
	s.Helper()
	a := &notificationv1.Alert{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	a.Spec = notificationv1.AlertSpec{
		ProviderRef:  meta.LocalObjectReference{Name: provider},
		EventSources: []notificationv1.EventSource{{Kind: kustomizev1.KustomizationKind, Name: notificationv1.Any}},
	}
	for _, c := range change {
		c(&a.Spec)
	}
	s.Create(a)
}

// known waits until Alerts and Providers are Ready.
func (s *harness) known(objects ...reconcile.Object) {
	s.Helper()
	for _, o := range objects {
		testenv.Eventually(s, o.GetName()+" is Ready", func() error {
			if err := s.Get(o, o.GetName()); err != nil {
				return err
			}
			if !reconcile.IsReady(o) {
				return fmt.Errorf("%+v", o.CommonStatus().Conditions)
			}
			return nil
		})
	}
}

func alertNamed(name string) *notificationv1.Alert {
	return &notificationv1.Alert{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func providerNamed(name string) *notificationv1.Provider {
	return &notificationv1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// received waits until the inbox has an event of a Kustomization, and returns it.
func (in *inbox) received(t *testing.T, name, reason string) event.Event {
	t.Helper()
	var found event.Event
	testenv.Eventually(t, "event "+reason+" of "+name, func() error {
		e, _, n := in.find(kustomizev1.KustomizationKind, name, reason)
		if n == 0 {
			return errNotYet{kustomizev1.KustomizationKind, name, reason}
		}
		found = e
		return nil
	})
	return found
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	in, labelled, suspended := newInbox(t), newInbox(t), newInbox(t)
	s := sharedHarness(t)
	s.provider("team", in.URL)
	s.provider("labelled", labelled.URL)
	s.provider("suspended", suspended.URL)
	s.alert("team", "team", func(a *notificationv1.AlertSpec) {
		a.EventMetadata, a.Summary = map[string]string{"cluster": "prod-1", "env": "of the alert", "revision": "none"},
			"the shop"
	})
	s.alert("labelled", "labelled", func(a *notificationv1.AlertSpec) {
		a.EventSources[0].MatchLabels = map[string]string{"team": "frontend"}
	})
	s.alert("suspended", "suspended", func(a *notificationv1.AlertSpec) { a.Suspend = true })
	s.known(alertNamed("team"), alertNamed("labelled"), providerNamed("team"), providerNamed("labelled"),
		providerNamed("suspended"))

	commit := s.Git.Commit("app", map[string]string{"app/config.yaml": system.ConfigMap("sent", "x"),
		"shop/config.yaml": system.ConfigMap("shop", "x"), "bad/config.yaml": "kind: ["})
	s.GitRepository("app")
	s.Kustomization("app", "app", "./app", func(k *kustomizev1.Kustomization) {
		k.Annotations = map[string]string{event.AnnotationGroup + "/env": "of the object", event.AnnotationGroup +
			"/owner": "anna"}
	})
	s.Kustomization("shop", "app", "./shop", func(k *kustomizev1.Kustomization) {
		k.Labels = map[string]string{"team": "frontend"}
	})
	s.Kustomization("bad", "app", "./bad")

	e := in.received(t, "app", "ReconciliationSucceeded")
	for key, want := range map[string]string{
		event.Revision: "main@sha1:" + commit, "cluster": "prod-1", "env": "of the alert", "owner": "anna",
		event.Summary: "the shop",
	} {
		if e.Metadata[key] != want {
			t.Errorf("metadata %s is %q, want %q", key, e.Metadata[key], want)
		}
	}
	if e := in.received(t, "bad", "BuildFailed"); e.Severity != event.Error {
		t.Errorf("event of a failure: %+v", e)
	}
	in.received(t, "shop", "ReconciliationSucceeded")
	labelled.received(t, "shop", "ReconciliationSucceeded")
	if _, _, n := labelled.find(kustomizev1.KustomizationKind, "app", "ReconciliationSucceeded"); n != 0 {
		t.Error("got an event of an object without the label")
	}
	if _, _, n := suspended.find(kustomizev1.KustomizationKind, "app", "ReconciliationSucceeded"); n != 0 {
		t.Error("got an event by a suspended Alert")
	}
	// and the revision, if the first event has one
	s.warned(notificationv1.AlertKind, "team", "MetadataConflict", "the metadata env")
}

// warned waits for an event of the type Warning with a reason and a note that contains a text.
func (s *harness) warned(kind, name, reason, message string) {
	s.Helper()
	testenv.Eventually(s, "a warning "+reason+" of "+name, func() error {
		var all eventsv1.EventList
		if err := s.Client.List(s.Context(), &all, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		var seen []string
		for _, e := range all.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Type == corev1.EventTypeWarning {
				if e.Reason == reason && strings.Contains(e.Note, message) {
					return nil
				}
				seen = append(seen, e.Reason+": "+e.Note)
			}
		}
		return fmt.Errorf("events: %q", seen)
	})
}

func TestProviderOutage(t *testing.T) {
	t.Parallel()
	in := newInbox(t)
	in.turn(true)
	s := newHarness(t)
	s.provider("team", in.URL)
	s.alert("team", "team")
	s.known(alertNamed("team"))
	commit := s.Git.Commit("app", map[string]string{"a/c.yaml": system.ConfigMap("a", "x"),
		"b/c.yaml": system.ConfigMap("b", "x"),
		"c/c.yaml": system.ConfigMap("c", "x")})
	s.GitRepository("app")
	for _, name := range []string{"a", "b"} {
		s.Kustomization(name, "app", "./"+name)
		s.Ready(name, commit)
	}
	s.NotReady(providerNamed("team"), "team", "SendFailed", "503")
	s.warned(notificationv1.ProviderKind, "team", "SendFailed", "503")
	s.warned(notificationv1.AlertKind, "team", "NotificationDelayed", "Provider '"+s.Namespace+
		"/team': Notification about Kustomization/"+s.Namespace)
	s.Stop()
	s.Start()
	s.Kustomization("c", "app", "./c")
	s.Ready("c", commit)
	in.turn(false)
	s.RequestReconcile(&notificationv1.Provider{}, "team") // otherwise the next attempt would be later
	for _, name := range []string{"a", "b", "c"} {
		in.received(t, name, "ReconciliationSucceeded")
	}
	s.known(providerNamed("team"))
}

func TestInvalidAlertsAndProviders(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.alert("homeless", "later")
	s.alert("broken", "none", func(a *notificationv1.AlertSpec) { a.ExclusionList = []string{"["} })
	s.alert("elsewhere", "none", func(a *notificationv1.AlertSpec) { a.EventSources[0].Namespace = "default" })
	s.provider("secretless", "https://example.com",
		func(p *notificationv1.ProviderSpec) { p.SecretRef = &meta.LocalObjectReference{Name: "login"} })
	s.provider("nowhere", "example")

	s.NotReady(&notificationv1.Alert{}, "homeless", "DependencyNotReady",
		"later' not found. Create it or correct spec.providerRef; until then, no event is sent")
	s.NotReady(&notificationv1.Alert{}, "broken", "ValidationFailed",
		"spec.exclusionList[0] is not a valid regular expression")
	s.warned(notificationv1.AlertKind, "broken", "ValidationFailed", "spec.exclusionList[0] is not a valid "+
		"regular expression: error parsing regexp: missing closing ]: `[`. Correct it; for the syntax see "+
		"https://pkg.go.dev/regexp/syntax")
	s.NotReady(&notificationv1.Alert{}, "elsewhere", "AccessDenied", "another namespace") // the controllers watch one
	s.NotReady(&notificationv1.Provider{}, "nowhere", "ValidationFailed", "not an HTTP URL")
	s.NotReady(&notificationv1.Provider{}, "secretless", "TokenNotFound", "login' not found")
	s.warned(notificationv1.ProviderKind, "secretless", "TokenNotFound", "Create it or correct spec.secretRef")

	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "login", Labels: map[string]string{"reconcile.fluxcd.io/watch": "Enabled"},
	}})
	s.provider("later", "https://example.com")
	s.known(alertNamed("homeless"), providerNamed("secretless"))
	for _, o := range []reconcile.Object{alertNamed("homeless"), providerNamed("later")} {
		if err := s.Get(o, o.GetName()); err != nil || len(o.GetFinalizers()) > 0 {
			t.Errorf("finalizers of %s: %v, %v", o.GetName(), o.GetFinalizers(), err)
		}
	}
}

func TestCorrectedProviderSendsAtOnce(t *testing.T) {
	t.Parallel()
	wrong, right := "http://"+testenv.FreeAddress(t), newInbox(t)
	s := sharedHarness(t)
	s.provider("team", wrong)
	s.alert("team", "team")
	s.known(alertNamed("team"))
	commit := s.Git.Commit("app", map[string]string{"a/c.yaml": system.ConfigMap("a", "x")})
	s.GitRepository("app")
	s.Kustomization("a", "app", "./a")
	s.Ready("a", commit)
	s.NotReady(providerNamed("team"), "team", "SendFailed", "connection refused")
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"address":%q}}`, right.URL))
	if err := s.Client.Patch(t.Context(), &notificationv1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "team"}}, patch); err != nil {
		t.Fatal(err)
	}
	right.received(t, "a", "ReconciliationSucceeded")
	s.known(providerNamed("team"))
}
