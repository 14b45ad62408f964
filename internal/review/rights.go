package review

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// userAgent names the service in the audit log of the API server.
const userAgent = "sluice-review"

// ReadOnly returns a configuration whose requests only read: other ones are refused, unless they are dry-runs, even if
// the account has the right.
func ReadOnly(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS, cfg.WarningHandler = userAgent, -1, rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return readOnly{next} })
	return cfg
}

// readOnly refuses requests that change something.
type readOnly struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t readOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if !onlyReads(r) {
		if r.Body != nil {
			_ = r.Body.Close() // as a transport must
		}
		return nil, fmt.Errorf("a review does not change the cluster: %s %s is refused", r.Method, r.URL.Path)
	}
	return t.next.RoundTrip(r)
}

// onlyReads reports whether a request changes nothing: it reads, asks for rights, or is a dry-run. Subresources that
// run something, such as exec, have no dry-run.
func onlyReads(r *http.Request) bool {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := path[len(path)-1]
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return last != "exec" && last != "attach" && last != "portforward"
	case http.MethodPost:
		if strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/") && strings.HasSuffix(last, "reviews") {
			return true
		}
	}
	all := r.URL.Query()["dryRun"]
	return len(all) == 1 && all[0] == "All"
}
