package hub

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	// statusInterval is how often silent clusters are looked for.
	statusInterval = 2 * time.Second
	// rejectInterval is how often another reason for a refusal is shown. Who has no token can cause them.
	rejectInterval = 10 * time.Second
	maxRetired     = 4 // instances of a cluster that are remembered
	maxRemoved     = 1000
	maxWait        = time.Minute // of a read that waits for a change
	// skewShown is the difference between the clocks of a cluster and of the hub that is shown.
	skewShown = time.Minute
)

// Hub keeps the last summary of each cluster. It is safe for concurrent use.
type Hub struct {
	Registry *Registry
	Streams  Streams // nil if clusters cannot open any
	HasPeers bool    // other replicas have streams, too, and get the requests for them
	Store    *Store  // nil to keep summaries in memory only
	Log      logr.Logger
	Now      func() time.Time
	Epoch    string // random, of the process

	mu       sync.Mutex
	clusters map[string]*entry
	refused  map[string]rejection
	shown    map[string]shown // of the clusters that are registered
	removed  []removal
	version  int64
	changed  chan struct{} // closed at the next change
	lastRead time.Time
}

// entry is what a cluster reported. It is immutable.
type entry struct {
	Name     string         `json:"name"`
	Received time.Time      `json:"received"`
	Instance string         `json:"instance"`
	Sequence int64          `json:"sequence"`
	Retired  []string       `json:"retired,omitempty"` // instances that reported before
	Skew     time.Duration  `json:"skew,omitempty"`
	Summary  *fleet.Summary `json:"summary,omitempty"` // nil in a batch of heartbeats
}

// isNewer reports whether an entry replaces another one of the same cluster, which another replica may have written.
func (e *entry) isNewer(than *entry) bool {
	if than == nil {
		return true
	}
	if e.Instance == than.Instance && e.Sequence != than.Sequence {
		return e.Sequence > than.Sequence
	}
	return e.Received.After(than.Received)
}

// shown is when readers must learn of a cluster again.
type shown struct {
	version int64
	status  fleet.Status
}

// rejection is why the last report of a cluster was refused.
type rejection struct {
	text string
	at   time.Time
}

type removal struct {
	name    string
	version int64
}

// Start runs the hub until the context ends. Register the clusters before.
func (h *Hub) Start(ctx context.Context) error {
	h.Registry.onChange(h.refresh)
	h.refresh()
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.refresh()
		}
	}
}

// refresh notices clusters that became silent, were registered, or were removed.
func (h *Hub) refresh() {
	names := h.Registry.Names()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shown == nil {
		h.shown = map[string]shown{}
	}
	before := h.version
	for _, name := range names {
		known, ok := h.shown[name]
		if status := h.status(name); !ok || status != known.status {
			h.version++
			h.shown[name] = shown{version: h.version, status: status}
		}
	}
	for name := range h.shown {
		if _, ok := slices.BinarySearch(names, name); !ok {
			h.version++
			delete(h.shown, name)
			delete(h.refused, name)
			h.removed = append(h.removed, removal{name: name, version: h.version})
		}
	}
	h.removed = h.removed[max(0, len(h.removed)-maxRemoved):]
	if h.version != before {
		h.publish()
	}
}

// publish wakes readers that wait. It is called with the mutex held.
func (h *Hub) publish() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// touch makes readers learn of a cluster again. It is called with the mutex held.
func (h *Hub) touch(name string) {
	h.version++
	if _, ok := h.shown[name]; ok {
		h.shown[name] = shown{version: h.version, status: h.status(name)}
		h.publish()
	}
}

// status is called with the mutex held.
func (h *Hub) status(name string) fleet.Status {
	e := h.clusters[name]
	switch {
	case e == nil:
		return fleet.Expected
	case h.Now().Sub(e.Received) > fleet.SilentAfter, e.Received.Sub(h.Now()) > fleet.MaxSkew:
		return fleet.Silent // also if the clock of the hub was set back, until the next report
	}
	return fleet.Reporting
}

// errAgain asks for the whole summary.
var errAgain = refuse(http.StatusConflict, "Send the summary",
	"the hub does not have the summary of this instance and sequence")

// accept records a report of an authenticated cluster.
func (h *Hub) accept(r *fleet.Report) error {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.clusters[r.Cluster]
	isSame := old != nil && old.Instance == r.Instance
	switch {
	case old != nil && slices.Contains(old.Retired, r.Instance):
		return refuse(http.StatusConflict, "Run one controller that reports as '"+r.Cluster+"'",
			"the report is a replay, or two processes report as cluster '%s'", r.Cluster)
	case r.Summary == nil && (!isSame || old.Sequence != r.Sequence || old.Summary == nil):
		return errAgain
	case isSame && r.Sequence < old.Sequence:
		return refuse(http.StatusConflict, "A newer one was accepted already; this one is not needed",
			"the report %d of cluster '%s' is a replay", r.Sequence, r.Cluster)
	}
	e := &entry{Name: r.Cluster, Received: now, Instance: r.Instance, Sequence: r.Sequence, Summary: r.Summary}
	if old != nil {
		e.Retired, e.Skew = old.Retired, old.Skew
		if !isSame {
			e.Retired = append(slices.Clone(old.Retired), old.Instance)
			e.Retired = e.Retired[max(0, len(e.Retired)-maxRetired):]
		}
	}
	isNew := r.Summary != nil
	if isNew {
		e.Skew = r.Summary.Time.Sub(now).Round(time.Second)
	} else {
		e.Summary = old.Summary
	}
	if h.clusters == nil {
		h.clusters = map[string]*entry{}
	}
	h.clusters[r.Cluster] = e
	if h.Store != nil {
		h.Store.write(e, isNew)
	}
	_, wasRefused := h.refused[r.Cluster]
	delete(h.refused, r.Cluster)
	if isNew || wasRefused || h.shown[r.Cluster].status != fleet.Reporting {
		h.touch(r.Cluster)
	}
	return nil
}

