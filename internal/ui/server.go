// Package ui serves the web UI: a JSON API under /api/v1, one stream of changes for each page, and the pages. Every
// read and write is made with the rights of the user.
package ui

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/resourceset"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
	"github.com/sluice-gitops/sluice/web"
)

// Bounds of a request.
const (
	maxBody         = 64 << 10 // bytes
	maxDecision     = 1 << 20  // bytes of the body of an action, which lists what was seen
	maxQuery        = 4 << 10  // bytes
	maxWords        = 30
	requestTimeout  = 30 * time.Second // of reading a request, and of answering it; streams last
	shutdownTimeout = 2 * time.Second
)

// csrfHeader contains [User.CSRF] in requests that write. Other sites do not know the value and cannot set the header.
const csrfHeader = "X-Sluice-Csrf"

// User is who makes a request, with clients that have the rights of that user.
type User struct {
	Name      string
	Groups    []string
	CSRF      string // secret of the session that writes must contain; not empty
	CanLogOut bool
	Client    client.Client
	Cluster   kubernetes.Interface
	Config    *rest.Config // of the clients; nil if nothing is previewed for the user
	// See returns a filter that accepts the items of the scopes which the user may list. It accepts no other items.
	See func(ctx context.Context, scopes []view.Scope) (view.Filter, error)
}

// SeeAll is a [User.See] of a user whose rights decide what the model contains.
func SeeAll(context.Context, []view.Scope) (view.Filter, error) {
	return func(*view.Item) bool { return true }, nil
}

// Login decides who makes a request.
type Login interface {
	// User returns who makes a request, or an error if the request has no login. Errors of [NewError] have a status of
	// their own.
	User(r *http.Request) (*User, error)
	// Routes adds the pages by which people log in.
	Routes(mux *http.ServeMux)
}

// Server is the web UI.
type Server struct {
	Model   *view.Model
	Login   Login
	Pages   fs.FS // the built front end
	Version string
	// Cluster is the name of the cluster and Kubernetes its version, for the pages; both may be empty.
	Cluster, Kubernetes string
	// Namespace of the controllers, whose Leases and Deployments say whether they work.
	Namespace string
	Log       logr.Logger // audit lines and errors
	Now       func() time.Time
	// TraceURL is the URL of a trace, with {traceID}; may be empty.
	TraceURL string
	// Reviews are reviews of pull requests; nil if there are none.
	Reviews Reviews
	// Templates renders ResourceSets, to say which object is of which input.
	Templates resourceset.Renderer
	// Artifacts reads artifacts of sources, after the user was allowed to read the source.
	Artifacts Artifacts
	// IsMCP is true if the requests come from the MCP server of this process: audit lines and writes say so.
	IsMCP bool
	Hosts []string // that requests may name; default: the address of the listener, and localhost

	streams    guard.Counter
	logStreams guard.Counter
	requests   guard.Counter
	downloads  turns
	usages     usages
	heavy      turns
	large      turns
}

// KubernetesVersion returns the version of an API server; empty if it does not say.
func KubernetesVersion(clients kubernetes.Interface) string {
	info, err := clients.Discovery().ServerVersion()
	if err != nil {
		return "" // the pages say what cannot be read
	}
	return excerpt.Bytes(info.GitVersion, maxVersionText)
}

// maxVersionText is the bytes of a version that pages show.
const maxVersionText = 40

// Serve serves on a listener until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := s.server(ctx, l.Addr().String())
	stop := guard.AfterDone(ctx, "shutdown of the UI", func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = server.Shutdown(within) // streams end with ctx; what remains is cut
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// server returns the server of an address. A client that sends or receives too slowly is cut off.
func (s *Server) server(ctx context.Context, addr string) *http.Server {
	server := listen.Server(s.Handler(addr))
	server.ReadTimeout, server.WriteTimeout = requestTimeout, 2*requestTimeout
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	return server
}

// Handler returns the handler of all requests. Requests whose Host header names another address are refused, so that a
// site whose name is made to resolve to this address cannot read the answers (DNS rebinding).
func (s *Server) Handler(addr string) http.Handler {
	mux := s.mux()
	mux.Handle("GET /", web.Handler(s.Pages, ""))
	return guard.Handler("request to the UI", checkHost(s.hosts(addr), withHeaders(protect(mux))))
}

// ForHub returns the handler of requests that a hub forwards. The hub has the pages and its own name.
func (s *Server) ForHub() http.Handler {
	return guard.Handler("request to the UI by the hub", withHeaders(protect(s.mux())))
}

// mux returns the API and the login.
func (s *Server) mux() *http.ServeMux {
	s.large.size, s.large.userSize = maxLarge, maxUserRequests
	s.downloads.size, s.downloads.userSize = maxDownloads, maxUserDownloads
	mux := http.NewServeMux()
	s.Login.Routes(mux)
	s.routes(mux)
	return mux
}

func protect(next http.Handler) http.Handler { return http.NewCrossOriginProtection().Handler(next) }

// hosts returns the hosts that requests may name.
func (s *Server) hosts(addr string) []string {
	if len(s.Hosts) > 0 {
		return s.Hosts
	}
	_, port, _ := net.SplitHostPort(addr)
	return []string{addr, "localhost:" + port, "127.0.0.1:" + port}
}

// checkHost refuses requests for other hosts.
func checkHost(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(allowed, strings.ToLower(r.Host)) {
			fail(w, http.StatusMisdirectedRequest, "this address is served only as "+allowed[0])
			return
		}
		next.ServeHTTP(w, r)
	})
}

