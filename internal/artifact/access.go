package artifact

import (
	"context"
	"errors"
	"net/http"

	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// Access decides who may read artifacts. Any error other than [ErrUnauthenticated] and [ErrForbidden] means that
// access cannot be checked at the moment.
type Access interface {
	// Authenticate returns the owner of the token, or [ErrUnauthenticated] if the token is not valid.
	Authenticate(ctx context.Context, token string) (Reader, error)
}

// Reader is an authenticated client that requests artifacts.
type Reader interface {
	// MayRead returns nil if the reader may read the object that an artifact belongs to, else [ErrForbidden].
	// The key's kind is in lower case. MayRead is called for every request and event, so implementations should
	// cache their answers for a short time.
	MayRead(ctx context.Context, key Key) error
}

// Errors of an [Access].
var (
	ErrUnauthenticated = errors.New("the token is not valid")
	ErrForbidden       = errors.New("access to the source is forbidden")
)

// reader is the client of a request. Its Reader is nil if the server does not check access.
type reader struct{ is Reader }

func (r reader) may(ctx context.Context, key Key) error {
	if r.is == nil {
		return nil
	}
	return r.is.MayRead(ctx, key)
}

// reader authenticates the client of a request.
func (s *Server) reader(r *http.Request) (reader, error) {
	is, err := Identify(s.Access, r)
	return reader{is}, err
}

// Identify authenticates the client of a request. It returns nil if a is nil: then every client may read everything.
func Identify(a Access, r *http.Request) (Reader, error) {
	if a == nil {
		return nil, nil
	}
	token := listen.Bearer(r.Header)
	if token == "" {
		return nil, ErrUnauthenticated
	}
	return a.Authenticate(r.Context(), token)
}

// refuse writes the response to a request that is not allowed.
func refuse(w http.ResponseWriter, err error) {
	status, message := Refusal(w.Header(), err)
	http.Error(w, message, status)
}

// Refusal returns the status and the message for a request that is not allowed, and sets the response header that
// belongs to them. The error itself is not sent to the client, because it may contain details of the cluster.
func Refusal(header http.Header, err error) (status int, message string) {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		header.Set("WWW-Authenticate", "Bearer")
		return http.StatusUnauthorized, "send the token of a ServiceAccount"
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden, "the ServiceAccount may not get this object"
	default:
		return http.StatusServiceUnavailable, "access cannot be checked at the moment; try again later"
	}
}
