package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/review"
)

// ReviewsResource is the resource that a user must be allowed to get, in all namespaces, to see reviews. It has no
// objects: a review compares objects of all namespaces.
const ReviewsResource = "reviews"

// Reviews are reviews of pull requests.
type Reviews interface {
	List() []review.Summary
	// Problems returns why pull requests of repositories cannot be listed, by name.
	Problems() map[string]string
	Detail(repository string, number int) (json.RawMessage, bool, error)
	Subscribe() (changes <-chan struct{}, stop func())
}

// reviewList is the answer about all open pull requests.
type reviewList struct {
	Reviews  []review.Summary  `json:"reviews"`
	Problems map[string]string `json:"problems,omitempty"` // by repository
}

// maySeeReviews returns an error unless the user may see reviews.
func (s *Server) maySeeReviews(ctx context.Context, u *User) error {
	if s.Reviews == nil {
		return NewError(http.StatusNotFound, "this server reviews no pull requests: see docs/review.md")
	}
	return CheckReviews(ctx, u, "get")
}

// CheckReviews returns an error unless the user has a right to reviews: get, to see them and to preview changes, or
// create, to propose changes with the login of the server.
func CheckReviews(ctx context.Context, u *User, verb string) error {
	answer, err := u.Cluster.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: gatingv1.GroupVersion.Group,
				Resource: ReviewsResource}}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return err
	case !answer.Status.Allowed:
		may := map[string]string{"get": "see reviews", "create": "propose changes"}[verb]
		return NewError(http.StatusForbidden, "you may not "+may+". Ask an administrator for the right to "+verb+" "+
			ReviewsResource+" of API group "+gatingv1.GroupVersion.Group+" in all namespaces")
	}
	return nil
}

func (s *Server) reviews(ctx context.Context, u *User, _ *http.Request) (any, error) {
	if err := s.maySeeReviews(ctx, u); err != nil {
		return nil, err
	}
	return reviewList{Reviews: s.Reviews.List(), Problems: s.Reviews.Problems()}, nil
}

func (s *Server) reviewOf(ctx context.Context, u *User, r *http.Request) (any, error) {
	if err := s.maySeeReviews(ctx, u); err != nil {
		return nil, err
	}
	done, err := s.heavy.take(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil {
		return nil, badRequest("the number of the pull request is not a number")
	}
	detail, found, err := s.Reviews.Detail(r.PathValue("repository"), number)
	if err == nil && !found {
		err = NewError(http.StatusNotFound, "this pull request is not open, or its repository is not reviewed")
	}
	return detail, err
}

// reviewPeriod is the time between two events of a stream of reviews.
const reviewPeriod = 500 * time.Millisecond

// streamReviews sends an event `reviews` after changes of reviews, until the client is gone. The client reads them
// again then.
func (s *Server) streamReviews(w http.ResponseWriter, r *http.Request) {
	u, err := s.Login.User(r)
	if err != nil {
		failLogin(w, err)
		return
	}
	if err := s.maySeeReviews(r.Context(), u); err != nil {
		s.sendError(w, err)
		return
	}
	if !s.streams.Open(u.Name, maxStreams, maxUserStreams) {
		fail(w, http.StatusTooManyRequests, "too many pages are open. Close some and load this page again.")
		return
	}
	defer s.streams.Close(u.Name)
	changes, stop := s.Reviews.Subscribe()
	defer stop()
	w.Header().Set("Content-Type", "text/event-stream")
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	heartbeat := time.NewTicker(streamHeartbeat)
	defer heartbeat.Stop()
	for event := "hello"; ; {
		if out.send(event, struct{}{}) != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(reviewPeriod): // changes meanwhile are one event
		}
		select {
		case <-r.Context().Done():
			return
		case <-changes:
			event = "reviews"
		case <-heartbeat.C:
			if _, err = s.Login.User(r); err != nil {
				return // logged out
			}
			event = "ping"
		}
	}
}
