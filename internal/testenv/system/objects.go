package system

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Create creates an object.
func (s *System) Create(o client.Object) {
	s.Helper()
	gvk, err := s.Client.GroupVersionKindFor(o)
	if err != nil {
		s.Fatal(err)
	}
	isOurs := strings.HasSuffix(gvk.Group, ".fluxcd.io") || gvk.Group == "fluxcd.controlplane.io"
	if isOurs && s.labels != nil {
		labels := maps.Clone(s.labels)
		maps.Copy(labels, o.GetLabels())
		o.SetLabels(labels)
		if r, ok := o.(*helmv2.HelmRelease); ok && r.Spec.Chart != nil { // the same controllers fetch its chart
			if r.Spec.Chart.ObjectMeta == nil {
				r.Spec.Chart.ObjectMeta = &helmv2.HelmChartTemplateObjectMeta{}
			}
			chart := maps.Clone(s.labels)
			maps.Copy(chart, r.Spec.Chart.ObjectMeta.Labels)
			r.Spec.Chart.ObjectMeta.Labels = chart
		}
	}
	if err := s.Client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// Get reads an object of the namespace.
func (s *System) Get(o client.Object, name string) error {
	return s.Client.Get(s.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, o)
}

// Update edits an object, again if it was changed concurrently.
func (s *System) Update(o client.Object, name string, edit func()) {
	s.Helper()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		edit()
		return s.Client.Update(s.Context(), o)
	}); err != nil {
		s.Fatal(err)
	}
}

// Patch applies a JSON merge patch to an object.
func (s *System) Patch(o client.Object, name, patch string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	if err := s.Client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// RequestReconcile requests a reconcile of an object by annotation.
func (s *System) RequestReconcile(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().
		Format(time.RFC3339Nano))
	if err := s.Client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// Reconcile requests a reconcile of an object and waits until it is done.
func (s *System) Reconcile(o reconcile.Object, name string) {
	s.Helper()
	s.RequestReconcile(o, name)
	s.eventually(name+" was reconciled", func() error { return s.Handled(o, name) })
}

// Handled returns an error if the last request to reconcile an object was not handled. It reads the object.
func (s *System) Handled(o reconcile.Object, name string) error {
	if err := s.Get(o, name); err != nil {
		return err
	}
	want, got := o.GetAnnotations()[meta.ReconcileRequestAnnotation], o.CommonStatus().LastHandledReconcileAt
	if got != want {
		return fmt.Errorf("last handled request of %s: %s, want %s", name, got, want)
	}
	return nil
}

// Requested requests a pass of an object by annotation, and requires that pass, which runs it, handles the request.
func (s *System) Requested(o reconcile.Object, name string, pass func(name string)) {
	s.Helper()
	s.RequestReconcile(o, name)
	pass(name)
	if err := s.Handled(o, name); err != nil {
		s.Error(err)
	}
}

// NotReady waits until an object is not Ready with a reason and a message that contains a text.
func (s *System) NotReady(o reconcile.Object, name, reason, message string) {
	s.Helper()
	s.eventually(name+" is not Ready with reason "+reason, func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason ||
			!strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// Gone waits until an object does not exist.
func (s *System) Gone(o client.Object, name string) {
	s.Helper()
	s.eventually(name+" is deleted", func() error {
		err := s.Get(o, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it still exists"))
	})
}

// ConfigMapHas waits until a ConfigMap made by [ConfigMap] has a value.
func (s *System) ConfigMapHas(name, value string) {
	s.Helper()
	s.eventually("ConfigMap "+name+" has value "+value, func() error {
		cm := &corev1.ConfigMap{}
		if err := s.Get(cm, name); err != nil {
			return err
		}
		if cm.Data["k"] != value {
			return fmt.Errorf("its value is %q", cm.Data["k"])
		}
		return nil
	})
}

// ConfigMap returns the manifest of a ConfigMap with a value.
func ConfigMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}

// Secret creates a Secret.
func (s *System) Secret(name string, data map[string]string) {
	s.Helper()
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, StringData: data})
}

// HasEvent waits for an event about an object whose note contains all texts, and returns the number of events with its
// reason.
func (s *System) HasEvent(name, reason string, texts ...string) int {
	s.Helper()
	count := 0
	s.eventually("an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		about := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name != name })
		var err error
		count, err = countEvents(about, reason, texts)
		return err
	})
	return count
}

// countEvents returns how many events have a reason, and an error if the note of none of them contains all texts.
func countEvents(events []eventsv1.Event, reason string, texts []string) (count int, err error) {
	var notes []string
	found := false
	for _, e := range events {
		if e.Reason != reason {
			continue
		}
		count++
		notes = append(notes, e.Note)
		found = found || !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e.Note, text) })
	}
	if !found {
		return count, fmt.Errorf("no event %s contains %q: %q", reason, texts, notes)
	}
	return count, nil
}

// MetricValue returns the value of an object's gauge, or the number of observations of its histogram; 0 if it has none.
func MetricValue(t *testing.T, metric, kind, namespace, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabel(m, "kind", kind) && hasLabel(m, "namespace", namespace) && hasLabel(m, "name", name) {
				return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func hasLabel(m *dto.Metric, label, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == label && l.GetValue() == value {
			return true
		}
	}
	return false
}

// Suspended waits until the controller has observed that an object is suspended, so that no earlier pass is running.
func (s *System) Suspended(kind, name string) {
	s.Helper()
	s.eventually(name+" is suspended", func() error {
		if got := MetricValue(s.T, "gotk_suspend_status", kind, s.Namespace, name); got != 1 {
			return fmt.Errorf("gotk_suspend_status is %v", got)
		}
		return nil
	})
}

// CheckStatus returns an error unless a GET request of a URL returns a status.
func CheckStatus(url string, status int) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		return errors.New(resp.Status)
	}
	return nil
}
