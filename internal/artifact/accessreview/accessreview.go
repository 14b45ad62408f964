// Package accessreview authorizes reads of artifacts and image tags: a client may read what belongs to an object if
// the API server lets it get that object. It also authorizes programs that post events. Clients authenticate with a
// bearer token of the cluster.
package accessreview

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

const (
	positiveTTL    = time.Minute      // of a cached positive review
	negativeTTL    = 10 * time.Second // of a cached negative review
	cacheSize      = 10_000
	requestTimeout = 5 * time.Second
	requestQPS     = 20 // of all clients together, apart from the requests of controllers
)

// resources maps kinds, in lower case as in URLs, to their resources.
var resources = func() map[string]schema.GroupResource {
	all := map[string]schema.GroupResource{}
	for group, kinds := range map[string]map[string]string{
		sourcev1.GroupVersion.Group: {
			"gitrepository": "gitrepositories", "ocirepository": "ocirepositories",
			"helmrepository": "helmrepositories", "helmchart": "helmcharts", "bucket": "buckets",
			"externalartifact": "externalartifacts",
		},
		imagev1.GroupVersion.Group: {"imagerepository": "imagerepositories", "imagepolicy": "imagepolicies"},
		"apps": {"deployment": "deployments", "statefulset": "statefulsets",
			"daemonset": "daemonsets", "replicaset": "replicasets"},
		"batch": {"job": "jobs", "cronjob": "cronjobs"},
		"":      {"pod": "pods"},
	} {
		for kind, resource := range kinds {
			all[kind] = schema.GroupResource{Group: group, Resource: resource}
		}
	}
	return all
}()

// Reviewer authorizes by TokenReviews and SubjectAccessReviews, which it caches. It implements [artifact.Access] and
// is safe for concurrent use.
type Reviewer struct {
	client   client.Client
	audience string
	users    *utilcache.LRUExpireCache // SHA-256 of a token to *UserInfo; nil for an invalid token
	rights   *utilcache.LRUExpireCache // right to bool
}

// New returns a reviewer. Tokens must be for the audience, or for that of the API server if it is empty.
func New(cfg *rest.Config, audience string) (*Reviewer, error) {
	return NewWithLimit(cfg, audience, requestQPS)
}

// NewWithLimit returns a reviewer as [New] does, with a limit of requests per second of its own.
func NewWithLimit(cfg *rest.Config, audience string, qps int) (*Reviewer, error) {
	cfg = rest.CopyConfig(cfg)
	// A separate rate limit, so that clients cannot slow down the controllers.
	cfg.QPS, cfg.Burst, cfg.RateLimiter = float32(qps), 2*qps, nil
	c, err := client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, err
	}
	return &Reviewer{client: c, audience: audience, users: utilcache.NewLRUExpireCache(cacheSize),
		rights: utilcache.NewLRUExpireCache(cacheSize)}, nil
}

// Authenticate implements [artifact.Access].
func (r *Reviewer) Authenticate(ctx context.Context, token string) (artifact.Reader, error) {
	if _, err := r.User(ctx, token); err != nil {
		return nil, err
	}
	return &reader{r, token}, nil
}

// User returns whose token it is. The error is [ErrUnauthenticated], or that of the review. Answers are cached for up
// to a minute, so that a token which was revoked is refused soon.
func (r *Reviewer) User(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	hash := sha256.Sum256([]byte(token))
	if cached, ok := r.users.Get(hash); ok {
		if user := cached.(*authenticationv1.UserInfo); user != nil {
			return user, nil
		}
		return nil, artifact.ErrUnauthenticated
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if r.audience != "" {
		review.Spec.Audiences = []string{r.audience}
	}
	if err := r.client.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("cannot review the token: %w", err)
	}
	if !review.Status.Authenticated {
		r.users.Add(hash, (*authenticationv1.UserInfo)(nil), negativeTTL)
		return nil, artifact.ErrUnauthenticated
	}
	r.users.Add(hash, &review.Status.User, positiveTTL)
	return &review.Status.User, nil
}

