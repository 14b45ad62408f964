package hub

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

const (
	readTimeout  = 15 * time.Second
	writeTimeout = 30 * time.Second
	shutdownTime = 5 * time.Second

	reportsAtOnce   = 64 // whose bodies are in memory
	reportInterval  = time.Second
	reportBurst     = 10
	readersAtOnce   = 200
	answersAtOnce   = 8 // lists that are written
	retryWhenTooFew = 5 * time.Second
)

// Access decides which users may read.
type Access interface {
	// MayRead returns nil if a visitor may read a cluster, or with an empty name the list of all. The error may be
	// shown; it is a [net/http] status and a text.
	MayRead(ctx context.Context, who Visitor, cluster string) error
}

// Visitor is who reads: who has a token, or a user whom the login provider named.
type Visitor struct {
	Token  string
	User   string
	Groups []string
}

// Server serves the API of a hub. See package fleet.
type Server struct {
	Hub    *Hub
	Access Access
	// Pages is the front end; nil if only the API is served. Login has the sessions of people who see it, and
	// TokenLogin lets people in who have a token of the hub's cluster.
	Pages      fs.FS
	Login      *login.Sessions
	TokenLogin bool

	once    sync.Once
	reports chan struct{}
	readers chan struct{}
	answers chan struct{}
}

// Serve serves on a listener of [listen.TCP] until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := listen.Server(guard.Handler("serving the hub", s.Handler()))
	server.ReadTimeout, server.WriteTimeout = readTimeout, writeTimeout
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := guard.AfterDone(ctx, "shutdown of the hub", func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		_ = server.Shutdown(within) // reads that wait end with ctx
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	s.once.Do(func() {
		s.reports, s.readers = make(chan struct{}, reportsAtOnce), make(chan struct{}, readersAtOnce)
		s.answers = make(chan struct{}, answersAtOnce)
	})
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST " + fleet.ReportsPath:                 s.report,
		"POST " + fleet.StreamPath:                  s.stream,
		"GET " + fleet.ClustersPath:                 s.list,
		"GET " + fleet.ClustersPath + "/{name}":     s.get,
		fleet.ClustersPath + "/{name}/ui/{path...}": s.forward,
		"GET " + fleet.RolloutPath:                  s.rollout,
		"GET /healthz":                              s.healthy,
		"/":                                         s.unknown,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Cache-Control", "no-store")
			if err := serve(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	if s.Pages != nil {
		return s.withPages(mux)
	}
	return mux
}

func (s *Server) healthy(w http.ResponseWriter, _ *http.Request) error {
	_, err := io.WriteString(w, "ok")
	return err
}

func (s *Server) unknown(_ http.ResponseWriter, r *http.Request) error {
	return refuse(http.StatusNotFound, "The hub has the paths "+fleet.ReportsPath+" and "+fleet.ClustersPath,
		"nothing is at this path, with method %s", r.Method)
}

// fail answers with an error. Errors that are not refusals are not shown.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *refusal
	if !errors.As(err, &refused) {
		if r.Context().Err() != nil {
			return // the client is gone, or the hub stops
		}
		s.Hub.Log.Error(err, "a request to the hub failed", "path", r.Pattern)
		refused = refuse(http.StatusInternalServerError, "Read the log of the hub", "the hub cannot answer")
	}
	if refused.cause != nil {
		s.Hub.Log.Info("a request to the hub was refused", "reason", refused.Error(), "cause", refused.cause.Error())
	}
	if refused.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(refused.retryAfter.Seconds())))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(refused.status)
	_ = json.NewEncoder(w).Encode(refused.body) // the client is gone
}

// report serves the report of a cluster.
func (s *Server) report(w http.ResponseWriter, r *http.Request) (err error) {
	cluster := r.Header.Get(fleet.ClusterHeader)
	defer func() {
		count(err)
		if err != nil && !errors.Is(err, errAgain) {
			s.Hub.reject(cluster, err)
		}
	}()
	m, err := s.Hub.Registry.authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	if err := m.allow(s.Hub.Now()); err != nil {
		return err
	}
	release, err := enter(r.Context(), s.reports)
	if err != nil {
		return err
	}
	defer release()
	report, err := s.read(w, r)
	if err != nil {
		return err
	}
	if report.Cluster != m.name {
		return refuse(http.StatusForbidden, "Set --report-as to the name that the hub knows the cluster by",
			"cluster '%s' cannot report for cluster '%s'", m.name, report.Cluster)
	}
	if err := s.Hub.accept(report); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// read reads the body of a report.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (*fleet.Report, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refuse(http.StatusUnsupportedMediaType, "Send JSON", "the body of a report must be "+
			"application/json")
	}
	report := &fleet.Report{}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, fleet.MaxBytes)).Decode(report)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, refuse(http.StatusRequestEntityTooLarge, "Run the same version in the hub and in the cluster",
			"the report is larger than %d bytes", fleet.MaxBytes)
	}
	if err == nil {
		err = report.Validate(s.Hub.Now())
	}
	if err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "Unless that says what to do, run the same version in "+
			"the hub and in the cluster", "%v", err)
	}
	return report, nil
}

