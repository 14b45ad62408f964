package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// The inputs of BenchmarkResourceSet.
const (
	inputProviders    = 10
	inputsPerProvider = 100
	objectsPerInput   = 5
)

// inputService serves the inputs of all providers, at a path for each.
type inputService struct {
	mu      sync.Mutex
	changed map[string]string // values by ID; others are "1"
}

func (s *inputService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var inputs []map[string]string
	for n := range inputsPerProvider {
		id := fmt.Sprintf("%s-%d", strings.TrimPrefix(r.URL.Path, "/"), n)
		inputs = append(inputs, map[string]string{"id": id, "value": s.value(id)})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"inputs": inputs}) // the client may be stopped
}

func (s *inputService) value(id string) string {
	if v, ok := s.changed[id]; ok {
		return v
	}
	return "1"
}

func providerName(n int) string { return fmt.Sprintf("p%d", n) }

// BenchmarkResourceSet applies a ResourceSet with the inputs of 10 providers, 100 each, and five ConfigMaps for each
// input, beside a bare loop. Then it changes one input, and then it changes nothing.
func BenchmarkResourceSet(b *testing.B) {
	f := newFleet(b, 0, nil)
	bare, err := dynamic.NewForConfig(testenv.Cluster(b))
	if err != nil {
		b.Fatal(err)
	}
	service := &inputService{changed: map[string]string{}}
	server := httptest.NewServer(service)
	b.Cleanup(server.Close)
	const all = inputProviders * inputsPerProvider * objectsPerInput
	t := newTable(fmt.Sprintf("One ResourceSet of %d providers, %d inputs each, %d objects for each", inputProviders,
		inputsPerProvider, objectsPerInput), head...)
	for b.Loop() {
		theirs := loop(b, bare, objectsOfInputs(b, testenv.Namespace(b)))
		p := startController(b, f.namespace)
		f.declareSet(server.URL)
		idle := p.memory("VmRSS")
		start, log := p.usage(), testenv.NewAuditLog(b)
		f.waitFor("p9-99-4", "1")
		ours := since(start, p.usage())
		t.compare(b, "create", ours, mean(theirs, loop(b, bare, objectsOfInputs(b, testenv.Namespace(b)))), all,
			p.requests(log, testenv.Request{}), p.memory("VmHWM"))
		quiet(b)
		b.Logf("1,000 inputs with 5,000 objects take %.0f MB", p.memory("VmRSS")-idle)

		service.mu.Lock()
		service.changed["p3-7"] = "2"
		service.mu.Unlock()
		log, start = testenv.NewAuditLog(b), p.usage()
		f.request("p3")
		f.waitFor("p3-7-4", "2")
		ours = since(start, p.usage())
		quiet(b)
		touched := p.requests(log, testenv.Request{Resource: "configmaps"})
		b.Logf("one input changed after %s: %d requests for ConfigMaps", ours.took, touched)
		b.ReportMetric(float64(touched), "object-requests/input")
		byKind(b, log)

		log = testenv.NewAuditLog(b)
		<-time.After(*idleFor)
		idleRequests := 0
		for _, q := range log.Requests(b, testenv.Request{UserAgent: "sluice"}) {
			if q.Verb != "watch" {
				idleRequests++
				b.Logf("while idle: %+v", q)
			}
		}
		b.ReportMetric(float64(idleRequests), "idle-requests")
		p.stop()
	}
}

// objectsOfInputs returns what the ResourceSet declares, for a namespace.
func objectsOfInputs(b *testing.B, namespace string) []*unstructured.Unstructured {
	b.Helper()
	var all []*unstructured.Unstructured
	for p := range inputProviders {
		for i := range inputsPerProvider {
			for n := range objectsPerInput {
				o := &unstructured.Unstructured{}
				text := configMap(fmt.Sprintf("%s-%d-%d", providerName(p), i, n), "1")
				if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
					b.Fatal(err)
				}
				o.SetNamespace(namespace)
				all = append(all, o)
			}
		}
	}
	return all
}

// declareSet creates the providers, and the ResourceSet that selects them.
func (f *fleet) declareSet(service string) {
	f.b.Helper()
	labels := map[string]string{"bench": "inputs"}
	for n := range inputProviders {
		p := &controlplanev1.ResourceSetInputProvider{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace,
			Name: providerName(n), Labels: labels}}
		p.Spec.Type, p.Spec.URL, p.Spec.Insecure = controlplanev1.InputExternalService,
			service+"/"+providerName(n), true
		if err := f.client.Create(f.b.Context(), p); err != nil {
			f.b.Fatal(err)
		}
	}
	set := &controlplanev1.ResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "all"}}
	set.Spec.InputsFrom = []controlplanev1.InputProviderReference{{
		Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	set.Spec.ResourcesTemplate = "<< range $n := until 5 >>---\n" + strings.ReplaceAll(
		configMap("<< inputs.id >>-<< $n >>", "VERSION"), `"VERSION"`, "<< inputs.value | quote >>") + "<< end >>"
	set.Spec.ResourcesTemplate = strings.ReplaceAll(set.Spec.ResourcesTemplate, ">>}\ndata",
		">>, namespace: "+f.namespace+"}\ndata")
	if err := f.client.Create(f.b.Context(), set); err != nil {
		f.b.Fatal(err)
	}
}

// request asks a provider to read its inputs now.
func (f *fleet) request(provider string) {
	f.b.Helper()
	o := &controlplanev1.ResourceSetInputProvider{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: provider}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation,
		time.Now().Format(time.RFC3339Nano))
	if err := f.client.Patch(f.b.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		f.b.Fatal(err)
	}
}

// waitFor waits until the ResourceSet is Ready with 5,000 objects, and a ConfigMap has a version.
func (f *fleet) waitFor(configMap, version string) {
	f.b.Helper()
	deadline := time.Now().Add(*patient)
	var last string
	for time.Now().Before(deadline) {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("v1")
		o.SetKind("ConfigMap")
		set := &controlplanev1.ResourceSet{}
		err := f.client.Get(f.b.Context(), client.ObjectKey{Namespace: f.namespace, Name: configMap}, o)
		if err == nil {
			err = f.client.Get(f.b.Context(), client.ObjectKey{Namespace: f.namespace, Name: "all"}, set)
		}
		data, _, _ := unstructured.NestedString(o.Object, "data", "version")
		entries := 0
		if set.Status.Inventory != nil {
			entries = len(set.Status.Inventory.Entries)
		}
		if last = fmt.Sprint(err, data, entries); err == nil && data == version &&
			entries == inputProviders*inputsPerProvider*objectsPerInput && reconcile.IsReady(set) {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	f.b.Fatalf("ConfigMap %s has no version %s: %s", configMap, version, last)
}