// reject records why a report of an authenticated cluster, or one in its name, was refused.
func (h *Hub) reject(cluster string, err error) {
	text := excerpt.Line(err.Error(), fleet.MaxMessage)
	h.mu.Lock()
	defer h.mu.Unlock()
	last, now := h.refused[cluster], h.Now()
	if _, ok := h.shown[cluster]; !ok || last.text == text || now.Sub(last.at) < rejectInterval {
		return
	}
	if h.refused == nil {
		h.refused = map[string]rejection{}
	}
	h.refused[cluster] = rejection{text: text, at: now}
	h.touch(cluster)
}

// merge records what a replica stored.
func (h *Hub) merge(all []*entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range all {
		old := h.clusters[e.Name]
		if !e.isNewer(old) {
			continue
		}
		if old != nil && old.Instance == e.Instance && old.Sequence == e.Sequence {
			same := *old
			same.Received = e.Received
			e = &same
		}
		if e.Summary == nil {
			continue // a heartbeat, and the summary was not read
		}
		if h.clusters == nil {
			h.clusters = map[string]*entry{}
		}
		h.clusters[e.Name] = e
		if old == nil || old.Summary != e.Summary || h.shown[e.Name].status != h.status(e.Name) {
			h.touch(e.Name)
		}
	}
}

// forget removes what clusters reported that are not registered.
func (h *Hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.clusters, func(name string, _ *entry) bool { return !h.Registry.Has(name) })
}

// entries returns what registered clusters reported.
func (h *Hub) entries() []*entry {
	h.forget()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.clusters))
}

// isRead reports whether someone read lately.
func (h *Hub) isRead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Now().Sub(h.lastRead) < readersStay
}

// List implements [fleet.Reader].
func (h *Hub) List(ctx context.Context, since string, wait time.Duration) (*fleet.List, error) {
	deadline := time.NewTimer(min(max(wait, 0), maxWait))
	defer deadline.Stop()
	for {
		list, changed := h.list(since)
		if wait <= 0 || !list.Partial || len(list.Clusters)+len(list.Removed) > 0 {
			return list, nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return list, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// list returns the clusters that changed since a version, and what is closed at the next change.
func (h *Hub) list(since string) (*fleet.List, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastRead = h.Now()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	from, isPartial := h.parse(since)
	list := &fleet.List{Version: fmt.Sprintf("%s.%d", h.Epoch, h.version), Time: h.Now().UTC(), Partial: isPartial,
		Clusters: []fleet.Cluster{}}
	for _, name := range slices.Sorted(maps.Keys(h.shown)) {
		if !isPartial || h.shown[name].version > from {
			c := h.describe(name)
			if c.Summary != nil {
				small := *c.Summary
				small.Kinds, small.Problems = nil, small.Problems[:min(len(small.Problems), 1)]
				c.Summary = &small
			}
			list.Clusters = append(list.Clusters, *c)
		}
	}
	for _, r := range h.removed {
		if _, again := h.shown[r.name]; isPartial && r.version > from && !again {
			list.Removed = append(list.Removed, r.name)
		}
	}
	return list, h.changed
}

// parse reads the version of a list. It reports false if what changed since is not known.
func (h *Hub) parse(since string) (version int64, ok bool) {
	epoch, number, _ := strings.Cut(since, ".")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil || epoch != h.Epoch || version > h.version {
		return 0, false
	}
	return version, len(h.removed) < maxRemoved || version >= h.removed[0].version
}

// Get implements [fleet.Reader].
func (h *Hub) Get(_ context.Context, name string) (*fleet.Cluster, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastRead = h.Now()
	if _, ok := h.shown[name]; !ok {
		return nil, fleet.ErrNotFound
	}
	return h.describe(name), nil
}

// describe is called with the mutex held.
func (h *Hub) describe(name string) *fleet.Cluster {
	c := &fleet.Cluster{Name: name, Status: h.status(name), Labels: map[string]string{}, Refused: h.refused[name].text}
	if e := h.clusters[name]; e != nil {
		c.Received, c.Summary = e.Received.UTC(), e.Summary
		maps.Copy(c.Labels, e.Summary.Labels)
		if e.Skew.Abs() > skewShown {
			c.Skew = int(e.Skew.Seconds())
		}
	}
	if m := h.Registry.member(name); m != nil {
		maps.Copy(c.Labels, m.labels)
		if m.problem != "" {
			c.Refused = m.problem
		}
	}
	if h.Streams != nil {
		c.IsLinked = h.Streams.IsLinked(name) ||
			h.HasPeers && c.Status == fleet.Reporting && c.Summary != nil && c.Summary.HasStream
	}
	return c
}

// Linked says that the stream of a cluster was opened or has ended.
func (h *Hub) Linked(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.touch(name)
}
