package ui

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// MCPAgent is the user agent and the field manager of requests that the MCP server makes. The admission policies of
// gates refuse approvals and requests with it.
const MCPAgent = "sluice-mcp"

// Object names an object of ours in a request.
type Object struct{ Kind, Namespace, Name string }

// Read answers a GET request of the API to a caller in this process, with the rights of the user and the bounds of the
// API. The path is that below /api/v1, with the object in braces: objects/{kind}/{namespace}/{name}.
func (s *Server) Read(ctx context.Context, u *User, path string, o Object, q url.Values) (any, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.SetPathValue("kind", o.Kind)
	r.SetPathValue("namespace", o.Namespace)
	r.SetPathValue("name", o.Name)
	if err := checkQuery(r); err != nil {
		return nil, err
	}
	if !s.requests.Open(u.Name, maxRequests, maxUserRequests) {
		return nil, errTooMany
	}
	defer s.requests.Close(u.Name)
	answer, err := s.handlers()["GET /api/v1/"+path](ctx, u, r)
	return answer, explained(err)
}

// explained adds what to do to an error of the API server, and keeps other errors.
func explained(err error) error {
	if err == nil {
		return nil
	}
	return &httpError{status: http.StatusBadGateway, text: explain(err)}
}

// Events returns the last events of an object, newest first.
func (s *Server) Events(ctx context.Context, u *User, o Object) (any, error) {
	events, err := eventsOf(ctx, u, o.Kind, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	return events, explained(err)
}

// Reconcile requests a reconcile of an object in the name of the user.
func (s *Server) Reconcile(ctx context.Context, u *User, o Object) error {
	return s.actInProcess(ctx, u, o, actReconcile, "")
}

// Suspend suspends an object in the name of the user. The reason must not be empty.
func (s *Server) Suspend(ctx context.Context, u *User, o Object, reason string) error {
	return s.actInProcess(ctx, u, o, actSuspend, reason)
}

// Resume resumes an object in the name of the user.
func (s *Server) Resume(ctx context.Context, u *User, o Object) error {
	return s.actInProcess(ctx, u, o, actResume, "")
}

// actInProcess does one of the actions that a caller in this process may ask for. None of them is about a gate.
func (s *Server) actInProcess(ctx context.Context, u *User, o Object, action, reason string) error {
	k := kind.ByName(o.Kind)
	if k == nil || k.Name() == gatingv1.GateKind {
		return badRequest("only objects that are reconciled can be asked to %s, and only people decide about gates",
			action)
	}
	obj := k.New()
	if err := u.Client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, obj); err != nil {
		return explained(err)
	}
	body := order{Reason: strings.TrimSpace(reason)}
	if err := s.allowAction(u, k, obj, action, body); err != nil {
		return err
	}
	return explained(s.actOn(ctx, u, k, obj, action, body))
}
