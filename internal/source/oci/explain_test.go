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
	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
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

func TestHintsOfLayers(t *testing.T) {
	r := ociregistry.New(t)
	repo := open(t, r, "app")
	_, err := repo.Pull(t.Context(), push(t, r, "app", "notes", map[string]string{"notes": strings.Repeat("x",
		maxAnnotations)}, static.NewLayer([]byte("x"), contentType)))
	requireFault(t, err, "OCIArtifactPullFailed", "Push the artifact with fewer annotations")
	image, err := repo.Pull(t.Context(), push(t, r, "app", "latest", nil, static.NewLayer([]byte("x"), contentType)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = image.Layer("text/plain")
	requireFault(t, err, "OCIArtifactLayerOperationFailed", "Correct spec.layerSelector.mediaType; the types of its "+
		"layers are '"+string(contentType)+"'")
	image.layers[0].Size = maxLayer + 1 // as the manifest of a large layer says
	_, err = image.Layer("")
	requireFault(t, err, "OCIArtifactLayerOperationFailed", "Push a smaller layer, or select another one with "+
		"spec.layerSelector.mediaType")
}

// redirecting is the transport to a server that redirects to plain HTTP.
type redirecting struct{}

func (redirecting) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTemporaryRedirect, Body: http.NoBody, Request: req,
		Header: http.Header{"Location": {"http://plain.example" + req.URL.Path}}}, nil
}

func TestHintOfPlainHTTP(t *testing.T) {
	repo, err := Open("oci://registry.example/app", Access{Transport: redirecting{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = repo.Resolve(t.Context(), Reference{})
	requireFault(t, err, insecureReason, "Use a server with TLS, or set spec.insecure: true, or --insecure-registry "+
		"on the command line")
}

func TestNearestTags(t *testing.T) {
	tags := []string{"latest", "1.2.30", "2.0.0", "1.2.2", "1.2.4", "1.3.0"}
	if got := nearest("1.2.3", tags); !slices.Equal(got, []string{"1.2.2", "1.2.30", "1.2.4"}) {
		t.Errorf("got %q", got)
	}
}