func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.SetHeaders(w.Header())
		if strings.HasPrefix(r.URL.Path, "/api/") {
			w.Header().Set("Cache-Control", "no-store")
		}
		limit := int64(maxBody)
		if strings.HasPrefix(r.URL.Path, "/api/v1/objects/") {
			limit = maxDecision
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		next.ServeHTTP(w, r)
	})
}

// handlers returns the API, but the streams. docs/ui-api.md describes it.
func (s *Server) handlers() map[string]handler {
	object := "/api/v1/objects/{kind}/{namespace}/{name}"
	return map[string]handler{
		"GET /api/v1/me":               s.me,
		"GET /api/v1/overview":         s.filtered(s.overview),
		"GET /api/v1/items":            s.filtered(s.items),
		"GET /api/v1/groups":           s.filtered(s.groups),
		"GET /api/v1/graph":            s.filtered(s.graph),
		"GET /api/v1/why":              s.why,
		"GET /api/v1/gates":            s.gates,
		"GET /api/v1/calendar":         s.calendars,
		"GET /api/v1/changes":          s.filtered(s.changes),
		"GET /api/v1/images":           s.images,
		"GET /api/v1/resource":         s.large.bound(s.resource),
		"GET /api/v1/clusters":         s.filtered(s.clusters),
		"GET /api/v1/explain":          s.explain,
		"GET /api/v1/reviews":          s.reviews,
		"GET /api/v1/controllers":      s.controllers,
		"GET /api/v1/processes":        s.processes,
		"POST /api/v1/releases":        s.release,
		"GET /api/v1/logs":             s.logs,
		"GET /api/v1/workloads":        s.workloads,
		"GET " + object:                s.large.bound(s.object),
		"GET " + object + "/tree":      s.large.bound(s.tree),
		"GET " + object + "/drift":     s.heavy.bound(s.drift),
		"GET " + object + "/inputs":    s.heavy.bound(s.inputs),
		"GET " + object + "/calendar":  s.calendar,
		"GET " + object + "/diff":      s.diffVersions,
		"POST " + object + "/{action}": s.act,
		"POST /api/v1/workloads/{kind}/{namespace}/{name}/{action}": s.actOnWorkload,
		"GET /api/v1/reviews/{repository}/{number}":                 s.reviewOf,
	}
}

// routes adds the API.
func (s *Server) routes(mux *http.ServeMux) {
	for pattern, h := range s.handlers() {
		mux.HandleFunc(pattern, s.answer(h))
	}
	mux.HandleFunc("GET /api/v1/objects/{kind}/{namespace}/{name}/artifact", s.artifact)
	mux.HandleFunc("GET /api/v1/stream", s.stream)
	mux.HandleFunc("GET /api/v1/logs/stream", s.streamLogs)
	mux.HandleFunc("GET /api/v1/reviews/stream", s.streamReviews)
	mux.HandleFunc("GET /api/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, "there is no such address in the API")
	})
}

// handler answers a request of a user with a value that is sent as JSON.
type handler func(ctx context.Context, u *User, r *http.Request) (any, error)

// answer wraps a handler: it finds the user, bounds the time, and sends the answer.
func (s *Server) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u, err := s.Login.User(r)
		if err != nil {
			failLogin(w, err)
			return
		}
		if r.Method != http.MethodGet && !CheckCSRF(u.CSRF, r) {
			fail(w, http.StatusForbidden, "this page is of another session. Load it again, then repeat what you did.")
			return
		}
		if err := checkQuery(r); err != nil {
			s.sendError(w, err)
			return
		}
		if !s.requests.Open(u.Name, maxRequests, maxUserRequests) {
			s.sendError(w, errTooMany)
			return
		}
		defer s.requests.Close(u.Name)
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		result, err := h(ctx, u, r)
		if err != nil {
			s.sendError(w, err)
			return
		}
		send(w, http.StatusOK, result)
	}
}

// checkQuery refuses queries that cost too much: each word is searched in each object.
func checkQuery(r *http.Request) error {
	if len(r.URL.RawQuery) > maxQuery {
		return NewError(http.StatusRequestURITooLong, fmt.Sprintf("the query has more than %d bytes", maxQuery))
	}
	values := r.URL.Query()
	if n := len(strings.Fields(values.Get("q"))); n > maxWords {
		return badRequest("the search has %d words, at most %d are allowed", n, maxWords)
	}
	if len(values["kind"])+len(values["state"]) > maxWords {
		return badRequest("more than %d kinds and states are chosen", maxWords)
	}
	return nil
}

// readBody decodes the body of a request. Unknown fields are refused, so that a misspelled one is not ignored.
func readBody(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return NewError(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit))
	case err != nil:
		return badRequest("the body cannot be read: %v", err)
	}
	return nil
}

// CheckCSRF reports whether a request contains the secret of its session.
func CheckCSRF(secret string, r *http.Request) bool {
	return secret != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(csrfHeader)), []byte(secret)) == 1
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

// failure is the answer to a request that failed.
type failure struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, status int, text string) { send(w, status, failure{Error: text}) }

// httpError is an error with a status of its own.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

// NewError returns an error of a request, with its HTTP status and a text for people.
func NewError(status int, text string) error { return &httpError{status: status, text: text} }

func badRequest(format string, args ...any) error {
	return &httpError{status: http.StatusBadRequest, text: fmt.Sprintf(format, args...)}
}
