package resourceset_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestMain(m *testing.M) {
	os.Exit(system.Main(m))
}

type harness struct{ *system.System }

func sharedHarness(t *testing.T) *harness {
	t.Helper()
	return &harness{system.Shared(t)}
}

// set creates a ResourceSet from its spec in YAML. NS in the text is the namespace.
func (s *harness) set(name, spec string, annotations ...string) *controlplanev1.ResourceSet {
	s.Helper()
	set := &controlplanev1.ResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name,
		Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		set.Annotations["fluxcd.controlplane.io/"+annotations[i]] = annotations[i+1]
	}
	s.parse(spec, &set.Spec)
	s.Create(set)
	return set
}

func (s *harness) parse(text string, into any) {
	s.Helper()
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "NS", s.Namespace)), into); err != nil {
		s.Fatal(err)
	}
}

// ready waits until a ResourceSet is Ready and returns it.
func (s *harness) ready(name string) *controlplanev1.ResourceSet {
	s.Helper()
	set := &controlplanev1.ResourceSet{}
	testenv.Eventually(s, name+" is Ready", func() error {
		if err := s.Get(set, name); err != nil {
			return err
		}
		if !reconcile.IsReady(set) {
			return fmt.Errorf("%+v", set.Status.Conditions)
		}
		return nil
	})
	return set
}

// has waits until a ConfigMap has data, as JSON.
func (s *harness) has(name, data string) {
	s.Helper()
	testenv.Eventually(s, "ConfigMap "+name+" has "+data, func() error {
		cm := &corev1.ConfigMap{}
		if err := s.Get(cm, name); err != nil {
			return err
		}
		got, err := json.Marshal(cm.Data)
		if err == nil && string(got) != data {
			return fmt.Errorf("it has %s", got)
		}
		return err
	})
}

func (s *harness) configMap(name string, data map[string]string, labels ...string) {
	s.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name,
		Labels: map[string]string{}}, Data: data}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		cm.Labels[key] = value
	}
	s.Create(cm)
}

// provider creates a provider that exports inputs.
func (s *harness) provider(name, inputs string, labels map[string]string) {
	s.Helper()
	p := &controlplanev1.ResourceSetInputProvider{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name,
		Labels: labels}}
	p.Spec.Type = "Static"
	if err := s.Client.Create(s.Context(), p); err != nil { // without the label of the shared controllers
		s.Fatal(err)
	}
	s.export(name, inputs)
}

// export sets the inputs that a provider exports.
func (s *harness) export(name, inputs string) {
	s.Helper()
	p := &controlplanev1.ResourceSetInputProvider{}
	if err := s.Get(p, name); err != nil {
		s.Fatal(err)
	}
	p.Status.ExportedInputs = nil
	s.parse(inputs, &p.Status.ExportedInputs)
	reconcile.Mark(p, "Ready", metav1.ConditionTrue, "ReconciliationSucceeded", "")
	if err := s.Client.Status().Update(s.Context(), p); err != nil {
		s.Fatal(err)
	}
}
