package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/fleet"
)

// reviewQPS is how many reviews per second the hub asks its API server for, of all readers together.
const reviewQPS = 20

// clusterAccess is the access of users of the hub's cluster. Tokens are for the audience of the hub, or for the API
// server.
type clusterAccess []*accessreview.Reviewer

// NewAccess returns the access that the cluster of cfg decides about.
func NewAccess(cfg *rest.Config, audience string) (Access, error) {
	var all clusterAccess
	for _, a := range []string{"", audience} {
		r, err := accessreview.NewWithLimit(cfg, a, reviewQPS)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// MayRead implements [Access].
func (a clusterAccess) MayRead(ctx context.Context, who Visitor, cluster string) error {
	verb, subject := "get", "you"
	if cluster == "" {
		verb = "list"
	}
	clusters := schema.GroupResource{Group: fleet.Group, Resource: fleet.Resource}
	err := accessreview.ErrUnauthenticated
	if who.User != "" {
		subject = fmt.Sprintf("user '%s'", who.User)
		user := &authenticationv1.UserInfo{Username: who.User, Groups: login.AllGroups(who.Groups)}
		err = a[0].UserMayDo(ctx, user, verb, clusters, cluster)
	}
	for _, r := range a {
		if who.Token == "" || !errors.Is(err, accessreview.ErrUnauthenticated) {
			break
		}
		err = r.MayDo(ctx, who.Token, verb, clusters, cluster)
	}
	switch {
	case errors.Is(err, accessreview.ErrUnauthenticated) && who.Token == "":
		return refuse(http.StatusUnauthorized, tokenHint, "the request has no bearer token")
	case errors.Is(err, accessreview.ErrUnauthenticated):
		return refuse(http.StatusUnauthorized, tokenHint, "the token is not valid, or it has expired")
	case errors.Is(err, accessreview.ErrForbidden):
		return refuse(http.StatusForbidden, "Ask for ClusterRole sluice-fleet-viewer", "%s may not %s clusters of %s",
			subject, verb, fleet.Group)
	case err != nil:
		refused := refuse(http.StatusServiceUnavailable, "Try again", "the hub's cluster cannot check your rights now")
		refused.cause, refused.retryAfter = err, retryWhenTooFew
		return refused
	}
	return nil
}

const tokenHint = "Send a token of the hub's cluster, such as that of kubectl create token"