// enter waits for room, until the client is gone.
func enter(ctx context.Context, room chan struct{}) (leave func(), err error) {
	select {
	case room <- struct{}{}:
		return func() { <-room }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stream serves the request by which a cluster opens its stream.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) error {
	m, err := s.Hub.Registry.authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	if s.Hub.Streams == nil {
		return refuse(http.StatusNotFound, "Reports work without streams", "this hub has no streams")
	}
	if err := m.allow(s.Hub.Now()); err != nil {
		return err
	}
	s.Hub.Streams.Accept(w, r, m.name)
	return nil
}

// forward sends the request of a user to the UI of a cluster.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	m := s.Hub.Registry.member(name)
	if s.Hub.Streams == nil || m == nil {
		return refuse(http.StatusNotFound, "List the clusters", "the hub has no stream of cluster '%s'", name[:min(
			len(name), fleet.MaxText)])
	}
	if m.hasSSO {
		s.addIDToken(r)
	}
	prefix := fleet.ClustersPath + "/" + name + "/ui"
	http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Hub.Streams.Forward(w, r, name)
	})).ServeHTTP(w, r)
	return nil
}

// mayRead returns who reads: a registered cluster, or nil for a user with the right.
func (s *Server) mayRead(r *http.Request, cluster string) (*member, error) {
	if r.Header.Get(fleet.ClusterHeader) == "" {
		return nil, s.Access.MayRead(r.Context(), s.visitor(r), cluster)
	}
	m, err := s.Hub.Registry.authenticate(r.Context(), r)
	if err != nil {
		return nil, err
	}
	if !m.mayRead && cluster != m.name {
		return nil, refuse(http.StatusForbidden, "Set '"+fleet.ReadsKey+"' to true in its Secret in the hub",
			"cluster '%s' may not read about other clusters", m.name)
	}
	return m, nil
}

// list serves the list of all clusters.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	reader, err := s.mayRead(r, "")
	if err != nil {
		return err
	}
	selector, err := labels.Parse(r.FormValue("labels"))
	if err != nil {
		return refuse(http.StatusBadRequest, "Write a selector such as region=eu,stage!=test",
			"the parameter labels is not a selector of labels")
	}
	wait := time.Duration(0)
	if text := r.FormValue("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil {
			return refuse(http.StatusBadRequest, "Write a duration such as 25s", "the parameter wait is not a duration")
		}
	}
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	default:
		refused := refuse(http.StatusServiceUnavailable, "Try again", "too many readers")
		refused.retryAfter = retryWhenTooFew
		return refused
	}
	wait = min(max(wait, 0), maxWait)
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + writeTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return err
	}
	list, err := s.Hub.List(r.Context(), r.FormValue("since"), wait)
	if err != nil {
		return err
	}
	list.Clusters = slices.DeleteFunc(list.Clusters, func(c fleet.Cluster) bool {
		return !selector.Matches(labels.Set(c.Labels))
	})
	for i := range list.Clusters {
		restrict(&list.Clusters[i], reader)
	}
	release, err := enter(r.Context(), s.answers)
	if err != nil {
		return err
	}
	defer release()
	return answer(w, r, list)
}

// get serves a cluster.
func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	reader, err := s.mayRead(r, name)
	if err != nil {
		return err
	}
	c, err := s.Hub.Get(r.Context(), name)
	if errors.Is(err, fleet.ErrNotFound) {
		return refuse(http.StatusNotFound, "List the clusters", "%v", err)
	}
	if err != nil {
		return err
	}
	restrict(c, reader)
	return answer(w, r, c)
}

// restrict removes what a cluster may not read of another one.
func restrict(c *fleet.Cluster, reader *member) {
	if reader == nil || reader.name == c.Name {
		return
	}
	c.Refused = ""
	if c.Summary != nil {
		small := *c.Summary
		small.Problems, small.Changes, small.Omitted = nil, nil, fleet.Omitted{}
		c.Summary = &small
	}
}

// answer writes JSON, compressed if the client accepts that.
func answer(w http.ResponseWriter, r *http.Request, value any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return json.NewEncoder(w).Encode(value)
	}
	w.Header().Set("Content-Encoding", "gzip")
	return compress(w, value)
}
