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
	// MayRead returns nil if the reader may read the object that an artifact belongs to, else [ErrForbidden]. The key's kind is
	// in small letters. It is asked for every request and event, so answers are to be remembered for a while.
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
	if s.Access == nil {
		return reader{}, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return reader{}, ErrUnauthenticated
	}
	is, err := s.Access.Authenticate(r.Context(), token)
	return reader{is}, err
}

// refuse answers a request that is not allowed. The error itself may tell of the cluster: it is not for the client.
func refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "send the token of a ServiceAccount", http.StatusUnauthorized)
	case errors.Is(err, ErrForbidden):
		http.Error(w, "the ServiceAccount may not get this source", http.StatusForbidden)
	default:
		http.Error(w, "who may read this cannot be told now", http.StatusServiceUnavailable)
	}
}
