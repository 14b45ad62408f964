package helmrelease_test

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// shiftedClock is the real clock, some time later.
type shiftedClock struct {
	clock.RealClock
	by atomic.Int64 // nanoseconds
}

// Now implements [clock.PassiveClock].
func (c *shiftedClock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

// Since implements [clock.PassiveClock].
func (c *shiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestTemplatesSeeKindsThatOthersInstall has a template that depends on a kind which is installed after the release.
func TestTemplatesSeeKindsThatOthersInstall(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	group := h.Namespace + ".example.com"
	h.publish("1.0.0", map[string]string{"templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
		"metadata: {name: {{ .Release.Name }}-config}\ndata: {k: {{ if .Capabilities.APIVersions.Has " +
		"\"" + group + "/v1/Thing\" }}monitored{{ else }}{{ .Values.color }}{{ end }}}\n"})
	h.release("app")
	h.ready("app", 1)
	h.configMap("app-config", "red")

	h.createDefinition(group)

	h.later(2 * time.Minute)
	h.edit("app", values(map[string]any{"color": "blue"}))
	h.ready("app", 2)
	h.configMap("app-config", "monitored")
}

// createDefinition creates the definition of kind Thing in a group, and waits until it is served.
func (h *releases) createDefinition(group string) *unstructured.Unstructured {
	h.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": group, "scope": "Namespaced",
		"names": map[string]any{"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}}}}}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("things." + group)
	h.Create(definition)
	served, err := discovery.NewDiscoveryClientForConfig(testenv.Cluster(h))
	if err != nil {
		h.Fatal(err)
	}
	testenv.Eventually(h, "the kind is served", func() error {
		_, err := served.ServerResourcesForGroupVersion(group + "/v1")
		return err
	})
	return definition
}

// TestReleasesShareWhatTheClusterServes counts requests for the version of the cluster, which each action needs.
func TestReleasesShareWhatTheClusterServes(t *testing.T) {
	h := newHarness(t)
	h.publish("1.0.0", nil)
	h.release("first")
	h.ready("first", 1)
	log, began := testenv.NewAuditLog(t), time.Now()
	for _, name := range []string{"second", "third", "fourth"} {
		h.release(name)
		h.ready(name, 1)
	}
	// what the cluster serves becomes outdated each minute
	most := 1 + int(time.Since(began)/time.Minute)
	if n := log.Count(t, testenv.Request{Verb: "get", URI: "/version"}); n > most {
		t.Errorf("%d requests for the version of the cluster by three releases", n)
	}
}
