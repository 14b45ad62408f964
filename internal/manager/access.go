package manager

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

const (
	reviewed       = time.Minute      // how long a yes counts
	refused        = 10 * time.Second // how long a no does
	keptReviews    = 10_000
	reviewTimeout  = 5 * time.Second
	reviewsASecond = 20 // of all readers together, apart from what controllers ask the API server
)

// resources are those of what is served, by kind as it stands in addresses.
var resources = func() map[string]schema.GroupResource {
	all := map[string]schema.GroupResource{}
	for group, kinds := range map[string]map[string]string{
		sourcev1.GroupVersion.Group: {
			"gitrepository": "gitrepositories", "ocirepository": "ocirepositories",
			"helmrepository": "helmrepositories",
			"helmchart":      "helmcharts", "bucket": "buckets", "externalartifact": "externalartifacts",
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

// reviews asks the API server who may read artifacts and tags: whoever may get the object that they belong
// to. It implements [artifact.Access].
type reviews struct {
	client   client.Client
	audience string                    // of the tokens; that of the API server when empty
	tokens   *utilcache.LRUExpireCache // from the hash of a token to the user, nil of a bad one
	rights   *utilcache.LRUExpireCache // from user and key to an error
}

func newReviews(cfg *rest.Config, audience string) (*reviews, error) {
	cfg = rest.CopyConfig(cfg)
	// readers never slow the controllers down
	cfg.QPS, cfg.Burst, cfg.RateLimiter = reviewsASecond, 2*reviewsASecond, nil
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, err
	}
	return &reviews{c, audience, utilcache.NewLRUExpireCache(keptReviews),
		utilcache.NewLRUExpireCache(keptReviews)}, nil
}

// Authenticate implements [artifact.Access].
func (r *reviews) Authenticate(ctx context.Context, token string) (artifact.Reader, error) {
	user, err := r.user(ctx, token)
	if err != nil {
		return nil, err
	}
	return &tokenReader{r, token, user.Username}, nil
}

func (r *reviews) user(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	hash := sha256.Sum256([]byte(token))
	if known, ok := r.tokens.Get(hash); ok {
		if user := known.(*authenticationv1.UserInfo); user != nil {
			return user, nil
		}
		return nil, artifact.ErrUnauthenticated
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if r.audience != "" {
		review.Spec.Audiences = []string{r.audience}
	}
	if err := r.client.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("cannot review a token: %w", err)
	}
	if !review.Status.Authenticated {
		r.tokens.Add(hash, (*authenticationv1.UserInfo)(nil), refused)
		return nil, artifact.ErrUnauthenticated
	}
	r.tokens.Add(hash, &review.Status.User, reviewed)
	return &review.Status.User, nil
}

// tokenReader is who bears a token. A stream may outlive it, so it is looked at again when what is known of it is old.
type tokenReader struct {
	reviews *reviews
	token   string
	name    string
}

// MayRead implements [artifact.Reader].
func (t *tokenReader) MayRead(ctx context.Context, key artifact.Key) error {
	user, err := t.reviews.user(ctx, t.token)
	if err != nil {
		return err
	}
	return t.reviews.mayGet(ctx, user, key)
}

// right is a question that was answered.
type right struct {
	user, uid string
	key       artifact.Key
}

func (r *reviews) mayGet(ctx context.Context, user *authenticationv1.UserInfo, key artifact.Key) error {
	resource, ok := resources[key.Kind]
	if !ok {
		return artifact.ErrForbidden
	}
	question := right{user.Username, user.UID, key}
	if known, ok := r.rights.Get(question); ok {
		if known.(bool) {
			return nil
		}
		return artifact.ErrForbidden
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Group: resource.Group, Resource: resource.Resource, Namespace: key.Namespace, Name: key.Name,
		},
	}}
	if err := r.client.Create(ctx, review); err != nil {
		return errors.Join(errors.New("cannot review access"), err)
	}
	if !review.Status.Allowed {
		r.rights.Add(question, false, refused)
		return artifact.ErrForbidden
	}
	r.rights.Add(question, true, reviewed)
	return nil
}
