// Package render renders the templates of charts in child processes. A template can loop or allocate without end, and
// Go cannot stop it; a process can be killed. A child is this binary, started again: see [RunChild].
package render

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// Request is what to render.
type Request struct {
	Chart   []byte // the archive (.tgz)
	Release Release
	Values  map[string]any // of the release, before the defaults of the chart
	// KubeVersion is the version of the target cluster, such as v1.34.1.
	KubeVersion string
	// KubeMajor and KubeMinor are as the server reports them, such as "1" and "34+". Empty: taken from KubeVersion.
	KubeMajor, KubeMinor string
	APIVersions          []string // for .Capabilities.APIVersions
	Lookup               Lookup   // for the function lookup of templates; nil: it finds nothing
	AllowDNS             bool     // getHostByName resolves names
	SkipSchemaValidation bool
}

// ofRelease names the chart by its release, as long as its own name is not known.
func (q *Request) ofRelease() string {
	return "of release '" + q.Release.Namespace + "/" + q.Release.Name + "'"
}

// Release is what templates see as .Release.
type Release struct {
	Name, Namespace      string
	Revision             int
	IsInstall, IsUpgrade bool
}

// Lookup reads an object, or a list if name is empty. It returns an empty map for an object that does not exist.
type Lookup func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error)

// Result is a rendered chart.
type Result struct {
	// Files are all rendered templates, hooks and NOTES.txt included, in the order in which the engine renders them.
	Files  []File
	Values map[string]any // of the release, completed by the defaults of the chart and its dependencies
}

// File is a rendered template. Its name starts with the name of the chart.
type File struct{ Name, Content string }

// Error is an error of the chart or of its values, in Helm's words. The same request fails in the same way.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

// Options configure a [Renderer]. Zero values are defaults.
type Options struct {
	Executable string        // the binary that children run; default: the running one
	MaxMemory  int64         // bytes that a render may use; default: a quarter of the process's, at most 512 MiB
	Timeout    time.Duration // of one render; default: 1 minute
	Children   int           // processes at a time, of which some are for other namespaces; default: 4 or more
}

const (
	defaultMemory  = 512 << 20
	defaultTimeout = time.Minute
	idleTTL        = time.Minute // an unused child exits after this
	minChildren    = 4           // so that templates of one namespace that do not end leave children to others
)

// Renderer renders charts in a pool of child processes. It is safe for concurrent use.
type Renderer struct {
	options Options
	turns   *guard.Turns // of the children that may run, by namespace

	mu     sync.Mutex
	idle   []*child
	closed bool
}

// New returns a renderer. It starts no process before the first render.
func New(o Options) *Renderer {
	if o.MaxMemory <= 0 {
		o.MaxMemory = min(defaultMemory, guard.MemoryLimit()/4)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Children <= 0 {
		o.Children = max(minChildren, min(runtime.NumCPU(), int(guard.MemoryLimit()/o.MaxMemory)))
	}
	return &Renderer{options: o, turns: guard.NewTurns(o.Children)}
}

// Render renders a chart. An error of the chart or its values is an [*Error]; all other errors name the chart and what
// to do. Render waits for a free child, of which the owner of ctx has a part. The child is killed if ctx ends.
func (r *Renderer) Render(ctx context.Context, q Request) (*Result, error) {
	result, c, err := r.do(ctx, func(ctx context.Context, c *child) (*Result, error) { return c.render(ctx, q) })
	return result, explainChart(err, q, c)
}

// explainChart is [explain] for a chart. The child may be nil.
func explainChart(err error, q Request, c *child) error {
	name := q.ofRelease()
	if c != nil && c.chart != "" {
		name = c.chart
	}
	return explain(err, "chart "+name, "Run 'helm template' on the chart to reproduce it. Other releases are not "+
		"affected")
}

// do runs a request in a free child, which it returns; nil if there is none.
func (r *Renderer) do(ctx context.Context,
	ask func(context.Context, *child) (*Result, error)) (*Result, *child, error) {
	done, err := r.turns.Take(ctx, guard.OwnerOf(ctx))
	if err != nil {
		return nil, nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, errTimeout)
	defer cancel()

	c, reused, err := r.take()
	if err != nil {
		return nil, nil, err
	}
	result, err := ask(ctx, c)
	if reused && c.exited() && wasLost(err) { // for example killed from outside while it was idle
		if c, err = start(r.options); err != nil {
			return nil, nil, err
		}
		result, err = ask(ctx, c)
	}
	r.put(c)
	return result, c, err
}

// Close ends the children that are idle now or become idle later.
func (r *Renderer) Close() {
	r.mu.Lock()
	idle := r.idle
	r.idle, r.closed = nil, true
	r.mu.Unlock()
	for _, c := range idle {
		c.kill()
	}
}

// take returns an idle child, or a new one.
func (r *Renderer) take() (c *child, reused bool, err error) {
	r.mu.Lock()
	for len(r.idle) > 0 {
		c = r.idle[len(r.idle)-1]
		r.idle = r.idle[:len(r.idle)-1]
		if c.expiry.Stop() && !c.exited() {
			r.mu.Unlock()
			return c, true, nil
		}
	}
	r.mu.Unlock()
	c, err = start(r.options)
	return c, false, err
}

// put keeps a child that still runs for the next render.
func (r *Renderer) put(c *child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !c.ready {
		c.kill()
		return
	}
	c.expiry = guard.AfterFunc("the end of a rendering process", idleTTL, c.kill)
	r.idle = append(r.idle, c)
}

// explain adds to an error that is not that of the templates what was rendered, and what to do.
func explain(err error, what, crashHint string) error {
	var ended *endedError
	if !asEnded(err, &ended) {
		return err
	}
	f := fault.New("", "cannot render %s", what).Because(ended)
	switch ended.kind {
	case endedKilled:
		f.Reason = guard.ReasonWaitingForMemory
		return f.WithHint("The container has probably too little memory: it is tried again. If it happens often, " +
			"raise the memory limit of the controller")
	case endedTime:
		return f.WithHint("Look for a template that loops, or that calls 'lookup' or 'include' very often")
	case endedMemory:
		return f.WithHint("Look for a template that loops, includes itself, or repeats a text very often")
	case endedOutput:
		return f.WithHint("Look for a loop in the file, or split the chart into several releases")
	}
	return f.WithHint("%s", crashHint)
}
