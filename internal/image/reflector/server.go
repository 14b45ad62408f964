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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
)

const (
	defaultLimit  = 100
	maxLimit      = 1000
	maxExpression = 1024 // bytes of a regular expression in a query
	answerTimeout = 30 * time.Second
)

// Document is the OpenAPI document of the server.
//
//go:embed openapi.yaml
var Document []byte

// Server serves what is known of images, as JSON:
//
//	/v1/namespaces/{namespace}/imagerepositories/{name}            what the last scan found
//	/v1/namespaces/{namespace}/imagerepositories/{name}/tags       its tags, by name: ?match=, ?limit=, ?continue=
//	/v1/namespaces/{namespace}/imagepolicies/{name}/candidates     tags as the policy orders them, best first: ?limit=, ?continue=
//	/v1/namespaces/{namespace}/workloads/{kind}/{name}/images      the images of a workload, and what is newer by each policy
//	/v1/openapi.json                                               all of this
//	/healthz                                                       whether the server is up
//
// An answer has an ETag, and If-None-Match is understood.
type Server struct {
	Objects   client.Reader // the cache
	Workloads client.Reader // past the cache
	Policies  *Policies
	Access    artifact.Access // nil lets everybody read everything
}

// NewServer returns an HTTP server, bounded against clients that are slow or say too much.
func NewServer(s *Server) *http.Server {
	document, err := yaml.YAMLToJSON(Document)
	if err != nil {
		panic(err) // it is part of the program
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // a client that is gone
	})
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, r *http.Request) { write(w, r, document) })
	mux.HandleFunc("GET /v1/namespaces/{namespace}/imagerepositories/{name}", s.handle(s.repository))
	mux.HandleFunc("GET /v1/namespaces/{namespace}/imagerepositories/{name}/tags", s.handle(s.tags))
	mux.HandleFunc("GET /v1/namespaces/{namespace}/imagepolicies/{name}/candidates", s.handle(s.candidates))
	mux.HandleFunc("GET /v1/namespaces/{namespace}/workloads/{kind}/{name}/images", s.handle(s.images))
	return &http.Server{
		Handler:           http.TimeoutHandler(mux, answerTimeout, `{"error":"it took too long"}`),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// Tag is a tag in an answer.
type Tag struct {
	Name      string            `json:"name"`
	Digest    string            `json:"digest,omitempty"`
	Created   *time.Time        `json:"created,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Platforms []string          `json:"platforms,omitempty"`
}

// TagList is a part of a list of tags.
type TagList struct {
	Image    string `json:"image"`
	Revision string `json:"revision"`
	Total    int    `json:"total"`
	Items    []Tag  `json:"items"`
	Continue string `json:"continue,omitempty"`
}

// RepositorySummary is what the last scan of a repository found.
type RepositorySummary struct {
	Image    string    `json:"image"`
	Revision string    `json:"revision"`
	Total    int       `json:"total"`
	Changed  time.Time `json:"changed"`
}

// problem is an error for the client.
type problem struct {
	status  int
	message string
}

func (p *problem) Error() string { return p.message }

func refused(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// caller is who asks.
type caller struct{ reader artifact.Reader }

func (c caller) may(ctx context.Context, kind, namespace, name string) error {
	if c.reader == nil {
		return nil
	}
	return c.reader.MayRead(ctx, artifact.Key{Kind: strings.ToLower(kind), Namespace: namespace, Name: name})
}

// handle answers with what do returns.
func (s *Server) handle(do func(*http.Request, caller) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := artifact.Identify(s.Access, r)
		var answer any
		if err == nil {
			answer, err = do(r, caller{who})
		}
		status := http.StatusOK
		if err != nil {
			status, answer = explain(w.Header(), err)
		}
		body, err := json.Marshal(answer)
		if err != nil {
			status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
		}
		if status != http.StatusOK {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write(body) // a client that is gone
			return
		}
		write(w, r, body)
	}
}

// explain says what went wrong, and no more than the client may know.
func explain(header http.Header, err error) (int, any) {
	message := func(status int, text string) (int, any) { return status, map[string]string{"error": text} }
	var p *problem
	switch {
	case errors.As(err, &p):
		return message(p.status, p.message)
	case errors.Is(err, store.ErrNotFound):
		return message(http.StatusNotFound, "the repository was not scanned yet")
	case apierrors.IsNotFound(err):
		return message(http.StatusNotFound, "there is no such object")
	case fault.As(err) != nil && fault.As(err).Terminal:
		return message(http.StatusConflict, err.Error())
	default:
		return message(artifact.Refusal(header, err))
	}
}

// write answers with a body, or without it if the client has it.
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
	_, _ = w.Write(body) // a client that is gone
}

func (s *Server) repository(r *http.Request, c caller) (any, error) {
	key := store.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if err := c.may(r.Context(), imagev1.ImageRepositoryKind, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	found, err := s.Policies.Views.Store.Load(key)
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
	matches, err := regexp.Compile(expression)
	if err != nil || len(expression) > maxExpression {
		return nil, refused(http.StatusBadRequest, "match is no regular expression of %d bytes at most", maxExpression)
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
	return cut(r, view, found)
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
	return cut(r, view, view.Tags)
}

// view returns the tags as a policy orders them, if it may use its repository.
func (s *Server) view(ctx context.Context, obj *imagev1.ImagePolicy) (*View, error) {
	compiled, err := policy.New(obj.Spec)
	if err != nil {
		return nil, err
	}
	repo, err := s.Policies.repository(ctx, obj)
	if err != nil {
		return nil, refused(http.StatusConflict, "%s", err)
	}
	if repo == nil {
		return nil, store.ErrNotFound
	}
	return s.Policies.Views.Of(ctx, keyOf(repo), obj.Spec, compiled)
}

// place is where a list goes on: at an offset of a revision.
type place struct {
	Revision string `json:"r"`
	Offset   int    `json:"o"`
}

// cut returns the part of a list that a request asks for.
func cut(r *http.Request, view *View, tags []policy.Tag) (any, error) {
	limit := defaultLimit
	if given := r.URL.Query().Get("limit"); given != "" {
		var err error
		if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > maxLimit {
			return nil, refused(http.StatusBadRequest, "limit is a number from 1 to %d", maxLimit)
		}
	}
	at := place{Revision: view.Revision}
	if token := r.URL.Query().Get("continue"); token != "" {
		plain, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(plain, &at) != nil || at.Offset < 0 ||
			at.Offset > len(tags) && at.Revision == view.Revision {
			return nil, refused(http.StatusBadRequest, "continue is not what an answer had")
		}
		if at.Revision != view.Revision {
			return nil, refused(http.StatusGone, "the tags changed since the list began: start over without continue")
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
		token, err := json.Marshal(place{view.Revision, end})
		if err != nil {
			return nil, err
		}
		list.Continue = base64.RawURLEncoding.EncodeToString(token)
	}
	return list, nil
}
