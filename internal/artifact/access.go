package artifact

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// Access decides who may read artifacts. Errors that are neither of these two mean that it cannot be told now.
type Access interface {
	// Authenticate returns who bears the token; [ErrUnauthenticated] when nobody does.
	Authenticate(ctx context.Context, token string) (Reader, error)
}

// Reader is who asks for artifacts.
type Reader interface {
	// MayRead returns nil if the reader may read the object that an artifact belongs to, else [ErrForbidden].
	// The key's kind is in small letters. It is asked for every request and event, so answers are to be
	// remembered for a while.
	MayRead(ctx context.Context, key Key) error
}

// Errors of an [Access].
var (
	ErrUnauthenticated = errors.New("the token is not valid")
	ErrForbidden       = errors.New("the source may not be read")
)

// reader is who asks; of a server that checks nobody it is nobody.
type reader struct{ is Reader }

func (r reader) may(ctx context.Context, key Key) error {
	if r.is == nil {
		return nil
	}
	return r.is.MayRead(ctx, key)
}

// reader finds out who sends a request.
func (s *Server) reader(r *http.Request) (reader, error) {
	is, err := Identify(s.Access, r)
	return reader{is}, err
}

// Identify finds out who sends a request; nil if there is no access to ask, which lets everybody read everything.
func Identify(a Access, r *http.Request) (Reader, error) {
	if a == nil {
		return nil, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, ErrUnauthenticated
	}
	return a.Authenticate(r.Context(), token)
}

// refuse answers a request that is not allowed.
func refuse(w http.ResponseWriter, err error) {
	status, message := Refusal(w.Header(), err)
	http.Error(w, message, status)
}

// Refusal says how a request is refused that is not allowed, and adds the header that goes with it. The error
// itself may tell of the cluster: it is not for the client.
func Refusal(header http.Header, err error) (status int, message string) {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		header.Set("WWW-Authenticate", "Bearer")
		return http.StatusUnauthorized, "send the token of a ServiceAccount"
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden, "the ServiceAccount may not get this object"
	default:
		return http.StatusServiceUnavailable, "who may read this cannot be told now"
	}
}
