package reflector

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	defaultLimit   = 100
	maxLimit       = 1000
	maxExpression  = 1024 // bytes of a regular expression in a query
	requestTimeout = 30 * time.Second
)

// Document is the OpenAPI description of the server.
//
//go:embed openapi.yaml
var Document []byte

// Server serves image tags as JSON:
//
//	/v1/namespaces/{namespace}/imagerepositories/{name}            summary of the last scan
//	/v1/namespaces/{namespace}/imagerepositories/{name}/tags       tags by name: ?match=, ?limit=, ?continue=
//	/v1/namespaces/{namespace}/imagepolicies/{name}/candidates     tags, best first: ?limit=, ?continue=
//	/v1/namespaces/{namespace}/workloads/{kind}/{name}/images      images of a workload, and number of newer tags
//	/v1/openapi.json                                               OpenAPI description
//	/healthz                                                       liveness
//
// Responses have an ETag; If-None-Match is supported.
type Server struct {
	Objects   client.Reader // the cache
	Workloads client.Reader // the API server, not the cache
	Policies  *Policies
	Access    artifact.Access // nil: anybody may read everything
	Standby   func() bool     // reports whether another replica scans, whose tags are not here; nil for never
}

// NewServer returns an HTTP server with limits on the time and size of requests.
func NewServer(s *Server) *http.Server {
	document, err := yaml.YAMLToJSON(Document)
	if err != nil {
		panic(err) // the document is embedded
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // the client may have disconnected
	})
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, r *http.Request) { write(w, r, document) })
	mux.HandleFunc("GET /v1/namespaces/{namespace}/imagerepositories/{name}", s.handle(s.repository))
	mux.HandleFunc("GET /v1/namespaces/{namespace}/imagerepositories/{name}/tags", s.handle(s.tags))
	mux.HandleFunc("GET /v1/namespaces/{namespace}/imagepolicies/{name}/candidates", s.handle(s.candidates))
	mux.HandleFunc("GET /v1/namespaces/{namespace}/workloads/{kind}/{name}/images", s.handle(s.images))
	handler := guard.Handler("serving tags", mux)
	server := listen.Server(http.TimeoutHandler(handler, requestTimeout, `{"error":"the request took too long"}`))
	server.ReadTimeout, server.WriteTimeout = 30*time.Second, time.Minute
	return server
}

