package helm

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintFitsTheStatusOfTheRepository(t *testing.T) {
	here, there := "https://charts.example/stable/index.yaml", "https://files.example/app-1.0.0.tgz"
	for name, c := range map[string]struct {
		status   int
		at, what string
		username string
		want     string
	}{
		"no login": {status: http.StatusUnauthorized, at: here, what: indexFile,
			want: "No login is set: set spec.secretRef to a Secret with username and password, or correct spec.url"},
		"wrong login": {status: http.StatusForbidden, at: here, what: indexFile, username: "me",
			want: "Check username and password in the Secret of spec.secretRef"},
		"login of another host": {status: http.StatusUnauthorized, at: there, what: "chart", username: "me",
			want: "The login is not sent to other hosts than that of spec.url. Set spec.passCredentials to send it"},
		"no index": {status: http.StatusNotFound, at: here, what: indexFile,
			want: "Check spec.url: it must be the address of the directory with index.yaml"},
		"no chart": {status: http.StatusNotFound, at: there, what: "chart",
			want: "The index lists a file that the repository does not have: publish the chart again"},
		"server error": {status: http.StatusBadGateway, at: here, what: indexFile},
	} {
		u, err := url.Parse(c.at)
		if err != nil {
			t.Fatal(err)
		}
		h := &HTTP{URL: "https://charts.example/stable", Username: c.username}
		err = h.status(&http.Response{StatusCode: c.status, Request: &http.Request{URL: u}}, "Failed", c.what)
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%s: got %v, want the hint %q", name, err, c.want)
		}
	}
}

func TestLargeIndexNamesTheFlag(t *testing.T) {
	_, _, err := spool(strings.NewReader("entries: {}"), 5)
	if err == nil || !strings.Contains(err.Error(), "the index is too large: it exceeds 5 bytes") {
		t.Errorf("got %v, want the limit", err)
	}
}
