package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// crossReferences are specs that name objects of another namespace, by kind. OTHER stands for that namespace, and OWN
// for the one of the objects.
var crossReferences = map[string][]string{
	"Kustomization": {
		"{interval: 1h, prune: true, targetNamespace: OWN, sourceRef: " +
			"{kind: GitRepository, name: app, namespace: OTHER}}",
		"{interval: 1h, prune: true, targetNamespace: OWN, sourceRef: " +
			"{kind: ExternalArtifact, name: app, namespace: OTHER}}",
		"{interval: 1h, prune: true, force: true, targetNamespace: OTHER, sourceRef: {kind: GitRepository, name: own}}",
		"{interval: 1h, prune: true, targetNamespace: OWN, sourceRef: {kind: GitRepository, name: own}, " +
			"dependsOn: [{name: app, namespace: OTHER, readyExpr: \"dep.metadata.name == 'app'\"}]}",
		"{interval: 1h, prune: true, targetNamespace: OWN, sourceRef: {kind: GitRepository, name: own}, " +
			"gates: [{name: open, namespace: OTHER}]}",
	},
	"HelmRelease": {
		"{interval: 1h, chartRef: {kind: OCIRepository, name: app, namespace: OTHER}}",
		"{interval: 1h, chart: {spec: {chart: app, sourceRef: {kind: GitRepository, name: app, namespace: OTHER}}}}",
		"{interval: 1h, storageNamespace: OTHER, targetNamespace: OTHER, chart: {spec: {chart: chart, sourceRef: " +
			"{kind: GitRepository, name: own}}}}",
	},
	"ImagePolicy": {"{imageRepositoryRef: {name: app, namespace: OTHER}, policy: {semver: {range: '*'}}}"},
	"ImageUpdateAutomation": {
		"{interval: 1h, sourceRef: {kind: GitRepository, name: app, namespace: OTHER}, git: {commit: {author: " +
			"{name: x, email: x@example.com}}}}",
	},
	"ArtifactGenerator": {
		"{sources: [{alias: a, kind: GitRepository, name: app, namespace: OTHER}], artifacts: [{name: stolen, copy: " +
			"[{from: '@a/**', to: '@artifact/'}]}]}",
	},
	"Alert": {"{providerRef: {name: inbox}, eventSources: [{kind: Kustomization, name: '*', namespace: OTHER}, " +
		"{kind: GitRepository, name: '*', namespace: OTHER}]}"},
	"Receiver": {"{type: generic, secretRef: {name: token}, resources: [{kind: GitRepository, name: app, namespace: " +
		"OTHER}]}"},
	"Gate": {"{default: closed, interval: 1h, selector: {kinds: [Kustomization], namespaces: {names: [OTHER]}}}"},
}

// TestCampaignReferences creates objects whose references name objects of another tenant, under the flags for tenants.
// Nothing of the other tenant may be read, written or stopped.
func TestCampaignReferences(t *testing.T) {
	const short, full = 1, 20
	e := begin(t, short, full)
	git, inbox := testenv.NewGit(t), newInbox(t)
	n, victim := newTenant(t, git), newTenant(t, git)
	objects, err := dynamic.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, settings{namespace: "flux-system", flags: []string{"--no-cross-namespace-refs",
		"--default-service-account", "tenant"}})
	n.account()
	victim.account()
	victim.commit("canary-0")
	victim.create(victim.source("app"), victim.app("app"), &gatingv1.Gate{ObjectMeta: victim.named("open"),
		Spec: gatingv1.GateSpec{Default: gatingv1.Opened, Interval: hour}})
	victim.has(c, "canary-0")
	n.commit("own")
	n.create(n.source("own", func(g *sourcev1.GitRepository) { g.Spec.URL = git.URL + "/" + n.repo }),
		&notificationv1.Provider{ObjectMeta: n.named("inbox"), Spec: notificationv1.ProviderSpec{
			Type: notificationv1.GenericProvider, Address: inbox.URL}}, &corev1.Secret{ObjectMeta: n.named("token"),
			StringData: map[string]string{"token": "x"}})
	created := 0
	e.each(func(i int, _ *rand.Rand) {
		for _, k := range servedKinds(t) {
			if k.Version == k.stored {
				created += n.refer(objects, k, victim.namespace, i)
			}
		}
		value := fmt.Sprint("canary-", i+1)
		victim.commit(value)
		victim.fetch()
		victim.has(c, value)
		c.mustLive()
	})
	if err := n.hasObjects(nil); err != nil {
		t.Errorf("an object was applied although it refers to another tenant: %v", err)
	}
	n.mustNotKnow(objects, servedKinds(t), "canary-")
	if log, err := os.ReadFile(c.log); err != nil || strings.Contains(string(log), "canary-") {
		t.Errorf("the log contains a value of the other tenant (%v)", err)
	}
	for _, got := range inbox.all() {
		if got.event.InvolvedObject.Namespace == victim.namespace {
			t.Errorf("the tenant was notified about the other one: %+v", got.event)
		}
	}
	if err := victim.hasObjects(map[string]string{"app": fmt.Sprint("canary-", e.count)}); err != nil {
		t.Error(err)
	}
	if log := git.Run(victim.repo, "log", "--format=%ae"); strings.Contains(log, "x@example.com") {
		t.Error("the tenant committed to the repository of the other one")
	}
	e.note("%d objects referred to another tenant, 0 reads and writes", created)
}

// refer creates the objects of a kind that refer to another namespace, and waits until the controllers have read them.
// It returns their number.
func (n *tenant) refer(objects dynamic.Interface, k served, other string, round int) int {
	n.Helper()
	resource := objects.Resource(k.gvr()).Namespace(n.namespace)
	for i, text := range crossReferences[k.Kind] {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		spec := strings.NewReplacer("OTHER", other, "OWN", n.namespace).Replace(text)
		if err := yaml.Unmarshal([]byte("spec: "+spec), &o.Object); err != nil {
			n.Fatal(err)
		}
		o.SetGroupVersionKind(k.GroupVersionKind)
		o.SetName(fmt.Sprintf("refers-%d-%d", round, i))
		if _, err := resource.Create(context.Background(), o, metav1.CreateOptions{}); err != nil {
			n.Fatalf("%s %s: %v", k.Kind, text, err)
		}
		if _, hasStatus := k.schema.Properties["status"]; !hasStatus {
			continue
		}
		testenv.Eventually(n, "the controllers have read "+k.Kind+" "+text, func() error {
			read, err := resource.Get(context.Background(), o.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, err := unstructured.NestedSlice(read.Object, "status", "conditions")
			for _, c := range conditions {
				if condition, ok := c.(map[string]any); ok && condition["reason"] != meta.ProgressingReason {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("conditions %v", conditions))
		})
	}
	return len(crossReferences[k.Kind])
}

// mustNotKnow fails the test if an object or an event of the tenant contains a text.
func (n *tenant) mustNotKnow(objects dynamic.Interface, kinds []served, text string) {
	n.Helper()
	resources := []schema.GroupVersionResource{{Version: "v1", Resource: "events"},
		{Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"}}
	for _, k := range kinds {
		if k.Version == k.stored {
			resources = append(resources, k.gvr())
		}
	}
	for _, r := range resources {
		list, err := objects.Resource(r).Namespace(n.namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			n.Fatal(err)
		}
		content, err := json.Marshal(list)
		if err != nil || strings.Contains(string(content), text) {
			n.Errorf("%s of the tenant contain a value of the other one (%v)", r.Resource, err)
		}
	}
}
