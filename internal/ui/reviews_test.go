package ui

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sluice-gitops/sluice/internal/review"
)

// fakeReviews is one review.
type fakeReviews struct{}

func (fakeReviews) List() []review.Summary { return []review.Summary{{Repository: "fleet", Number: 1}} }

func (fakeReviews) Problems() map[string]string { return nil }

func (fakeReviews) Detail(repository string, number int) (json.RawMessage, bool, error) {
	return json.RawMessage(`{"title":"secret plan"}`), repository == "fleet" && number == 1, nil
}

func (fakeReviews) Subscribe() (<-chan struct{}, func()) { return make(chan struct{}), func() {} }

// userWith returns a user who may do something or not, and a place for what was asked about.
func userWith(allowed bool, asked *authorizationv1.ResourceAttributes) *User {
	clients := fake.NewClientset()
	clients.PrependReactor("create", "selfsubjectaccessreviews",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
			*asked = *r.Spec.ResourceAttributes
			r.Status.Allowed = allowed
			return true, r, nil
		})
	return &User{Name: "u", Cluster: clients}
}

// TestReviewsNeedARightOfTheirOwn asks for reviews with and without the right, and of a server without reviews.
func TestReviewsNeedARightOfTheirOwn(t *testing.T) {
	t.Parallel()
	request := func(number string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.SetPathValue("repository", "fleet")
		r.SetPathValue("number", number)
		return r
	}
	for name, c := range map[string]struct {
		server  *Server
		allowed bool
		number  string
		want    int
	}{
		"with the right":    {&Server{Reviews: fakeReviews{}}, true, "1", http.StatusOK},
		"not open":          {&Server{Reviews: fakeReviews{}}, true, "2", http.StatusNotFound},
		"no number":         {&Server{Reviews: fakeReviews{}}, true, "x", http.StatusBadRequest},
		"without the right": {&Server{Reviews: fakeReviews{}}, false, "1", http.StatusForbidden},
		"without reviews":   {&Server{}, true, "1", http.StatusNotFound},
	} {
		var asked authorizationv1.ResourceAttributes
		got, err := c.server.reviewOf(t.Context(), userWith(c.allowed, &asked), request(c.number))
		status := http.StatusOK
		if err != nil {
			var failure *httpError
			if !errors.As(err, &failure) {
				t.Fatalf("%s: %v", name, err)
			}
			status = failure.status
		}
		if status != c.want || status == http.StatusForbidden && strings.Contains(err.Error(), "secret plan") {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		if c.server.Reviews != nil && (asked.Verb != "get" || asked.Resource != ReviewsResource ||
			asked.Namespace != "" || asked.Group != "gating.toolkit.fluxcd.io") {
			t.Errorf("%s: asked about %+v", name, asked)
		}
	}
}
