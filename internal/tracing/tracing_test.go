package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sluice-gitops/sluice/internal/tracing"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// newTracer returns a tracer of a collector, and the function that exports the last spans.
func newTracer(t *testing.T, s *spans) (*tracing.Tracer, func()) {
	t.Helper()
	tracer, stop, err := tracing.New(t.Context(), tracing.Options{Endpoint: s.URL,
		URL: "https://traces.example.com/{traceID}"}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return tracer, stop
}

// clock returns a clock that advances by a second with each reading.
func clock(at time.Time) func() time.Time {
	return func() time.Time {
		at = at.Add(time.Second)
		return at
	}
}

func TestPassesContinueTheTraceOfTheirArtifact(t *testing.T) {
	s := newCollector(t)
	tracer, stop := newTracer(t, s)
	ctx, source := tracer.Start(t.Context(), clock(start))
	source.Asked(start.Add(-5 * time.Second).Format(time.RFC3339Nano))
	tracing.Begin(ctx, "resolve")(nil)
	header := tracing.Change(ctx, "")
	if again := tracing.Change(ctx, ""); again != header || tracing.ID(header) == "" || !source.Began() {
		t.Fatalf("%q %q", header, again)
	}
	source.End(tracing.Summary{Name: "GitRepository a/fleet", Attributes: map[string]string{"sluice.revision": "v1"}})

	ctx, app := tracer.Start(t.Context(), clock(start.Add(time.Minute)))
	tracing.Begin(ctx, "apply and prune")(errors.New("denied"))
	app.End(tracing.Summary{Traceparent: header, Name: "Kustomization a/app", Failure: "denied",
		Waited: tracing.Step{Name: "at gates", Start: start.Add(10 * time.Second)}})
	stop()

	change := s.one("change")
	if len(change.ParentSpanId) != 0 || fmt.Sprintf("%x", change.TraceId) != tracing.ID(header) ||
		change.StartTimeUnixNano != uint64(start.Add(-5*time.Second).UnixNano()) ||
		attributeOf(change, "sluice.revision") != "v1" {
		t.Errorf("%v", change)
	}
	for child, parent := range map[string]string{"request": "change", "GitRepository a/fleet": "change",
		"resolve": "GitRepository a/fleet", "Kustomization a/app: at gates": "change", "Kustomization a/app": "change",
		"apply and prune": "Kustomization a/app"} {
		c, p := s.one(child), s.one(parent)
		if !bytes.Equal(c.ParentSpanId, p.SpanId) || !bytes.Equal(c.TraceId, p.TraceId) ||
			c.EndTimeUnixNano < c.StartTimeUnixNano {
			t.Errorf("%s is not part of %s:\n%s", child, parent, s)
		}
	}
	failed := s.one("Kustomization a/app").Status
	if failed.GetCode() != tracev1.Status_STATUS_CODE_ERROR || failed.GetMessage() != "denied" {
		t.Errorf("%v", failed)
	}
	if none := tracing.Link("https://traces.example.com/{traceID}", ""); none != "" {
		t.Error(none)
	}
	if link := tracer.Link(tracing.ID(header)); link != "https://traces.example.com/"+tracing.ID(header) {
		t.Error(link)
	}
}

func TestTraceOfThePusherIsContinued(t *testing.T) {
	s := newCollector(t)
	tracer, stop := newTracer(t, s)
	const pushed = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx, p := tracer.Start(t.Context(), clock(start))
	if id := tracing.ID(tracing.Change(ctx, pushed)); id != "0af7651916cd43dd8448eb211c80319c" {
		t.Error(id)
	}
	p.End(tracing.Summary{Name: "OCIRepository a/app"})
	stop()
	if parent := fmt.Sprintf("%x", s.one("change").ParentSpanId); parent != "b7ad6b7169203331" {
		t.Error(parent)
	}
}

// What others wrote must neither begin nor extend a trace, and must not grow without bound.
func TestInvalidInputIsNotExported(t *testing.T) {
	s := newCollector(t)
	tracer, stop := newTracer(t, s)
	for _, header := range []string{"", "x", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", strings.Repeat("0", 1<<20), "\x00", "ff-a-b-c"} {
		if id := tracing.ID(header); id != "" {
			t.Errorf("%.60q has the ID %s", header, id)
		}
		ctx, p := tracer.Start(t.Context(), clock(start))
		tracing.Begin(ctx, "build")(nil)
		p.End(tracing.Summary{Traceparent: header, Name: "Kustomization a/app"})
	}
	for _, asked := range []string{"", "now", "2026-11-23T13:00:00Z", "1970-01-01T00:00:00Z"} {
		ctx, p := tracer.Start(t.Context(), clock(start))
		p.Asked(asked)
		tracing.Change(ctx, "")
		for range 100 {
			tracing.Begin(ctx, "step")(errors.New(strings.Repeat("x", 1<<20)))
		}
		p.End(tracing.Summary{Name: "Bucket a/b", Failure: strings.Repeat("y", 1<<20)})
	}
	stop()
	if found := s.find("Kustomization a/app"); len(found) != 0 {
		t.Errorf("%d spans have no trace", len(found))
	}
	if found := s.find("request"); len(found) != 0 {
		t.Errorf("%d passes were asked for at invalid times", len(found))
	}
	steps := s.find("step")
	if len(steps) != 4*32 || len(steps[0].Status.Message) > 600 {
		t.Errorf("%d steps, message of %d bytes", len(steps), len(steps[0].Status.Message))
	}
}

func TestWithoutACollectorNothingIsDone(t *testing.T) {
	tracer, stop, err := tracing.New(t.Context(), tracing.Options{}, logr.Discard())
	if tracer != nil || err != nil {
		t.Fatal(tracer, err)
	}
	ctx, p := tracer.Start(context.Background(), clock(start))
	p.Asked("x")
	tracing.Begin(ctx, "build")(nil)
	if header := tracing.Change(ctx, ""); header != "" || p.Began() || tracer.Link("x") != "" {
		t.Error(header)
	}
	p.End(tracing.Summary{Name: "x"})
	stop()
}

func TestOptionsAreChecked(t *testing.T) {
	for _, test := range []struct {
		o    tracing.Options
		want string
	}{
		{o: tracing.Options{}},
		{o: tracing.Options{Endpoint: "http://collector:4318", URL: "https://x.example/trace/{traceID}?v=1"}},
		{o: tracing.Options{Endpoint: "collector:4318"}, want: "--otlp-endpoint is not an HTTP URL"},
		{o: tracing.Options{Endpoint: "https://user:secret@collector"}, want: "without user and password"},
		{o: tracing.Options{URL: "javascript:alert({traceID})"}, want: "--trace-url is not an HTTP URL"},
		{o: tracing.Options{URL: "https://x.example/trace"}, want: "--trace-url has no {traceID}"},
	} {
		err := test.o.Check()
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) ||
			strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v", test.o, err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke signals")
	_, _, err := tracing.New(t.Context(), tracing.Options{Endpoint: "http://127.0.0.1:1"}, logr.Discard())
	if err == nil || !strings.Contains(err.Error(), "choose http/protobuf or grpc") {
		t.Error(err)
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01")
	f.Fuzz(func(t *testing.T, header string) {
		if id := tracing.ID(header); id != "" && (len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "") {
			t.Errorf("%q has the ID %q", header, id)
		}
	})
}
