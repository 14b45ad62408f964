package accessreview

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// EventsAudience is the audience of tokens that are good for posting events only.
const EventsAudience = "sluice-events"

// Errors of requests that are refused.
var (
	ErrUnauthenticated = artifact.ErrUnauthenticated
	ErrForbidden       = artifact.ErrForbidden
)

// Senders authorizes programs that post events: a sender may speak for the objects of a namespace if it may create
// Kubernetes Events there. Tokens are for [EventsAudience] or for the API server. It is safe for concurrent use.
type Senders struct{ reviewers []*Reviewer }

// NewSenders returns the authorization by the cluster of cfg.
func NewSenders(cfg *rest.Config) (*Senders, error) {
	s := &Senders{}
	for _, audience := range []string{EventsAudience, ""} {
		r, err := New(cfg, audience)
		if err != nil {
			return nil, err
		}
		s.reviewers = append(s.reviewers, r)
	}
	return s, nil
}

// Sender is an authenticated program that posts events.
type Sender struct {
	Name string // of the user

	user     *authenticationv1.UserInfo
	reviewer *Reviewer
}

// Authenticate returns who has a token. The error is [ErrUnauthenticated], or that of the review.
func (s *Senders) Authenticate(ctx context.Context, token string) (*Sender, error) {
	err := ErrUnauthenticated
	for _, r := range s.reviewers {
		var user *authenticationv1.UserInfo
		if user, err = r.User(ctx, token); err == nil {
			return &Sender{Name: user.Username, user: user, reviewer: r}, nil
		}
		if !errors.Is(err, ErrUnauthenticated) {
			break
		}
	}
	return nil, err
}

// MaySpeakFor returns nil if the sender may post events about the objects of a namespace; empty: about objects without
// one. The error is [ErrForbidden], or that of the review.
func (s *Sender) MaySpeakFor(ctx context.Context, namespace string) error {
	return s.reviewer.may(ctx, s.user, request{verb: "create", resource: schema.GroupResource{Resource: "events"},
		namespace: namespace})
}
