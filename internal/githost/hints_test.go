package githost

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestHintFitsTheStatusOfTheHost(t *testing.T) {
	r := &rest{api: url.URL{Host: "git.example"}, clock: clock.RealClock{}}
	for status, want := range map[int]string{
		http.StatusUnauthorized:     "Renew the login in the Secret; it is wrong or has expired",
		http.StatusForbidden:        "Grant the login in the Secret the required permission",
		http.StatusNotFound:         "Check the address and that the login has access to the repository",
		http.StatusMovedPermanently: "The repository may have moved; correct the address",
		http.StatusTooManyRequests:  "",
		http.StatusBadGateway:       "",
	} {
		err := r.explain("the statuses", &http.Response{StatusCode: status}, nil, auth.GitCredentials{})
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("status %d: got %v, want the hint %q", status, err, want)
		}
	}
}
