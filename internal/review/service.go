package review

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/review/preview"
)

const (
	workers     = 2                // one of them makes urgent reviews of allowed authors only
	maxDetails  = 64 << 20         // bytes of all details in memory
	lookPeriod  = 2 * time.Second  // least time between two looks at a repository
	lookLimit   = time.Minute      // for a look
	reviewLimit = 2 * time.Minute  // for a review
	postLimit   = 30 * time.Second // for what is sent to the host
)

// Options are what the service needs.
type Options struct {
	Config *Config
	Dir    string // for repositories; what is in it can be lost
	// Kubernetes is the cluster that changes are compared with; nil to compare what is rendered. See [ReadOnly].
	Kubernetes *rest.Config
	Client     client.Client // of Kubernetes
	PageURL    string        // of the web UI; empty if it has no address
	// Posts reports whether this replica writes comments and statuses; nil if it is the only one.
	Posts func() bool
	Log   logr.Logger
	Clock clock.PassiveClock
	// Transport sends requests to git hosts; nil for that of a policy which refuses link-local addresses.
	Transport http.RoundTripper
}

// Service reviews pull requests.
type Service struct {
	Options
	repositories map[string]*watched
	names        []string // sorted
	cluster      *preview.Cluster
	registries   *registries
	apps         *auth.GitHubApps
	caches       map[bool]*preview.Cache // of allowed authors, and of strangers
	hooks        chan struct{}

	mu          sync.Mutex
	work        *sync.Cond // signals queue and done
	queue       []task     // the urgent ones first
	done        bool
	details     int64 // bytes
	subscribers map[chan struct{}]bool
}

// task is a job of a repository.
type task struct {
	of *watched
	job
}

// watched is a repository with what is known of its pull requests.
type watched struct {
	config *Repository
	host   *githost.Client
	mirror *preview.Mirror
	woken  chan struct{} // has room for one

	// Guarded by Service.mu:
	pulls  map[int]*entry
	looked bool
	err    string // of the last look
}

// entry is a pull request.
type entry struct {
	known
	listed  githost.ListedRequest
	pull    *githost.Pull // of listed.Commit
	summary Summary
	detail  []byte // compressed; nil if there is none, or it was evicted
	posted  string // comment
	status  githost.Status
}

// New returns a service.
func New(o Options) (*Service, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	s := &Service{Options: o, repositories: map[string]*watched{}, hooks: make(chan struct{}, maxHooks),
		subscribers: map[chan struct{}]bool{}, caches: map[bool]*preview.Cache{true: {}, false: {}}}
	s.work = sync.NewCond(&s.mu)
	var err error
	if s.registries, err = newRegistries(o.Clock.Now); err != nil {
		return nil, err
	}
	if o.Transport == nil {
		if s.Transport, err = (&egress.Policy{RefuseLinkLocal: true}).Transport(egress.Options{}); err != nil {
			return nil, err
		}
	}
	if o.Kubernetes != nil {
		target, err := apply.NewCluster(o.Kubernetes, apply.ClusterOptions{})
		if err != nil {
			return nil, err
		}
		s.cluster = &preview.Cluster{Client: o.Client, Config: o.Kubernetes, Target: target}
	}
	s.apps = &auth.GitHubApps{Clock: o.Clock}
	for _, r := range o.Config.Repositories {
		host, err := githost.New(githost.Options{Repository: r.repository, Transport: s.Transport, Secret: r.secret,
			Apps: s.apps})
		if err != nil {
			return nil, fmt.Errorf("repository '%s': %w", r.Name, err)
		}
		s.repositories[r.Name] = &watched{config: r, host: host, woken: make(chan struct{}, 1), pulls: map[int]*entry{},
			mirror: &preview.Mirror{Dir: filepath.Join(o.Dir, r.Name), URL: r.cloneURL(),
				Login: r.cloneLogin(s.apps, s.Transport)}}
		s.names = append(s.names, r.Name)
	}
	slices.Sort(s.names)
	return s, os.MkdirAll(o.Dir, 0o700)
}

// Run reviews until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var all guard.WaitGroup
	for _, name := range s.names {
		w := s.repositories[name]
		all.Go("watching pull requests", func() {
			guard.Keep(ctx, "watching pull requests", func() { s.watch(ctx, w) })
		})
	}
	for n := range workers {
		all.Go("reviewing", func() { guard.Keep(ctx, "reviewing", func() { s.review(ctx, n > 0) }) })
	}
	<-ctx.Done()
	s.mu.Lock()
	s.done = true
	s.work.Broadcast()
	s.mu.Unlock()
	all.Wait()
	s.close()
	return nil
}

func (s *Service) close() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

