package stubapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/version"
)

// Server is an API server. It is an [http.Handler], and safe for concurrent use.
type Server struct {
	// Latency is added to each request of a user agent that begins with Delayed, except that a watch begins at once.
	// Both must not change while requests arrive.
	Latency time.Duration
	Delayed string
	// BookmarkInterval is the time after which a watch without events receives a bookmark.
	BookmarkInterval time.Duration

	kinds   []*kind
	tables  map[schema.GroupVersionResource]*table
	version atomic.Uint64 // of the newest change

	mu     sync.Mutex
	counts map[string]int
}

// New returns a server of the usual kinds of Kubernetes and of those that are defined, with the definitions as objects.
func New(definitions []*unstructured.Unstructured) *Server {
	s := &Server{BookmarkInterval: time.Minute, kinds: builtin(), counts: map[string]int{},
		tables: map[schema.GroupVersionResource]*table{}}
	for _, d := range definitions {
		s.kinds = append(s.kinds, defined(d))
	}
	for _, k := range s.kinds {
		s.tables[k.gvr()] = newTable(k)
	}
	s.version.Store(1)
	t := s.tables[schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}]
	for _, d := range definitions {
		q := &query{table: t, verb: "create", by: manager{name: "stub", operation: operationUpdate}}
		if _, err := s.create(q, decode(encode(d.Object))); err != nil {
			panic(err) // names are unique
		}
	}
	return s
}

// Requests returns how many requests were answered, by verb and resource, such as "patch kustomizations/status" or
// "patch configmaps (dry)".
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// Count returns how many objects of a resource exist, such as "configmaps".
func (s *Server) Count(resource string) (n int) {
	for gvr, t := range s.tables {
		if gvr.Resource == resource {
			t.mu.Lock()
			n += len(t.items)
			t.mu.Unlock()
		}
	}
	return n
}

// query is a request for a resource.
type query struct {
	*table
	namespace, name, subresource string

	verb   string
	dryRun bool
	by     manager
}

func (q *query) String() string {
	text := q.verb + " " + q.resource
	if q.subresource != "" {
		text += "/" + q.subresource
	}
	if q.dryRun {
		text += " (dry)"
	}
	return text
}

// parse returns the query of a request; nil if the path is not that of a resource.
func (s *Server) parse(r *http.Request) *query {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil
	}
	q := &query{}
	if len(parts) > 2 && parts[0] == "namespaces" && s.tables[gv.WithResource(parts[2])] != nil {
		q.namespace, parts = parts[1], parts[2:]
	}
	if q.table = s.tables[gv.WithResource(parts[0])]; q.table == nil {
		return nil
	}
	parts = slices.Concat(parts[1:], []string{"", ""})
	q.name, q.subresource = parts[0], parts[1]
	options := r.URL.Query()
	q.dryRun = options.Get("dryRun") != ""
	q.by = manager{name: options.Get("fieldManager"), operation: operationUpdate, subresource: q.subresource}
	if q.by.name == "" {
		q.by.name, _, _ = strings.Cut(r.UserAgent(), "/")
	}
	q.verb = verbOf(r, q.name)
	return q
}

func verbOf(r *http.Request, name string) string {
	switch {
	case r.Method != http.MethodGet:
		return map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
			http.MethodDelete: "delete"}[r.Method]
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := s.parse(r)
	what := "discovery"
	if q != nil {
		what = q.String()
	}
	s.mu.Lock()
	s.counts[what]++
	s.mu.Unlock()
	if q != nil && q.verb == "watch" {
		s.watch(w, r, q)
		return
	}
	if s.Latency > 0 && strings.HasPrefix(r.UserAgent(), s.Delayed) {
		select {
		case <-time.After(s.Latency):
		case <-r.Context().Done():
			return
		}
	}
	if q == nil {
		s.discover(w, r)
		return
	}
	var answer []byte
	var err error
	code := http.StatusOK
	switch q.verb {
	case "get":
		answer, err = s.get(q)
	case "list":
		answer, err = s.list(r, q)
	default:
		answer, code, err = s.write(r, q)
	}
	if err != nil {
		respondError(w, err)
		return
	}
	if q.verb == "get" && wantsMetadata(r) {
		answer = metadataOnly(answer)
	}
	respond(w, code, answer)
}

// discover answers requests that are not for objects.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var answer any
	switch path := strings.Trim(r.URL.Path, "/"); {
	case path == "version":
		answer = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0"}
	case path == "api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "apis":
		answer = s.groups()
	case path == "openapi/v3":
		answer = map[string]any{"paths": map[string]any{}}
	case path == "openapi/v2":
		answer = map[string]any{"swagger": "2.0", "paths": map[string]any{}, "definitions": map[string]any{}}
	case parts[0] == "api" && len(parts) == 2:
		if list := s.resources(schema.GroupVersion{Version: parts[1]}); list != nil {
			answer = list
		}
	case parts[0] == "apis" && len(parts) == 3:
		if list := s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]}); list != nil {
			answer = list
		}
	}
	if answer == nil {
		respondError(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "",
			"the server could not find the requested resource", 0, true))
		return
	}
	respond(w, http.StatusOK, encode(answer))
}

func respond(w http.ResponseWriter, code int, answer []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	w.WriteHeader(code)
	_, _ = w.Write(answer) // the client may be gone
}

func respondError(w http.ResponseWriter, err error) {
	status := apierrors.NewInternalError(err).Status()
	if known, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // they are returned as they are created
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	respond(w, int(status.Code), encode(status))
}

func newUID() string { return string(uuid.NewUUID()) }
