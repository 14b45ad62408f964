package artifact

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxRevision = 512      // bytes
	maxFailure  = 16 << 10 // bytes
	uploadRetry = time.Second
)

// Upload is what a program publishes as the artifact of an ExternalArtifact, or why it has none.
type Upload struct {
	Key      Key
	Revision string // of what the artifact is made from
	Tree     *Tree  // nil with a failure
	Failure  string
}

// Uploads accepts the artifacts of programs that have the token of a ServiceAccount:
//
//	PUT  /externalartifact/<namespace>/<name>?revision=<revision>   a .tar.gz, the artifact of the revision
//	POST /externalartifact/<namespace>/<name>?revision=<revision>   a text: why the revision has no artifact
type Uploads struct {
	// MayPublish returns nil if the owner of the token may publish the artifact of an ExternalArtifact, else
	// [ErrUnauthenticated], [ErrForbidden], or the error of the check.
	MayPublish func(ctx context.Context, token string, key Key) error
	// Publish stores an upload, and returns the HTTP status that describes the result.
	Publish func(ctx context.Context, u Upload) (status int, err error)
	// IsStandby reports whether another replica accepts uploads.
	IsStandby func() bool
}

// ServeHTTP implements [http.Handler].
func (u *Uploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	key := Key{Kind: externalKind}
	if len(parts) == 3 && parts[0] == externalKind {
		key.Namespace, key.Name = parts[1], parts[2]
	}
	if key.check() != nil {
		http.NotFound(w, r)
		return
	}
	if err := u.mayPublish(r, key); errors.Is(err, ErrForbidden) {
		http.Error(w, "the ServiceAccount may not patch externalartifacts/status of this object", http.StatusForbidden)
		return
	} else if err != nil {
		refuse(w, err)
		return
	}
	if u.IsStandby() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this replica waits for the lease: retry", http.StatusServiceUnavailable)
		return
	}
	upload, err := readUpload(w, r, key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, err := u.Publish(r.Context(), *upload)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	w.WriteHeader(status)
}

func (u *Uploads) mayPublish(r *http.Request, key Key) error {
	token := listen.Bearer(r.Header)
	if token == "" {
		return ErrUnauthenticated
	}
	return u.MayPublish(r.Context(), token, key)
}

// readUpload reads the body of a request.
func readUpload(w http.ResponseWriter, r *http.Request, key Key) (*Upload, error) {
	u := &Upload{Key: key, Revision: r.URL.Query().Get("revision")}
	if u.Revision == "" || len(u.Revision) > maxRevision || strings.ContainsFunc(u.Revision, isControl) {
		return nil, fmt.Errorf("the parameter revision must have 1 to %d bytes, and no control characters", maxRevision)
	}
	// The server's deadline is for a short request.
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(downloadTimeout)); err != nil {
		return nil, err
	}
	if r.Method == http.MethodPost {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFailure))
		if err == nil && len(bytes.TrimSpace(text)) == 0 {
			err = errors.New("the text of the failure is empty")
		}
		u.Failure = strings.ToValidUTF8(string(text), "?")
		return u, err
	}
	tree, err := ReadArchive(guard.WithOwner(r.Context(), key.Namespace), http.MaxBytesReader(w, r.Body, maxDownload))
	if err != nil {
		return nil, fmt.Errorf("the body is not an archive that can be an artifact: %w", err)
	}
	if len(tree.root.Entries) == 0 {
		return nil, errors.New("the archive has no files")
	}
	u.Tree = tree
	return u, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Publisher uploads artifacts to an artifact server.
type Publisher struct {
	Server *url.URL
	Client *http.Client
}

// Publish uploads an artifact, or why there is none. It tries again while the server cannot accept it, until ctx ends.
func (p *Publisher) Publish(ctx context.Context, u Upload) error {
	method, body := http.MethodPost, []byte(u.Failure)
	if u.Tree != nil {
		var archive bytes.Buffer
		if err := WriteArchive(ctx, &archive, u.Tree); err != nil {
			return err
		}
		method, body = http.MethodPut, archive.Bytes()
	}
	to := p.Server.JoinPath(externalKind, u.Key.Namespace, u.Key.Name)
	to.RawQuery = url.Values{"revision": {u.Revision}}.Encode()
	for {
		status, err := p.send(ctx, method, to.String(), body)
		if status != http.StatusServiceUnavailable && status != http.StatusConflict {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(uploadRetry):
		}
	}
}

// send sends a request. Each has a connection of its own, as another replica may answer the next one.
func (p *Publisher) send(ctx context.Context, method, to string, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Close = true
	resp, err := p.Client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Server.Host, fault.WithoutURL(err))
	}
	defer resp.Body.Close() // its error does not matter: the status is known
	if resp.StatusCode < 300 {
		return resp.StatusCode, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailure)) // the status says enough
	return resp.StatusCode, fmt.Errorf("%s: %s", p.Server.Host,
		cmp.Or(strings.TrimSpace(string(text)), http.StatusText(resp.StatusCode)))
}

// Serves reports whether the server has the file of a path.
func (p *Publisher) Serves(ctx context.Context, relative string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, p.Server.JoinPath(relative).String(), http.NoBody)
	if err != nil {
		return false, err
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return false, fmt.Errorf("%s: %w", p.Server.Host, fault.WithoutURL(err))
	}
	if err := resp.Body.Close(); err != nil {
		return false, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	}
	return false, fmt.Errorf("%s: %s", p.Server.Host, http.StatusText(resp.StatusCode))
}

// AtServer returns a client whose requests for artifacts in stores go to one server, also if their URLs name another.
func AtServer(c *http.Client, server *url.URL) *http.Client {
	at := *c
	at.Transport = atServer{cmp.Or[http.RoundTripper](c.Transport, http.DefaultTransport), server}
	return &at
}

type atServer struct {
	base   http.RoundTripper
	server *url.URL
}

// RoundTrip implements [http.RoundTripper].
func (s atServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if parseAddress(path.Clean(r.URL.Path)) != nil {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host, r.Host = s.server.Scheme, s.server.Host, s.server.Host
	}
	return s.base.RoundTrip(r)
}
