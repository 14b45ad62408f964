package ui

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// changedSince is the answer to a decision on what has changed since it was shown.
type changedSince struct {
	failure
	Current any `json:"current"` // what to decide on now
}

func (e *changedSince) Error() string { return e.failure.Error }

// failLogin answers a request that has no login.
func failLogin(w http.ResponseWriter, err error) {
	var own *httpError
	if errors.As(err, &own) {
		fail(w, own.status, own.text)
		return
	}
	fail(w, http.StatusUnauthorized, err.Error())
}

// sendError answers a request that failed, with the status that the API server gave.
func (s *Server) sendError(w http.ResponseWriter, err error) {
	var own *httpError
	var changed *changedSince
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &own):
		fail(w, own.status, own.text)
	case errors.As(err, &changed):
		send(w, http.StatusConflict, changed)
	case apierrors.IsUnauthorized(err): // not of the session of the page, which need not log in again
		fail(w, http.StatusBadGateway, explain(err))
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, http.StatusGatewayTimeout, "the cluster did not answer in time. Try again.")
	case errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest:
		fail(w, int(status.Status().Code), explain(err))
	default:
		s.Log.Error(err, "request to the UI failed")
		fail(w, http.StatusBadGateway, explain(err))
	}
}

// explain returns the text of an error of the API server and, for known causes, what to do about it in a browser.
func explain(err error) string {
	hint := ""
	var network *net.OpError
	var request *url.Error
	switch {
	case apimeta.IsNoMatchError(err):
		hint = "Run sluice check: a definition is missing."
	case apply.IsMissingRight(err):
		hint = "Ask an administrator for this permission."
	case apierrors.IsUnauthorized(err):
		hint = "The cluster rejected the credentials of this server: start it again."
	case errors.As(err, &network), errors.As(err, &request):
		hint = "Check that the cluster is running. This page tries again by itself."
	default:
		return err.Error()
	}
	return err.Error() + ". " + hint
}
