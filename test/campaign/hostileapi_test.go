package campaign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	maxMemory      = 700 // MiB, with a hostile API server
	hostileTenants = 4   // each with a process and a proxy of its own
	hostileApps    = 5   // Kustomizations of each
)

// TestCampaignHostileAPI changes one in three answers of the API server: discovery, lists, watches and patches. The
// processes of four tenants must live, and apply the last commit once the answers are right again.
func TestCampaignHostileAPI(t *testing.T) {
	const short, full = 1, 25
	changed := 160 // answers in each iteration, of all tenants
	if *isFull {
		changed = 400
	}
	e := begin(t, short, full)
	git, registry, inbox := testenv.NewGit(t), testenv.NewRegistry(t), newInbox(t)
	var all []*hostile
	for range hostileTenants {
		all = append(all, newHostile(newTenant(t, git), registry, inbox, e.random(-1)))
	}
	slowest := time.Duration(0)
	e.each(func(i int, random *rand.Rand) {
		for _, h := range all {
			h.mutator.begin(random.Uint64())
			h.proxy.setMutation(h.mutator.mutate)
		}
		for j, done := 0, 0; done < changed && !t.Failed(); j++ {
			done = 0
			for n, h := range all {
				h.disturb(fmt.Sprintf("%d-%d", i, j), (j+n)%5 == 4, random)
				done += h.mutator.done()
			}
			<-time.After(100 * time.Millisecond) // lets the controllers work on wrong answers
		}
		began, last := time.Now(), fmt.Sprint("last-", i)
		for _, h := range all {
			h.proxy.setMutation(nil)
			h.reconnect() // ends watches with wrong events
			h.write(last, random)
			h.fetch()
		}
		for _, h := range all {
			h.recovers(last)
		}
		slowest = max(slowest, time.Since(began))
	})
	total, kinds, peak := 0, map[string]int{}, 0
	for _, h := range all {
		h.controller.mustLive()
		peak = max(peak, h.controller.peak)
		for kind, count := range h.mutator.kinds {
			kinds[kind] += count
			total += count
		}
	}
	e.note("%d answers to %d processes changed %v, peak %d MiB, recovered within %s", total, len(all), kinds, peak,
		slowest.Round(time.Second))
	if peak > maxMemory {
		t.Errorf("a process used %d MiB, at most %d are allowed", peak, maxMemory)
	}
}

// hostile is a tenant whose process gets wrong answers.
type hostile struct {
	*tenant
	controller *controller
	proxy      *apiProxy
	mutator    *mutator
}

func newHostile(n *tenant, registry *testenv.Registry, inbox *inbox, random *rand.Rand) *hostile {
	n.Helper()
	h := &hostile{tenant: n, proxy: newAPIProxy(n.T), mutator: &mutator{kinds: map[string]int{}}}
	registry.Push(n.repo, "1.0.0", nil)
	h.write("first", random)
	h.declareAll(registry, inbox.URL, func(k *kustomizev1.Kustomization) { k.Spec.Path = "./app" })
	for i := 1; i < hostileApps; i++ {
		h.create(h.app(h.name(i), func(k *kustomizev1.Kustomization) { k.Spec.Path = "./" + h.name(i) }))
	}
	h.controller = start(n.T, settings{namespace: n.namespace, isAlone: true, kubeconfig: h.proxy.kubeconfig})
	h.recovers("first")
	return h
}

// name returns the name of a Kustomization, its directory, and its ConfigMap.
func (h *hostile) name(app int) string {
	if app == 0 {
		return "app"
	}
	return fmt.Sprint("app-", app)
}

// otherKinds are manifests of objects of other kinds than ConfigMap, with a name and a value.
var otherKinds = []string{
	"{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {k: %q}}",
	"{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, labels: {k: %q}}}",
	"{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {k: %q}}, spec: {ports: [{port: 80}]}}",
	"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %s, labels: {k: %q}}, rules: []}",
	`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, labels: {k: %q}}, spec: {replicas: 0,
  selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}`,
}

// write commits objects of all Kustomizations, one of which has another name in each commit.
func (h *hostile) write(value string, random *rand.Rand) {
	h.Helper()
	files := map[string]string{}
	for i := range hostileApps {
		name := h.name(i)
		files[name+"/app.yaml"] = configMap(name, value)
		files[name+"/extra.yaml"] = configMap(fmt.Sprintf("extra-%d-%d", i, random.IntN(5)), value)
		files[name+"/other.yaml"] = fmt.Sprintf(otherKinds[i%len(otherKinds)], name, value) + "\n"
	}
	h.git.Commit(h.repo, files)
}

