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

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const maxMemory = 700 // MiB, with a hostile API server

// TestCampaignHostileAPI changes one in three answers of the API server: discovery, lists, watches and patches. The
// process must live, and apply the last commit once the answers are right again.
func TestCampaignHostileAPI(t *testing.T) {
	const short, full = 1, 100
	changed := 40 // answers in each iteration
	if *isFull {
		changed = 100
	}
	e := begin(t, short, full)
	proxy, n := newAPIProxy(t), newTenant(t, testenv.NewGit(t))
	c := start(t, settings{namespace: n.namespace, isAlone: true, kubeconfig: proxy.kubeconfig})
	n.commit("first")
	n.create(n.source("app"), n.app("app"))
	n.has(c, "first")
	slowest := time.Duration(0)
	m := &mutator{kinds: map[string]int{}}
	e.each(func(i int, random *rand.Rand) {
		m.begin(random)
		proxy.setMutation(m.mutate)
		for j := 0; m.done() < changed && !t.Failed(); j++ {
			value := fmt.Sprintf("%d-%d", i, j)
			n.git.Commit(n.repo, map[string]string{"app.yaml": configMap("app", value),
				"extra.yaml": configMap(fmt.Sprint("extra-", random.IntN(5)), value)})
			n.fetch()
			n.request(&kustomizev1.Kustomization{}, "app")
			if j%10 == 9 { // watches and lists start again
				proxy.partition(true)
				proxy.partition(false)
			}
			<-time.After(100 * time.Millisecond) // lets the controller work on wrong answers
			c.mustLive()
		}
		proxy.setMutation(nil)
		recovery := time.Now()
		proxy.partition(true) // ends watches with wrong events
		proxy.partition(false)
		last := fmt.Sprint("last-", i)
		n.commit(last)
		n.fetch()
		n.request(&kustomizev1.Kustomization{}, "app") // a cache keeps a wrong object until it changes, or for an hour
		n.has(c, last)
		slowest = max(slowest, time.Since(recovery))
	})
	c.mustLive()
	total := 0
	for _, count := range m.kinds {
		total += count
	}
	e.note("%d answers changed %v, peak %d MiB, recovered within %s", total, m.kinds, c.peak,
		slowest.Round(time.Second))
	if c.peak > maxMemory {
		t.Errorf("the process used %d MiB, at most %d are allowed", c.peak, maxMemory)
	}
}

// mutator changes answers.
type mutator struct {
	mu     sync.Mutex
	random *rand.Rand
	count  int
	kinds  map[string]int
}

func (m *mutator) begin(random *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.random, m.count = random, 0
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
