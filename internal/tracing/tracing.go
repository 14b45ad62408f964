// Package tracing exports how a change travels as one OpenTelemetry trace, from the push to Ready.
//
// The trace of a change begins when its source stores an artifact. The metadata of the artifact names the trace, so
// that every process that handles the artifact later continues it: other controllers, other shards, and the same
// controller after a restart. Nothing else is stored.
package tracing

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	// maxSteps bounds the steps of a pass that are exported.
	maxSteps = 32
	// maxText bounds texts in spans, in bytes.
	maxText = 512
	// maxRequestAge bounds how long before a pass a request may have been made: its time is what a user wrote.
	maxRequestAge = 10 * time.Minute
)

// header is the name of a trace and of a span in it, as W3C Trace Context defines it
// (https://www.w3.org/TR/trace-context/#traceparent-header).
const header = "traceparent"

// Tracer exports traces. A nil Tracer exports nothing.
type Tracer struct {
	tracer trace.Tracer
	url    string // of a trace, with idPlaceholder; "" for none
}

// idPlaceholder is replaced by the ID of a trace in --trace-url.
const idPlaceholder = "{traceID}"

// Link returns the URL of a trace for people, empty if it is not known.
func (t *Tracer) Link(id string) string {
	if t == nil {
		return ""
	}
	return Link(t.url, id)
}

// Link returns the URL of a trace by --trace-url, empty if one of them is.
func Link(url, id string) string {
	if id == "" {
		return ""
	}
	return strings.ReplaceAll(url, idPlaceholder, id)
}

// ID returns the ID of the trace that a traceparent names, in lower-case hexadecimal digits; empty if it names none.
func ID(traceparent string) string {
	if s := parse(traceparent); s.IsValid() {
		return s.TraceID().String()
	}
	return ""
}

// parse returns the span that a traceparent names. What it cannot read names no span.
func parse(traceparent string) trace.SpanContext {
	carrier := propagation.MapCarrier{header: traceparent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// format returns the traceparent of a span.
func format(s trace.Span) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s), carrier)
	return carrier[header]
}

// Pass collects the steps of one pass of an object. A nil Pass collects nothing.
type Pass struct {
	tracer trace.Tracer
	now    func() time.Time
	began  time.Time

	mu      sync.Mutex
	asked   time.Time
	steps   []Step
	change  trace.Span // of the change that begins in this pass
	parent  string     // its traceparent
	dropped int
}

// Step is a part of the way of a change.
type Step struct {
	Name       string
	Start, End time.Time
	Err        error
}

type passKey struct{}

// Start begins a pass. Steps of the returned context are collected.
func (t *Tracer) Start(ctx context.Context, now func() time.Time) (context.Context, *Pass) {
	if t == nil {
		return ctx, nil
	}
	began := now()
	p := &Pass{tracer: t.tracer, now: now, began: began, asked: began}
	return context.WithValue(ctx, passKey{}, p), p
}

func passOf(ctx context.Context) *Pass {
	p, _ := ctx.Value(passKey{}).(*Pass)
	return p
}

// Asked records when the pass was asked for, such as by a webhook: as RFC 3339. Times that cannot be are ignored.
func (p *Pass) Asked(at string) {
	if p == nil {
		return
	}
	asked, err := time.Parse(time.RFC3339Nano, at)
	if err == nil && asked.Before(p.began) && asked.After(p.began.Add(-maxRequestAge)) {
		p.asked = asked
	}
}

// Begin begins a step of the pass of a context, and returns the function that ends it.
func Begin(ctx context.Context, name string) (end func(error)) {
	p := passOf(ctx)
	if p == nil {
		return func(error) {}
	}
	start := p.now()
	return func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.steps) == maxSteps {
			p.dropped++
			return
		}
		p.steps = append(p.steps, Step{Name: name, Start: start, End: p.now(), Err: err})
	}
}

// Change begins the trace of a change in the pass of a context, and returns its traceparent; empty if no traces are
// exported. If parent names a trace, such as that of the program that pushed, the change is part of it.
func Change(ctx context.Context, parent string) (traceparent string) {
	p := passOf(ctx)
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.change == nil {
		above := trace.ContextWithRemoteSpanContext(context.Background(), parse(parent))
		_, p.change = p.tracer.Start(above, "change", trace.WithTimestamp(p.asked))
		p.parent = format(p.change)
	}
	return p.parent
}

// Summary is what a pass has done, for its span.
type Summary struct {
	// Traceparent names the trace that the pass belongs to. The pass that begins a change needs none.
	Traceparent string
	// Name of the span.
	Name string
	// Attributes of the span, and of the change if it begins here.
	Attributes map[string]string
	// Failure is the message of a pass that failed; empty for the others.
	Failure string
	// Waited is what the object waited for before the pass; the zero value for nothing.
	Waited Step
}

// Began reports whether the trace of a change began in this pass.
func (p *Pass) Began() bool { return p != nil && p.change != nil }

// End exports the pass as part of the trace of its change. Without a trace, nothing is exported.
func (p *Pass) End(s Summary) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	end, attributes := p.now(), attributesOf(s.Attributes)
	above := trace.ContextWithRemoteSpanContext(context.Background(), parse(s.Traceparent))
	if p.change != nil {
		p.change.SetAttributes(attributes...)
		above = trace.ContextWithSpan(context.Background(), p.change)
		if p.asked.Before(p.began) {
			p.export(above, Step{Name: "request", Start: p.asked, End: p.began})
		}
		defer p.change.End(trace.WithTimestamp(end))
	} else if !trace.SpanContextFromContext(above).IsValid() {
		return
	}
	if w := s.Waited; w.Name != "" && w.Start.Before(p.began) {
		w.Name, w.End = s.Name+": "+w.Name, p.began
		p.export(above, w, attributes...)
	}
	inside, span := p.tracer.Start(above, s.Name, trace.WithTimestamp(p.began), trace.WithAttributes(attributes...))
	for _, step := range p.steps {
		p.export(inside, step)
	}
	if p.dropped > 0 {
		span.SetAttributes(attribute.Int("sluice.steps.dropped", p.dropped))
	}
	if s.Failure != "" {
		span.SetStatus(codes.Error, excerpt.Bytes(s.Failure, maxText))
	}
	span.End(trace.WithTimestamp(end))
}

// export exports a step as a span.
func (p *Pass) export(above context.Context, s Step, attributes ...attribute.KeyValue) {
	_, span := p.tracer.Start(above, s.Name, trace.WithTimestamp(s.Start), trace.WithAttributes(attributes...))
	if s.Err != nil {
		span.SetStatus(codes.Error, excerpt.Bytes(s.Err.Error(), maxText))
	}
	span.End(trace.WithTimestamp(s.End))
}

func attributesOf(texts map[string]string) []attribute.KeyValue {
	var all []attribute.KeyValue
	for key, value := range texts {
		if value != "" {
			all = append(all, attribute.String(key, excerpt.Bytes(value, maxText)))
		}
	}
	return all
}
