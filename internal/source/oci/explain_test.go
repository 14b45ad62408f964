package oci

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

func TestHintsOfRegistries(t *testing.T) {
	login := authn.AuthConfig{Username: "me", Password: "secret"}
	unauthorized := &transport.Error{StatusCode: http.StatusUnauthorized}
	for name, c := range map[string]struct {
		login authn.AuthConfig
		err   error
		want  string
	}{
		"no login":    {err: unauthorized, want: "No login is set: set spec.secretRef"},
		"wrong login": {login: login, err: unauthorized, want: "Check the login and its permissions"},
		"forbidden": {err: &transport.Error{StatusCode: http.StatusForbidden},
			want: "Check the login and its permissions"},
		"not found": {login: login, err: &transport.Error{StatusCode: http.StatusNotFound},
			want: "Check the URL and the reference"},
		"plain HTTP": {err: fmt.Errorf("ping: %w", http.ErrSchemeMismatch),
			want: "Use a server with TLS, or set spec.insecure: true, or --insecure-registry on the command line"},
	} {
		err := ExplainLogin("Failed", c.login, c.err, "cannot read")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := ExplainLogin("Failed", login, errors.New("broken"), "cannot read"); err.Error() != "cannot read: broken" {
		t.Errorf("another error became %v", err)
	}
}

func TestNearestTags(t *testing.T) {
	tags := []string{"latest", "1.2.30", "2.0.0", "1.2.2", "1.2.4", "1.3.0"}
	if got := nearest("1.2.3", tags); !slices.Equal(got, []string{"1.2.2", "1.2.30", "1.2.4"}) {
		t.Errorf("got %q", got)
	}
}
