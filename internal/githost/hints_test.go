package githost

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintsOfChangeRequests(t *testing.T) {
	t.Parallel()
	r := Request{Head: "a", Base: "b", Title: "t", Labels: []string{"l"}}
	_, err := newClient(t, startScript(t, ""), Bitbucket, "https://bitbucket.org/o/r", "token", "s3cret").
		OpenRequest(testContext(t), r)
	if f := fault.As(err); f == nil || f.Hint != "Remove spec.git.pullRequest.labels" {
		t.Errorf("got %v", err)
	}
	for name, response := range map[string]string{"no change request": "{}", "web page": "<html>"} {
		server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, "[]")
				return
			}
			_, _ = io.WriteString(w, response)
		})
		_, err = newClient(t, server, GitHub, hosts[GitHub], "token", "s3cret").OpenRequest(testContext(t), r)
		if f := fault.As(err); f == nil || f.Hint != "Check the address and the type of the host, and the login" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestHintsOfPulls(t *testing.T) {
	t.Parallel()
	server := startServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	for kind, want := range map[Kind]string{
		Bitbucket: "Check the address and the type of the host, and the login",
		GitHub:    "Check the address and the type of the host, and the login",
	} {
		_, err := newClient(t, server, kind, hosts[kind], "token", "s3cret").Pull(testContext(t), 42)
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("%s: got %v, want the hint %q", kind, err, want)
		}
	}
}

func TestHintsOfGrants(t *testing.T) {
	t.Parallel()
	for missing, want := range map[string]string{
		http.MethodGet: "Check the host, the owner and the repository; the token needs the scope repo",
		http.MethodPut: "Correct the name of the group; the token must be allowed to see it",
	} {
		server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == missing {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = io.WriteString(w, "[]")
		})
		_, err := newClient(t, server, GitHub, hosts[GitHub], "token", "s3cret").EnsureGrant(testContext(t), Project{},
			Grant{Group: "team"})
		if f := fault.As(err); f == nil || !strings.HasPrefix(f.Hint, want) {
			t.Errorf("%s: got %v, want the hint %q", missing, err, want)
		}
	}
}

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
