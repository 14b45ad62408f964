package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// externalKind is the kind whose artifacts are at URLs that users write, in lower case.
const externalKind = "externalartifact"

// storedKinds are the kinds whose artifacts are in stores, in lower case.
var storedKinds = []string{"bucket", externalKind, "gitrepository", "helmchart", "helmrepository", "ocirepository"}

// isExternal reports whether a user writes the URLs of the artifacts.
func (k Key) isExternal() bool { return strings.EqualFold(k.Kind, externalKind) }

var errForeign = errors.New("the URL is that of an artifact of another object")

// external returns the client for the artifacts of an ExternalArtifact.
func (f *Fetcher) external(key Key) *http.Client {
	c := *cmp.Or(f.External, f.Client)
	own := ownArtifacts{base: c.Transport, dir: key.dir()}
	if own.base == nil {
		own.base = http.DefaultTransport
	}
	if f.Store != nil {
		own.storeHost = f.Store.host
	}
	c.Transport = own
	return &c
}

// ownArtifacts rejects requests, also after redirects, to artifacts of other objects on artifact servers. Such a server
// may answer the controller although the author of the URL may not read the artifact.
type ownArtifacts struct {
	base      http.RoundTripper
	dir       string // of the object in a store
	storeHost string // of the store of this process; empty if there is none
}

// RoundTrip implements [http.RoundTripper].
func (o ownArtifacts) RoundTrip(r *http.Request) (*http.Response, error) {
	a := parseAddress(path.Clean("/" + r.URL.Path)) // other servers may clean it
	isOwn := a != nil && a.key.dir() == o.dir
	names := a != nil && (a.key == (Key{}) || slices.Contains(storedKinds, a.key.Kind))
	if !isOwn && (names || o.storeHost != "" && strings.EqualFold(r.URL.Host, o.storeHost)) {
		return nil, errForeign
	}
	return o.base.RoundTrip(r)
}

// explainExternal returns the error of a download that the author of the URL may read. Status codes, network errors and
// digests would describe servers that only the controller can reach.
func explainExternal(u *url.URL, err error) error {
	var invalid invalidArchive
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errForeign):
		return errForeign
	case errors.As(err, &invalid):
		return invalid // it has the expected digest, so its author knows the content
	case egress.IsRefused(err):
		return fmt.Errorf("the address of host '%s' is not allowed: it is link-local or loopback", u.Host)
	}
	return fmt.Errorf("host '%s' did not return an archive that has the digest of status.artifact", u.Host)
}
