package resourceset_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestRequestsFollowTheChange has 4 providers with 10 inputs each, and 5 objects for each input. A change of one input
// writes only its objects, and without a change nothing is requested.
func TestRequestsFollowTheChange(t *testing.T) {
	t.Parallel()
	s := &harness{system.New(t, func(o *options.Options) { o.Controllers = []string{options.ResourceSetController} })}
	const providers, inputs, objects = 4, 10, 5
	exported := func(value string) string {
		var list []string
		for n := range inputs {
			v := "a"
			if n == 0 {
				v = value
			}
			list = append(list, fmt.Sprintf(`{id: "%d", value: %s}`, n, v))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	for p := range providers {
		p := &controlplanev1.ResourceSetInputProvider{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
			Name: fmt.Sprintf("p%d", p), Labels: map[string]string{"env": "test"},
			Annotations: map[string]string{controlplanev1.ReconcileAnnotation: controlplanev1.Disabled}}}
		p.Spec.Type = controlplanev1.InputStatic
		s.Create(p)
		s.export(p.Name, exported("a")) // in place of its controller
	}
	s.set("apps", `
inputsFrom: [{selector: {matchLabels: {env: test}}}]
resourcesTemplate: |
  <<- range $n := until 5 >>
  ---
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: "<< inputs.provider.name >>-<< inputs.id >>-<< $n >>", namespace: NS}
  data: {value: << inputs.value >>}
  <<- end >>
`)
	testenv.Eventually(t, "all inputs are applied", func() error {
		set := s.ready("apps") // also before all providers are in the cache
		want := fmt.Sprintf("map[inputs:%d resources:%d]", providers*inputs, providers*inputs*objects)
		if got := fmt.Sprint(set.Status.History[0].Metadata); got != want {
			return errors.New(got)
		}
		return nil
	})
	s.quiet()
	s.export("p2", exported("b"))
	s.has("p2-0-4", `{"value":"b"}`)
	s.ready("apps")
	names := map[string]int{}
	for _, line := range s.Requests.Matching("/configmaps/") {
		_, name, _ := strings.Cut(line, "/configmaps/")
		name, _, _ = strings.Cut(name, "?")
		names[name]++
	}
	for name, count := range names {
		if !strings.HasPrefix(name, "p2-0-") || count > 3 { // a dry-run, a read for the diff, and an apply
			t.Errorf("%d requests for %s", count, name)
		}
	}
	if len(names) != objects {
		t.Errorf("requests for %v", names)
	}

	s.quiet()
}

// quiet waits until nothing was requested for two seconds. Events follow a pass at any time, and end.
func (s *harness) quiet() {
	s.Helper()
	testenv.Eventually(s, "nothing is requested without a change", func() error {
		s.Requests.Reset()
		time.Sleep(2 * time.Second) // what is checked is a rest, which has no end to wait for
		if requests := slices.DeleteFunc(s.Requests.Matching(""), func(line string) bool {
			return strings.Contains(line, "watch=")
		}); len(requests) > 0 {
			return fmt.Errorf("%q", requests)
		}
		return nil
	})
}
