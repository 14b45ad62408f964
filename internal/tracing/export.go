package tracing

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// flushTime bounds how long the end of the process waits for the last spans.
var flushTime = 3 * time.Second

// reportEvery is the interval of log lines while spans cannot be exported.
const reportEvery = time.Minute

// Options are set by flags. The SDK reads the other settings from the environment, such as the headers, the TLS files
// and the sampler (https://opentelemetry.io/docs/specs/otel/protocol/exporter/).
type Options struct {
	Endpoint string // of a collector; empty for $OTEL_EXPORTER_OTLP_ENDPOINT
	URL      string // of a trace for people, with {traceID}; may be empty
	Version  string // of the program
}

// Check reports invalid flags.
func (o Options) Check() error {
	for _, flag := range []struct{ name, value, example string }{
		{name: "--otlp-endpoint", value: o.Endpoint, example: "http://collector.monitoring:4318"},
		{name: "--trace-url", value: o.URL, example: "https://traces.example.com/trace/" + idPlaceholder},
	} {
		if flag.value == "" {
			continue
		}
		u, err := url.Parse(strings.ReplaceAll(flag.value, idPlaceholder, "0"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return fmt.Errorf("%s is not an HTTP URL without user and password: choose one such as %s", flag.name,
				flag.example)
		}
	}
	if o.URL != "" && !strings.Contains(o.URL, idPlaceholder) {
		return fmt.Errorf("--trace-url has no %s: each trace has a URL of its own", idPlaceholder)
	}
	return nil
}

// isOff reports whether no collector is known.
func (o Options) isOff() bool {
	return o.Endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" &&
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none"
}

// New returns the tracer of the process, nil without a collector. Spans are sent in batches in the background: work
// never waits for a collector, and spans that it does not take in time are dropped. stop sends the last ones.
func New(ctx context.Context, o Options, log logr.Logger) (t *Tracer, stop func(), err error) {
	if o.isOff() {
		return nil, func() {}, nil
	}
	exporter, err := o.exporter(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	about, err := resource.New(ctx, resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", "sluice"), attribute.String("service.version", o.Version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(&reporter{log: log, now: time.Now})
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &Tracer{tracer: provider.Tracer("sluice"), url: o.URL}, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ending); err != nil {
			log.Error(err, "the last traces were not exported")
		}
	}, nil
}

// exporter returns the exporter of the protocol that the environment names: HTTP by default.
func (o Options) exporter(ctx context.Context) (*otlptrace.Exporter, error) {
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf")
	switch protocol {
	case "http/protobuf":
		if o.Endpoint == "" {
			return otlptracehttp.New(ctx)
		}
		traces, err := url.JoinPath(o.Endpoint, "v1", "traces")
		if err != nil {
			return nil, err
		}
		return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(traces))
	case "grpc":
		if o.Endpoint == "" {
			return otlptracegrpc.New(ctx)
		}
		return otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(o.Endpoint))
	default:
		return nil, fmt.Errorf("the protocol %q of $OTEL_EXPORTER_OTLP_PROTOCOL is not known: choose http/protobuf "+
			"or grpc", protocol)
	}
}

// reporter logs that spans cannot be exported, at most once in an interval.
type reporter struct {
	log logr.Logger
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

// Handle implements [otel.ErrorHandler].
func (r *reporter) Handle(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.last) >= reportEvery {
		r.last = now
		r.log.Error(err, "traces are not exported; check --otlp-endpoint and the collector")
	}
}
