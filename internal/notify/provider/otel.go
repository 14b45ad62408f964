package provider

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// otel sends each event as a span with OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/#otlphttp). All
// events of a revision are in one trace; the event of the source is the root.
type otel struct {
	service
	uid string // of the Provider: each Provider has traces of its own
}

func newOTel(o Options) (Provider, error) {
	s, err := newService(o, "v1/traces")
	if err != nil {
		return nil, err
	}
	return &otel{s, o.UID}, nil
}

// sources are the kinds whose events are the roots of traces.
var sources = []string{"GitRepository", "OCIRepository", "Bucket", "HelmRepository", "HelmChart", "ExternalArtifact"}

// Send implements [Provider].
func (p *otel) Send(ctx context.Context, e event.Event) error {
	body, err := proto.Marshal(p.request(e))
	if err != nil {
		return fault.New(SendFailed, "cannot encode the event as a span").Because(err).Final()
	}
	a, err := p.client.send(ctx, http.MethodPost, p.client.address, body,
		append([]string{"Content-Type", "application/x-protobuf"}, p.login...)...)
	if err != nil {
		return err
	}
	var result collector.ExportTraceServiceResponse
	if proto.Unmarshal(a.body, &result) == nil && result.GetPartialSuccess().GetRejectedSpans() > 0 {
		return fault.New(SendFailed, "%s rejected the span: %s", p.client.address.Host,
			a.quote(result.GetPartialSuccess().GetErrorMessage())).
			WithHint("Check the configuration of the collector").Final()
	}
	return nil
}

func (p *otel) request(e event.Event) *collector.ExportTraceServiceRequest {
	m, sum := MessageOf(e), fingerprint(e)
	traced := sha256.Sum256([]byte(p.uid + ":" + cmp.Or(e.Metadata[event.Revision], objectKey(e))))
	root := traced[16:24]
	at := uint64(max(e.Timestamp.UnixNano(), 0))
	span := &tracev1.Span{
		TraceId: traced[:16], SpanId: sum[:8], ParentSpanId: root, Name: m.Title(),
		Kind:              tracev1.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: at, EndTimeUnixNano: at, Status: &tracev1.Status{Code: tracev1.Status_STATUS_CODE_OK},
	}
	if m.Failed {
		span.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR, Message: m.Text}
	}
	if reportsSuccess(e) && slices.Contains(sources, e.InvolvedObject.Kind) {
		span.SpanId, span.ParentSpanId = root, nil
	}
	attributes := details(e, event.MaxMetadata, maxField)
	attributes["message"] = plainText(m)
	maps.Copy(attributes, objectTags(e))
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		span.Attributes = append(span.Attributes, attribute(key, attributes[key]))
	}
	from := []*commonv1.KeyValue{attribute("service.name", m.From)}
	if e.ReportingInstance != "" {
		from = append(from, attribute("service.instance.id", singleLine(e.ReportingInstance)))
	}
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*tracev1.ResourceSpans{{
		Resource: &resourcev1.Resource{Attributes: from},
		ScopeSpans: []*tracev1.ScopeSpans{{Scope: &commonv1.InstrumentationScope{Name: "sluice"},
			Spans: []*tracev1.Span{span}}},
	}}}
}

func attribute(key, value string) *commonv1.KeyValue {
	return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{
		Value: &commonv1.AnyValue_StringValue{StringValue: value}}}
}
