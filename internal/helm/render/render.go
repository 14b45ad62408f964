// Package render renders the templates of charts in child processes, see [sandbox.Pool].
package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
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

// Options configure a [Renderer]. Zero values are defaults; see [sandbox.Options].
type Options struct {
	Executable string
	MaxMemory  int64         // bytes that a render may use
	Timeout    time.Duration // of one render
	Children   int
}

// Renderer renders charts in a pool of child processes. It is safe for concurrent use.
type Renderer struct{ pool *sandbox.Pool }

// New returns a renderer. It starts no process before the first render.
func New(o Options) *Renderer {
	return &Renderer{sandbox.New(sandbox.Options{Argument: childArgument, Work: "renders charts",
		Executable: o.Executable, MaxMemory: o.MaxMemory, Timeout: o.Timeout, Children: o.Children})}
}

// Close ends the children that are idle now or become idle later.
func (r *Renderer) Close() { r.pool.Close() }

// Render renders a chart. An error of the chart or its values is an [*Error]; all other errors name the chart and what
// to do. Render waits for a free child, of which the owner of ctx has a part. The child is killed if ctx ends.
func (r *Renderer) Render(ctx context.Context, q Request) (*Result, error) {
	values, err := encodeValues(q.Values)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the values: %w", err)
	}
	result, chart, err := r.ask(ctx, "rendering the chart "+q.ofRelease(), q.Lookup, func(c *sandbox.Child) error {
		err := c.SendJSON(kindRequest, wireRequest{Release: q.Release, Values: values, KubeVersion: q.KubeVersion,
			KubeMajor: q.KubeMajor, KubeMinor: q.KubeMinor, APIVersions: q.APIVersions, Lookup: q.Lookup != nil,
			AllowDNS: q.AllowDNS, SkipSchemaValidation: q.SkipSchemaValidation})
		if err != nil {
			return err
		}
		return c.Send(kindArchive, q.Chart)
	})
	return result, r.explainChart(err, q, chart)
}

// explainChart is [Renderer.explain] for a chart, whose name may not be known.
func (r *Renderer) explainChart(err error, q Request, chart string) error {
	return r.explain(err, "chart "+cmp.Or(chart, q.ofRelease()), "Run 'helm template' on the chart to reproduce it. "+
		"Other releases are not affected")
}

// ask sends a request to a child and serves lookups until the child answers. What says what the memory is for. It also
// returns the name and version of the chart, if the child has sent them.
func (r *Renderer) ask(ctx context.Context, what string, lookup Lookup, send func(*sandbox.Child) error) (
	result *Result, chart string, err error) {
	var own *Error
	err = r.pool.Do(ctx, what, func(ctx context.Context, c *sandbox.Child) error {
		t := conversation{receive: c.Receive, answer: c.SendJSON, lookups: lookups{lookup: lookup}}
		err := send(c)
		if err == nil {
			result, err = t.converse(ctx)
		}
		if chart = t.chart; errors.As(err, &own) {
			return nil
		}
		return err
	})
	if err == nil && own != nil {
		err = own
	}
	return result, chart, err
}

// explain adds to an error that is not that of the templates what was rendered, and what to do.
func (r *Renderer) explain(err error, what, crashHint string) error {
	var ended *sandbox.Ended
	if !errors.As(err, &ended) {
		return err
	}
	f := fault.New("", "cannot render %s", what)
	because := func(format string, args ...any) *fault.Fault { return f.Because(fmt.Errorf(format, args...)) }
	var large *outputError
	switch {
	case errors.As(err, &large):
		return f.Because(large).WithHint("Look for a loop in the file, or split the chart into several releases")
	case ended.Kind == sandbox.Killed:
		f.Reason = guard.ReasonWaitingForMemory
		return because("the process that renders its templates was killed from outside").WithHint("The container " +
			"has probably too little memory: it is tried again. If it happens often, raise the memory limit of the " +
			"controller")
	case ended.Kind == sandbox.OutOfTime:
		return because("its templates did not finish within %s", r.pool.Timeout).
			WithHint("Look for a template that loops, or that calls 'lookup' or 'include' very often")
	case ended.Kind == sandbox.OutOfMemory:
		return because("its templates use more than %d MiB of memory", r.pool.MaxMemory>>20).
			WithHint("Look for a template that loops, includes itself, or repeats a text very often")
	case ended.Kind == sandbox.TooMuchOutput:
		return because("its templates render more than %d MiB", maxOutput>>20).
			WithHint("Look for a loop in the file, or split the chart into several releases")
	}
	return because("the process that renders its templates ended (%s)", ended.Detail).WithHint("%s", crashHint)
}
