package ui

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
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
		fail(w, http.StatusBadGateway, cluster.WithHint(err).Error())
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, http.StatusGatewayTimeout, "the cluster did not answer in time. Try again.")
	case errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest:
		fail(w, int(status.Status().Code), cluster.WithHint(err).Error())
	default:
		s.Log.Error(err, "request to the UI failed")
		fail(w, http.StatusBadGateway, cluster.WithHint(err).Error())
	}
}
