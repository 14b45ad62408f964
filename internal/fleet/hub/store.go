package hub

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fleet"
)

const (
	storePrefix = "fleet/v1/"

	flushInterval     = time.Second      // between batches of new summaries
	heartbeatInterval = 30 * time.Second // between batches of times at which clusters reported without a change
	watchInterval     = time.Second      // between looks for batches of other replicas, while someone reads
	idleInterval      = 30 * time.Second // the same, without readers
	readersStay       = time.Minute
	maxBatches        = 64 // above that, a replica replaces all by one
	storeTimeout      = 20 * time.Second
	maxStoreRetry     = 30 * time.Second
	maxBatch          = 256 << 20          // bytes, uncompressed
	maxEntry          = 8 * fleet.MaxBytes // some letters need six bytes in it
	maxStrangers      = 100                // clusters that may be registered in a moment
)

// Store shares summaries with other replicas, and keeps them for a restart, in a backend. A file in it is a batch: what
// one replica received since its last batch. Batches can be merged in any order and more than once, so replicas need no
// agreement: the latest entry of a cluster wins. When there are many, any replica writes one batch of all that it
// knows, and removes those that it has read.
type Store struct {
	Backend artifact.Backend
	Replica string
	Log     logr.Logger
	Now     func() time.Time

	mu         sync.Mutex
	summaries  map[string]*entry // that are new
	heartbeats map[string]*entry

	loaded    bool
	known     map[string]bool // names of batches that were read or written; used by one goroutine
	sequence  int
	failures  int
	heartbeat time.Time // when the last batch of heartbeats was written
}

// NewStore returns a store of a replica, whose name is random.
func NewStore(b artifact.Backend, replica string, log logr.Logger, now func() time.Time) *Store {
	return &Store{Backend: b, Replica: replica, Log: log, Now: now, summaries: map[string]*entry{},
		heartbeats: map[string]*entry{}, known: map[string]bool{}}
}

// write queues an entry. Several entries of a cluster become one.
func (s *Store) write(e *entry, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.summaries[e.Name]; isNew || waits {
		s.summaries[e.Name] = e
		delete(s.heartbeats, e.Name)
		return
	}
	s.heartbeats[e.Name] = e
}

// Load reads all batches. The hub then knows what it knew before a restart.
func (s *Store) Load(ctx context.Context, h *Hub) error {
	s.heartbeat = s.Now()
	_, err := s.readNew(ctx, h)
	s.report(err)
	return err
}

// Run writes and reads until the context ends, and then writes what is left.
func (s *Store) Run(ctx context.Context, h *Hub) error {
	lastRead := s.Now()
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout/4)
			defer cancel()
			s.report(s.flush(last, true))
			return nil
		case <-tick.C:
		}
		if pause -= flushInterval; pause > 0 {
			continue
		}
		err := s.flush(ctx, s.Now().Sub(s.heartbeat) >= heartbeatInterval)
		if interval := readInterval(h); err == nil && (!s.loaded || s.Now().Sub(lastRead) >= interval) {
			var names []string
			if names, err = s.readNew(ctx, h); err == nil && len(names) > maxBatches {
				err = s.replace(ctx, h, names)
			}
			lastRead = s.Now()
		}
		pause = s.report(err)
	}
}

func readInterval(h *Hub) time.Duration {
	if h.isRead() {
		return watchInterval
	}
	return idleInterval
}

// report logs the first error of several, and returns how long to wait.
func (s *Store) report(err error) time.Duration {
	if err == nil {
		if s.failures > 0 {
			s.Log.Info("the storage of the hub works again")
		}
		s.failures = 0
		return 0
	}
	storeErrors.Inc()
	if s.failures == 0 {
		s.Log.Error(err, "the storage of the hub does not work: summaries are kept in memory, other replicas do not "+
			"see "+
			"them, and a restart waits for the reports of the clusters. Check --storage-path or --storage-backend-s3-*")
	}
	s.failures++
	return min(flushInterval<<min(s.failures, 6), maxStoreRetry)
}

// flush writes the summaries that are new, and with them or with withHeartbeats the heartbeats.
func (s *Store) flush(ctx context.Context, withHeartbeats bool) error {
	var heartbeats map[string]*entry
	s.mu.Lock()
	summaries := s.summaries
	s.summaries = map[string]*entry{}
	if withHeartbeats {
		heartbeats, s.heartbeats = s.heartbeats, map[string]*entry{}
		s.heartbeat = s.Now()
	}
	s.mu.Unlock()
	var batch []*entry
	for _, e := range heartbeats {
		if summaries[e.Name] == nil {
			alive := *e
			alive.Summary, alive.Retired = nil, nil
			batch = append(batch, &alive)
		}
	}
	batch = slices.AppendSeq(batch, maps.Values(summaries))
	if len(batch) == 0 {
		return nil
	}
	err := s.put(ctx, batch)
	if err != nil {
		s.requeue(summaries, heartbeats)
	}
	return err
}

// requeue queues what could not be written, unless there is something newer.
func (s *Store) requeue(summaries, heartbeats map[string]*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, e := range summaries {
		newer := s.heartbeats[name]
		delete(s.heartbeats, name)
		if s.summaries[name] == nil {
			s.summaries[name] = e
			if newer != nil {
				s.summaries[name] = newer
			}
		}
	}
	for name, e := range heartbeats {
		if s.summaries[name] == nil && s.heartbeats[name] == nil {
			s.heartbeats[name] = e
		}
	}
}