// Tag is a tag in a response.
type Tag struct {
	Name      string            `json:"name"`
	Digest    string            `json:"digest,omitempty"`
	Created   *time.Time        `json:"created,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Platforms []string          `json:"platforms,omitempty"`
}

// TagList is a page of a list of tags.
type TagList struct {
	Image    string `json:"image"`
	Revision string `json:"revision"`
	Total    int    `json:"total"`
	Items    []Tag  `json:"items"`
	Continue string `json:"continue,omitempty"`
}

// RepositorySummary is the summary of the last scan of a repository.
type RepositorySummary struct {
	Image    string    `json:"image"`
	Revision string    `json:"revision"`
	Total    int       `json:"total"`
	Changed  time.Time `json:"changed"`
}

// requestError is an error with an HTTP status for the client.
type requestError struct {
	status  int
	message string
}

func (p *requestError) Error() string { return p.message }

func rejectf(status int, format string, args ...any) error {
	return &requestError{status, fmt.Sprintf(format, args...)}
}

// caller is the client of a request.
type caller struct{ reader artifact.Reader }

func (c caller) may(ctx context.Context, kind, namespace, name string) error {
	if c.reader == nil {
		return nil
	}
	return c.reader.MayRead(ctx, artifact.Key{Kind: strings.ToLower(kind), Namespace: namespace, Name: name})
}

// handle returns a handler that responds with the result of do.
func (s *Server) handle(do func(*http.Request, caller) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reader, err := artifact.Identify(s.Access, r)
		var response any
		if s.Standby != nil && s.Standby() {
			w.Header().Set("Retry-After", "1")
			err = rejectf(http.StatusServiceUnavailable,
				"this replica waits for the lease; the leader has the tags: retry")
		}
		if err == nil {
			response, err = do(r, caller{reader})
		}
		status := http.StatusOK
		if err != nil {
			status, response = errorResponse(w.Header(), err)
		}
		body, err := json.Marshal(response)
		if err != nil {
			status, body = http.StatusInternalServerError, []byte(`{"error":"cannot encode the response"}`)
		}
		if status != http.StatusOK {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write(body) // the client may have disconnected
			return
		}
		write(w, r, body)
	}
}

// errorResponse returns the status and the body for an error, without details that the client may not read.
func errorResponse(header http.Header, err error) (int, any) {
	message := func(status int, text string) (int, any) { return status, map[string]string{"error": text} }
	var p *requestError
	switch {
	case errors.As(err, &p):
		return message(p.status, p.message)
	case errors.Is(err, store.ErrNotFound):
		return message(http.StatusNotFound, "the repository has not been scanned yet")
	case apierrors.IsNotFound(err):
		return message(http.StatusNotFound, "the object does not exist")
	case fault.As(err) != nil && fault.As(err).Terminal:
		return message(http.StatusConflict, err.Error())
	default:
		return message(artifact.Refusal(header, err))
	}
}

// write responds with a body, or with 304 Not Modified if the client has it.
func write(w http.ResponseWriter, r *http.Request, body []byte) {
	etag := fmt.Sprintf(`"%x"`, sha256.Sum256(body))
	w.Header().Set("ETag", etag)
	w.Header().Set("Cache-Control", "no-cache")
	if slices.ContainsFunc(strings.Split(r.Header.Get("If-None-Match"), ","), func(known string) bool {
		return strings.TrimPrefix(strings.TrimSpace(known), "W/") == etag
	}) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client may have disconnected
}

func (s *Server) repository(r *http.Request, c caller) (any, error) {
	key := store.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if err := c.may(r.Context(), imagev1.ImageRepositoryKind, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	found, err := s.Policies.Views.Store.Load(r.Context(), key)
	if err != nil {
		return nil, err
	}
	return RepositorySummary{Image: found.Image, Revision: found.Revision, Total: found.Len(),
		Changed: found.Scanned}, nil
}

func (s *Server) tags(r *http.Request, c caller) (any, error) {
	key := store.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if err := c.may(r.Context(), imagev1.ImageRepositoryKind, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	expression := r.URL.Query().Get("match")
	if len(expression) > maxExpression {
		return nil, rejectf(http.StatusBadRequest, "match is longer than %d bytes", maxExpression)
	}
	matches, err := regex.Compile(expression)
	if err != nil {
		return nil, rejectf(http.StatusBadRequest, "match is not a valid regular expression: %v", err)
	}
	view, err := s.Policies.Views.All(r.Context(), key)
	if err != nil {
		return nil, err
	}
	found := view.Tags
	if expression != "" {
		found = slices.Collect(func(yield func(policy.Tag) bool) {
			for _, t := range view.Tags {
				if matches.MatchString(t.Name) && !yield(t) {
					return
				}
			}
		})
	}
	return page(r, view, found)
}

func (s *Server) candidates(r *http.Request, c caller) (any, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if err := c.may(r.Context(), imagev1.ImagePolicyKind, namespace, name); err != nil {
		return nil, err
	}
	obj := &imagev1.ImagePolicy{}
	if err := s.Objects.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
		return nil, err
	}
	view, err := s.view(r.Context(), obj)
	if err != nil {
		return nil, err
	}
	return page(r, view, view.Tags)
}

// view returns the view of a policy, if the policy may use its repository.
func (s *Server) view(ctx context.Context, obj *imagev1.ImagePolicy) (*View, error) {
	compiled, err := policy.New(obj.Spec)
	if err != nil {
		return nil, err
	}
	repo, err := s.Policies.repository(ctx, obj)
	if err != nil {
		return nil, rejectf(http.StatusConflict, "%s", err)
	}
	if repo == nil {
		return nil, store.ErrNotFound
	}
	return s.Policies.Views.Of(ctx, keyOf(repo), obj.Spec, compiled)
}

// continuation is the decoded continue token of a list.
type continuation struct {
	Revision string `json:"r"`
	Offset   int    `json:"o"`
}

// page returns the page of a list that a request asks for.
func page(r *http.Request, view *View, tags []policy.Tag) (any, error) {
	limit := defaultLimit
	if given := r.URL.Query().Get("limit"); given != "" {
		var err error
		if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > maxLimit {
			return nil, rejectf(http.StatusBadRequest, "limit must be a number from 1 to %d", maxLimit)
		}
	}
	at := continuation{Revision: view.Revision}
	if token := r.URL.Query().Get("continue"); token != "" {
		plain, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(plain, &at) != nil || at.Offset < 0 ||
			at.Offset > len(tags) && at.Revision == view.Revision {
			return nil, rejectf(http.StatusBadRequest, "continue is invalid")
		}
		if at.Revision != view.Revision {
			return nil, rejectf(http.StatusGone, "the tags changed: start again without continue")
		}
	}
	list := TagList{Image: view.Image, Revision: view.Revision, Total: len(tags), Items: []Tag{}}
	end := min(at.Offset+limit, len(tags))
	for _, t := range tags[at.Offset:end] {
		item := Tag{Name: t.Name, Digest: t.Digest, Labels: t.Labels, Platforms: t.Platforms}
		if !t.Created.IsZero() {
			item.Created = &t.Created
		}
		list.Items = append(list.Items, item)
	}
	if end < len(tags) {
		token, err := json.Marshal(continuation{view.Revision, end})
		if err != nil {
			return nil, err
		}
		list.Continue = base64.RawURLEncoding.EncodeToString(token)
	}
	return list, nil
}
