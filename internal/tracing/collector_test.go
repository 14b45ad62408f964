package tracing_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans is what a collector has received.
type spans struct {
	*testing.T
	URL string

	mu  sync.Mutex
	all []*tracev1.Span
}

// newCollector starts a collector that accepts OTLP over HTTP.
func newCollector(t *testing.T) *spans {
	t.Helper()
	s := &spans{T: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.accept(r); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

func (s *spans) accept(r *http.Request) error {
	if r.URL.Path != "/v1/traces" {
		return fmt.Errorf("unexpected path")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return err
		}
		if body, err = io.ReadAll(unpacked); err != nil {
			return err
		}
	}
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			s.all = append(s.all, scope.Spans...)
		}
	}
	return nil
}

// find returns the spans with a name.
func (s *spans) find(name string) []*tracev1.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(span *tracev1.Span) bool { return span.Name != name })
}

// one returns the only span with a name.
func (s *spans) one(name string) *tracev1.Span {
	s.Helper()
	found := s.find(name)
	if len(found) != 1 {
		s.Fatalf("%d spans are named %q:\n%s", len(found), name, s)
	}
	return found[0]
}

// String shows all spans, indented by their parents.
func (s *spans) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	var show func(parent []byte, indent string)
	show = func(parent []byte, indent string) {
		for _, span := range s.all {
			if bytes.Equal(span.ParentSpanId, parent) {
				fmt.Fprintf(&b, "%s%s %x %s\n", indent, span.Name, span.TraceId, span.GetStatus().GetMessage())
				show(span.SpanId, indent+"  ")
			}
		}
	}
	show(nil, "")
	return b.String()
}

func attributeOf(span *tracev1.Span, key string) string {
	for _, a := range span.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}