// put writes a batch.
func (s *Store) put(ctx context.Context, batch []*entry) error {
	var b bytes.Buffer
	if err := compress(&b, batch); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s.sequence++
	name := fmt.Sprintf("%s%016x-%s-%d.json.gz", storePrefix, s.Now().UnixNano(), s.Replica, s.sequence)
	if err := s.Backend.Put(ctx, name, bytes.NewReader(b.Bytes()), int64(b.Len())); err != nil {
		return err
	}
	s.known[name] = true
	return nil
}

// readNew reads the batches that are not known, and returns the names of all.
func (s *Store) readNew(ctx context.Context, h *Hub) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	files, err := s.Backend.List(ctx, storePrefix)
	if err != nil {
		return nil, err
	}
	exist := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".json.gz") {
			names = append(names, f.Name)
			exist[f.Name] = true
		}
	}
	maps.DeleteFunc(s.known, func(name string, _ bool) bool { return !exist[name] })
	h.forget()
	found := &found{summaries: map[string]*entry{}, heartbeats: map[string]*entry{}, isKnown: h.Registry.Has}
	for _, name := range names {
		if s.known[name] {
			continue
		}
		if err = s.get(ctx, name, found.add); errors.Is(err, fs.ErrNotExist) {
			err = nil // another replica has replaced it
			continue
		}
		if err != nil {
			break
		}
		s.known[name] = true
	}
	if len(found.strangers) > 0 {
		s.Log.Info("the storage of the hub has reports of clusters that are not registered; they are not shown",
			"clusters", len(found.strangers), "one", found.one)
	}
	h.merge(slices.Collect(maps.Values(found.summaries)))
	h.merge(slices.Collect(maps.Values(found.heartbeats))) // each counts only for a summary that is known
	s.loaded = err == nil
	return names, err
}

// found is what was read of batches: the latest of each cluster.
type found struct {
	summaries, heartbeats map[string]*entry
	isKnown               func(cluster string) bool
	strangers             map[string]bool // clusters that are not registered, or not yet
	one                   string          // of them
}

func (f *found) add(e *entry) {
	if !f.isKnown(e.Name) {
		if len(f.strangers) >= maxStrangers {
			return
		}
		if f.strangers == nil {
			f.strangers = map[string]bool{}
		}
		f.strangers[e.Name], f.one = true, e.Name
	}
	to := f.summaries
	if e.Summary == nil {
		to = f.heartbeats
	}
	if e.isNewer(to[e.Name]) {
		to[e.Name] = e
	}
}

// get reads a batch. What cannot be read of it is skipped: the clusters report again.
func (s *Store) get(ctx context.Context, name string, add func(*entry)) error {
	body, _, err := s.Backend.Get(ctx, name)
	if err != nil {
		return err
	}
	defer body.Close()
	from := &remembering{Reader: body}
	if err := decode(from, s.Now(), add); from.err != nil {
		return from.err
	} else if err != nil {
		s.Log.Error(err, "a file in the storage of the hub is skipped, or a part of it", "file", name)
	}
	return nil
}

// remembering is a reader that keeps its error, to tell it from one of the content.
type remembering struct {
	io.Reader
	err error
}

func (r *remembering) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// rationed is a reader of an entry at a time.
type rationed struct {
	io.Reader
	left int
}

var errLarge = fmt.Errorf("an entry is larger than %d bytes", maxEntry)

func (r *rationed) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errLarge
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// decode reads the entries of a batch, which anybody may have written who can write to the storage. The error is that of
// the first part that is skipped.
func decode(from io.Reader, now time.Time, add func(*entry)) (skipped error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	ration := &rationed{Reader: io.LimitReader(z, maxBatch), left: maxEntry}
	d := json.NewDecoder(ration)
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return errors.Join(errors.New("it is not a list"), err)
	}
	for ; d.More(); ration.left = maxEntry {
		var e *entry
		if err := d.Decode(&e); err != nil {
			return err
		}
		if err := e.validate(now); err != nil {
			skipped = cmp.Or(skipped, err)
			continue
		}
		add(e)
	}
	_, err = d.Token()
	return cmp.Or(err, skipped)
}

// validate returns an error if an entry is not one that a replica makes.
func (e *entry) validate(now time.Time) error {
	switch {
	case e == nil:
		return errors.New("an entry is empty")
	case e.Received.Sub(now) > fleet.MaxSkew:
		return fmt.Errorf("an entry is of the future: %s", e.Received.UTC().Format(time.RFC3339))
	case len(e.Retired) > maxRetired:
		return errors.New("an entry has too many instances")
	}
	r := fleet.Report{Cluster: e.Name, Instance: e.Instance, Sequence: e.Sequence, Summary: e.Summary}
	return r.Validate(now)
}

// replace writes one batch of all that the hub knows, and removes those with the names, which it has read.
func (s *Store) replace(ctx context.Context, h *Hub, names []string) error {
	all := h.entries()
	if len(all) > 0 {
		if err := s.put(ctx, all); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for _, name := range names {
		if err := s.Backend.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// compress writes a value as JSON with gzip.
func compress(w io.Writer, value any) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(z).Encode(value), z.Close())
}