// disturb gives the process work, and cuts its connections, so that lists and watches begin again.
func (h *hostile) disturb(value string, reconnects bool, random *rand.Rand) {
	h.Helper()
	h.controller.mustLive()
	h.write(value, random)
	h.fetch()
	h.request(&kustomizev1.Kustomization{}, h.name(random.IntN(hostileApps)))
	h.request(&imagev1.ImageRepository{}, "image")
	if reconnects {
		h.reconnect()
	}
}

func (h *hostile) reconnect() {
	h.proxy.partition(true)
	h.proxy.partition(false)
}

// recovers waits until all Kustomizations have applied a value.
func (h *hostile) recovers(value string) {
	h.Helper()
	testenv.Eventually(h, "the value "+value+" is applied in "+h.namespace, func() error {
		_ = h.controller.dead()
		for i := range hostileApps {
			if got, err := h.value(h.name(i)); err != nil {
				return err
			} else if got != value {
				k, key := &kustomizev1.Kustomization{}, client.ObjectKey{Namespace: h.namespace, Name: h.name(i)}
				err := h.client.Get(h.Context(), key, k)
				return fmt.Errorf("the value of '%s' is '%s': status %+v, error %v", key, got, k.Status, err)
			}
		}
		return nil
	})
}

// mutator changes answers.
type mutator struct {
	mu     sync.Mutex
	random *rand.Rand
	count  int
	kinds  map[string]int
}

func (m *mutator) begin(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.random, m.count = rand.New(rand.NewPCG(seed, 0)), 0
}

func (m *mutator) done() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

func (m *mutator) mutate(r *http.Request, b body) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.random.IntN(3) > 0 || strings.Contains(r.URL.Path, "/leases/") {
		return b.data
	}
	kind := map[string]string{http.MethodPatch: "patch", http.MethodPost: "create"}[r.Method]
	switch {
	case b.isWatch:
		kind = "watch"
	case kind != "":
	case strings.Count(r.URL.Path, "/") < 4:
		kind = "discovery"
	default:
		kind = "list or get"
	}
	m.count++
	m.kinds[kind]++
	return m.change(b.data)
}

// change returns a wrong answer.
func (m *mutator) change(data []byte) []byte {
	var value any
	if m.random.IntN(4) > 0 && json.Unmarshal(data, &value) == nil {
		for range 1 + m.random.IntN(3) {
			value = m.changeValue(value)
		}
		if changed, err := json.Marshal(value); err == nil {
			return append(changed, '\n')
		}
	}
	switch m.random.IntN(6) {
	case 0:
		return data[:m.random.IntN(len(data)+1)]
	case 1:
		return []byte("<html>it works</html>")
	case 2:
		return bytes.Repeat([]byte("["), 100_000)
	case 3:
		return []byte(`{"items":[` + strings.Repeat(`{"metadata":{}},`, 10_000) + `{}]}`)
	case 4:
		return []byte(`{"type":"ADDED","object":` + string(data) + `}`)
	}
	changed := bytes.Clone(data)
	for range min(len(changed), 1+m.random.IntN(20)) {
		changed[m.random.IntN(len(changed))] = byte(m.random.UintN(256))
	}
	return changed
}

// changeValue replaces a value somewhere in JSON.
func (m *mutator) changeValue(value any) any {
	if m.random.IntN(6) > 0 {
		switch v := value.(type) {
		case map[string]any:
			if keys := slices.Sorted(maps.Keys(v)); len(keys) > 0 {
				key := keys[m.random.IntN(len(keys))]
				if m.random.IntN(8) == 0 {
					delete(v, key)
				} else {
					v[key] = m.changeValue(v[key])
				}
				return v
			}
		case []any:
			if len(v) > 0 {
				i := m.random.IntN(len(v))
				v[i] = m.changeValue(v[i])
				return v
			}
		}
	}
	return []any{nil, true, -1, 1e300, "", "text", strings.Repeat("x", 100_000), []any{}, []any{nil, 1},
		map[string]any{}, map[string]any{"": nil}, "9999999999999999h", "2027-01-01t00:00:00z"}[m.random.IntN(13)]
}
