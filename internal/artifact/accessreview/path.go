package accessreview

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Paths returns middleware that passes on the requests of users who may get the path of the request, as RBAC grants
// with nonResourceURLs.
func (r *Reviewer) Paths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch err := r.mayGetPath(req); {
		case err == nil:
			next.ServeHTTP(w, req)
		case errors.Is(err, artifact.ErrUnauthenticated):
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send the token of a user of this cluster in the header Authorization: Bearer <token>",
				http.StatusUnauthorized)
		case errors.Is(err, artifact.ErrForbidden):
			http.Error(w, "the user may not get this path; grant it the verb get in nonResourceURLs of a ClusterRole",
				http.StatusForbidden)
		default:
			log.FromContext(req.Context()).Error(err, "cannot authorize a request", "path", req.URL.Path)
			w.Header().Set("Retry-After", "5")
			http.Error(w, "cannot authorize the request; see the controller's log", http.StatusServiceUnavailable)
		}
	})
}

func (r *Reviewer) mayGetPath(req *http.Request) error {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return artifact.ErrUnauthenticated
	}
	user, err := r.User(req.Context(), token)
	if err != nil {
		return err
	}
	return r.may(req.Context(), user, request{verb: "get", path: req.URL.Path})
}

// review asks the API server whether a user may do what a SubjectAccessReview says.
func (r *Reviewer) review(ctx context.Context, user *authenticationv1.UserInfo,
	what authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	what.User, what.UID, what.Groups = user.Username, user.UID, user.Groups
	what.Extra = map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		what.Extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: what}
	if err := r.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("cannot review access: %w", err)
	}
	return review.Status.Allowed, nil
}