// reader is the bearer of a token. A stream of events may outlive the token, so the token is reviewed again when the
// cached review expires.
type reader struct {
	reviewer *Reviewer
	token    string
}

// MayRead implements [artifact.Reader].
func (r *reader) MayRead(ctx context.Context, key artifact.Key) error {
	user, err := r.reviewer.User(ctx, r.token)
	if err != nil {
		return err
	}
	return r.reviewer.mayGet(ctx, user, key)
}

// MayPublish returns nil if the owner of a token may write the status of the ExternalArtifact of a key, and so decide
// about its artifact. Otherwise the error is [artifact.ErrUnauthenticated], [artifact.ErrForbidden], or that of the
// review.
func (r *Reviewer) MayPublish(ctx context.Context, token string, key artifact.Key) error {
	user, err := r.User(ctx, token)
	if err != nil {
		return err
	}
	return r.may(ctx, user, request{verb: "patch", resource: resources[key.Kind], subresource: "status",
		namespace: key.Namespace, name: key.Name})
}

// request is what a user may be allowed to do.
type request struct {
	verb            string
	resource        schema.GroupResource
	subresource     string
	namespace, name string // empty: all
	path            string // instead of a resource
}

func (r request) spec() authorizationv1.SubjectAccessReviewSpec {
	if r.path != "" {
		return authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: r.verb, Path: r.path}}
	}
	return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.verb,
		Group: r.resource.Group, Resource: r.resource.Resource, Subresource: r.subresource, Namespace: r.namespace,
		Name: r.name}}
}

// right is the key of a cached SubjectAccessReview.
type right struct {
	user, uid, groups string
	request           request
}

func (r *Reviewer) mayGet(ctx context.Context, user *authenticationv1.UserInfo, key artifact.Key) error {
	resource, ok := resources[key.Kind]
	if !ok {
		return artifact.ErrForbidden
	}
	return r.may(ctx, user, request{verb: "get", resource: resource, namespace: key.Namespace, name: key.Name})
}

// may returns nil if a user may do what is requested, else [artifact.ErrForbidden] or the error of the review.
func (r *Reviewer) may(ctx context.Context, user *authenticationv1.UserInfo, what request) error {
	cacheKey := right{user: user.Username, uid: user.UID, groups: strings.Join(user.Groups, "\x00"), request: what}
	if allowed, ok := r.rights.Get(cacheKey); ok {
		if allowed.(bool) {
			return nil
		}
		return artifact.ErrForbidden
	}
	allowed, err := r.review(ctx, user, what.spec())
	if err != nil {
		return err
	}
	if !allowed {
		r.rights.Add(cacheKey, false, negativeTTL)
		return artifact.ErrForbidden
	}
	r.rights.Add(cacheKey, true, positiveTTL)
	return nil
}

// MayDo returns nil if who has a token may do something with a resource without a namespace; with an empty name, with
// all of it. The error is [ErrUnauthenticated], [ErrForbidden], or that of a review.
func (r *Reviewer) MayDo(ctx context.Context, token, verb string, resource schema.GroupResource, name string) error {
	user, err := r.User(ctx, token)
	if err != nil {
		return err
	}
	return r.UserMayDo(ctx, user, verb, resource, name)
}

// UserMayDo returns nil if a user may do what [Reviewer.MayDo] is about. The error is [ErrForbidden], or that of a
// review.
func (r *Reviewer) UserMayDo(ctx context.Context, user *authenticationv1.UserInfo, verb string,
	resource schema.GroupResource, name string) error {

	return r.may(ctx, user, request{verb: verb, resource: resource, name: name})
}

// Allowed asks the API server whether a user may do what the attributes say. The answer is not cached.
func (r *Reviewer) Allowed(ctx context.Context, user *authenticationv1.UserInfo,
	what *authorizationv1.ResourceAttributes) (bool, error) {
	return r.review(ctx, user, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: what})
}