// Once reviews all pull requests once. It returns the summaries.
func (s *Service) Once(ctx context.Context) ([]Summary, error) {
	defer s.close()
	for _, name := range s.names {
		w := s.repositories[name]
		if err := s.look(ctx, w); err != nil {
			return nil, fmt.Errorf("repository '%s': %w", name, err)
		}
	}
	s.mu.Lock()
	s.done = true // workers end when the queue is empty
	s.mu.Unlock()
	s.review(ctx, false)
	return s.List(), ctx.Err()
}

// wake causes a look at the pull requests soon. Any number of calls cause one.
func (w *watched) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// watch looks at the pull requests of a repository when a webhook arrived, and at intervals.
func (s *Service) watch(ctx context.Context, w *watched) {
	for {
		err := s.look(ctx, w)
		s.mu.Lock()
		w.err = ""
		if err != nil {
			w.err = err.Error()
			s.Log.Error(err, "cannot list pull requests", "repository", w.config.Name)
		}
		s.mu.Unlock()
		if !sleep(ctx, lookPeriod) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.woken:
		case <-time.After(s.Config.Interval.Duration):
		}
	}
}

// sleep reports whether ctx did not end meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// look lists the pull requests of a repository, and queues reviews.
func (s *Service) look(ctx context.Context, w *watched) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	var listed []githost.ListedRequest
	for l, err := range w.host.Requests(ctx) {
		if err != nil {
			return err
		}
		listed = append(listed, l)
	}
	bases, err := w.mirror.Branches(ctx)
	if err != nil {
		return err
	}
	state, err := s.clusterState(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	has := map[int]known{}
	for number, e := range w.pulls {
		has[number] = e.known
	}
	p := decide(w.config, listed, bases, state, has, s.Clock.Now())
	s.follow(w, p)
	return nil
}

// follow does what a plan says. The caller must hold mu.
func (s *Service) follow(w *watched, p plan) {
	for _, number := range p.forget {
		s.details -= int64(len(w.pulls[number].detail))
		delete(w.pulls, number)
	}
	isStart := !w.looked
	w.looked = true
	for number, l := range p.open {
		e := w.pulls[number]
		if e == nil {
			e = &entry{}
			w.pulls[number] = e
			if isStart {
				e.backlog = l.Commit
			}
		}
		if e.listed.Commit != l.Commit || e.listed.Base != l.Base {
			e.pull = nil
		}
		e.listed = l
		s.describe(w, e)
	}
	s.queue = slices.DeleteFunc(s.queue, func(t task) bool { return t.of == w })
	for _, j := range p.jobs {
		j.urgent = j.urgent && !isStart
		s.queue = append(s.queue, task{of: w, job: j})
		if e := w.pulls[j.number]; j.pushed {
			e.summary.State = Waiting
		}
	}
	slices.SortStableFunc(s.queue, func(a, b task) int { return rank(a.job) - rank(b.job) })
	s.work.Broadcast()
	s.changed()
}

// next waits for a task; false when the service ends.
func (s *Service) next(firstOnly bool) (task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if len(s.queue) > 0 && (s.queue[0].isFirst() || !firstOnly) {
			t := s.queue[0]
			s.queue = s.queue[1:]
			if e := t.of.pulls[t.number]; e != nil && !e.running {
				e.running, e.summary.State = true, Running
				s.changed()
				return t, true
			}
			continue
		}
		if s.done {
			return task{}, false
		}
		s.work.Wait()
	}
}

// review makes reviews until the service ends.
func (s *Service) review(ctx context.Context, firstOnly bool) {
	for ctx.Err() == nil {
		t, ok := s.next(firstOnly)
		if !ok {
			return
		}
		s.perform(ctx, t)
	}
}

// perform makes one review, keeps its result and tells the host.
func (s *Service) perform(ctx context.Context, t task) {
	began := time.Now()
	s.mu.Lock()
	e := t.of.pulls[t.number]
	if e == nil {
		s.mu.Unlock()
		return
	}
	listed, pull := e.listed, e.pull
	s.mu.Unlock()
	var detail *Detail
	err := guard.DoContext(ctx, "reviewing a pull request", func() (err error) {
		within, cancel := context.WithTimeout(ctx, reviewLimit)
		defer cancel()
		if pull == nil {
			p, err := t.of.host.Pull(within, t.number)
			if err != nil {
				return err
			}
			pull = &p
		}
		if t.pushed {
			s.post(ctx, t, e, statusOf(t.of.config, pull.Head, nil, s.page(t)), "")
		}
		detail, err = s.compute(within, t, listed, *pull)
		return err
	})
	s.keep(ctx, t, e, pull, detail, err, time.Since(began))
}

