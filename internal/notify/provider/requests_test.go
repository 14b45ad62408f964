package provider

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

var update = flag.Bool("update", false, "update testdata/*.http")

// TestRequestFormats compares method, path, headers and body of requests with golden files, which were checked
// against the documentation of each service.
func TestRequestFormats(t *testing.T) {
	for name, s := range webSetups() {
		events := map[string]event.Event{"failure": failure(), "success": success()}
		if _, isChat := chats[name]; !isChat {
			events["failure"], events["progress"] = failureWithUID(), progress()
		}
		for state, e := range events {
			t.Run(name+"-"+state, func(t *testing.T) {
				var mu sync.Mutex
				got := ""
				var server string
				server = serve(t, func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					decodeBody(t, r)
					if r.Host != strings.TrimPrefix(server, "http://") {
						got += "// at " + r.Host + "\n"
					}
					got += format(t, r)
					w.WriteHeader(max(s.status, http.StatusOK))
					_, _ = io.WriteString(w, s.response)
				})
				if err := newProvider(t, s.options(server)).Send(testContext(t), e); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				compare(t, name+"-"+state+".http", got)
			})
		}
	}
}

// TestTeamsConnectorFormat checks the message for connectors, which are recognized by their host name.
func TestTeamsConnectorFormat(t *testing.T) {
	var got string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = format(t, r)
		_, _ = io.WriteString(w, "1")
	})
	if err := newProvider(t, teamsConnector.options(server)).Send(testContext(t), failure()); err != nil {
		t.Fatal(err)
	}
	compare(t, "msteams-connector-failure.http", got)
}

var teamsConnector = setup{kind: "msteams", address: "http://acme.webhook.office.com/webhookb2/" + hookSecret}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// decodeBody replaces bodies in other formats with equivalent JSON.
func decodeBody(t *testing.T, r *http.Request) {
	t.Helper()
	content, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	switch r.Header.Get("Content-Type") {
	case "application/x-sentry-envelope":
		lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		content = append(append([]byte("["), bytes.Join(lines, []byte(","))...), ']')
		var item struct{ Length int }
		if err := json.Unmarshal(lines[1], &item); err != nil || len(lines) != 3 || item.Length != len(lines[2]) {
			t.Errorf("invalid envelope: %d lines, an item of %d bytes (%v)", len(lines), item.Length, err)
		}
	case "application/x-protobuf":
		var request collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(content, &request); err != nil {
			t.Error(err)
		}
		if content, err = protojson.Marshal(&request); err != nil {
			t.Error(err)
		}
	}
	if len(content) == 0 && r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		content = []byte("null")
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
}

// format returns a request as text, with indented JSON and one line for each form value.
func format(t *testing.T, r *http.Request) string {
	t.Helper()
	content, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", r.Method, r.RequestURI)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if name != "Accept-Encoding" && name != "Content-Length" {
			fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
		}
	}
	out.WriteString("\n")
	if r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(content))
		if err != nil {
			t.Error(err)
		}
		for _, k := range slices.Sorted(maps.Keys(form)) {
			fmt.Fprintf(&out, "%s=%s\n", k, strings.Join(form[k], " | "))
		}
		return out.String()
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.TrimSpace(content), "", "  "); err != nil {
		t.Errorf("the body is not JSON: %v", err)
	}
	return out.String() + indented.String() + "\n"
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if inOrder(got) != inOrder(string(want)) {
		t.Errorf("got request\n%s\nwant\n%s", got, want)
	}
}

var bodies = regexp.MustCompile(`(?ms)^[{\[]$.*?^[}\]]$`)

// inOrder returns a request with the fields of JSON objects in the order of their names.
func inOrder(request string) string {
	return bodies.ReplaceAllStringFunc(request, func(body string) string {
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			return err.Error()
		}
		ordered, _ := json.MarshalIndent(value, "", "  ") // plain values
		return string(ordered)
	})
}