// keep stores the result of a review, and tells the host.
func (s *Service) keep(ctx context.Context, t task, e *entry, pull *githost.Pull, d *Detail, err error,
	took time.Duration) {
	if d == nil {
		d = &Detail{}
	}
	if err != nil {
		d.Error, d.Text = shorten(err), "the pull request could not be reviewed"
	}
	s.mu.Lock()
	now := s.Clock.Now()
	e.running, e.failed, e.evicted, e.at, e.inputs, e.pull = false, err != nil, false, now, t.inputs, pull
	e.summary = d.Summary
	e.summary.At, e.summary.Seconds, e.summary.State = &now, took.Seconds(), Done
	if err != nil {
		e.summary.State = Failed
	}
	s.describe(t.of, e)
	if pull != nil {
		e.summary.Commit = pull.Head
	}
	e.summary.Sandboxed = !t.inputs.trusted
	d.Summary = e.summary
	packed, packError := pack(d)
	if packError != nil {
		s.Log.Error(packError, "cannot keep a review")
	}
	isOpen := t.of.pulls[t.number] == e
	if isOpen {
		s.details += int64(len(packed)) - int64(len(e.detail))
		e.detail = packed
		s.evict(e)
	}
	s.changed()
	s.mu.Unlock()
	if isOpen && pull != nil && ctx.Err() == nil {
		body := comment(d, s.page(t), t.of.host.CommentMax(), t.of.host.RendersHTML())
		s.post(ctx, t, e, statusOf(t.of.config, pull.Head, d, s.page(t)), body)
	}
	t.of.wake() // the head may have changed meanwhile
}

// describe sets what the host says about a pull request. The caller must hold mu.
func (s *Service) describe(w *watched, e *entry) {
	l := e.listed
	e.summary.Repository, e.summary.Number, e.summary.Title = w.config.Name, int(l.Number), line(l.Title)
	e.summary.Author, e.summary.Branch, e.summary.Base = line(l.Author), line(l.Branch), line(l.Base)
	e.summary.URL = w.config.repository.RequestURL(int(l.Number))
}

// evict removes the oldest details until the others fit into memory. The caller must hold mu.
func (s *Service) evict(newest *entry) {
	for s.details > maxDetails {
		var oldest *entry
		for _, w := range s.repositories {
			for _, e := range w.pulls {
				if e != newest && e.detail != nil && (oldest == nil || e.at.Before(oldest.at)) {
					oldest = e
				}
			}
		}
		if oldest == nil {
			return
		}
		s.details -= int64(len(oldest.detail))
		oldest.detail = nil
	}
}

// page returns the address of the page of a review; empty if there is none.
func (s *Service) page(t task) string {
	if s.PageURL == "" {
		return ""
	}
	return fmt.Sprintf("%s/reviews/%s/%d", strings.TrimSuffix(s.PageURL, "/"), t.of.config.Name, t.number)
}

// List returns the summaries of all open pull requests, the newest of each repository first.
func (s *Service) List() []Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Summary{}
	for _, name := range s.names {
		of := s.repositories[name].pulls
		numbers := make([]int, 0, len(of))
		for n := range of {
			numbers = append(numbers, n)
		}
		slices.Sort(numbers)
		for _, n := range slices.Backward(numbers) {
			out = append(out, of[n].summary)
		}
	}
	return out
}

// Problems returns why pull requests of repositories cannot be listed, by name.
func (s *Service) Problems() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, w := range s.repositories {
		if w.err != "" {
			out[name] = w.err
		}
	}
	return out
}

// Detail returns a review as JSON; false if the pull request is not open. A review whose details are not in memory is
// made again, and is its summary until then.
func (s *Service) Detail(repository string, number int) (json.RawMessage, bool, error) {
	s.mu.Lock()
	w := s.repositories[repository]
	if w == nil || w.pulls[number] == nil {
		s.mu.Unlock()
		return nil, false, nil
	}
	e := w.pulls[number]
	packed, summary := e.detail, e.summary
	if packed == nil && !e.at.IsZero() && !e.running {
		e.evicted = true
		w.wake()
	}
	s.mu.Unlock()
	if packed == nil {
		content, err := json.Marshal(Detail{Summary: summary})
		return content, true, err
	}
	content, err := unpack(packed)
	return content, true, err
}

// Subscribe returns a channel that gets a value after changes. Stop ends it.
func (s *Service) Subscribe() (changes <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	s.subscribers[c] = true
	s.mu.Unlock()
	return c, func() {
		s.mu.Lock()
		delete(s.subscribers, c)
		s.mu.Unlock()
	}
}

// changed tells the subscribers. The caller must hold mu.
func (s *Service) changed() {
	for c := range s.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
