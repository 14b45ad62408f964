package helm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Limits bound what is read, in bytes.
type Limits struct {
	Index int64 // of an index
	Chart int64 // of a packaged chart
	File  int64 // of one file of a chart
}

// DefaultLimits are more than public repositories and charts need.
var DefaultLimits = Limits{Index: 100 << 20, Chart: 10 << 20, File: 5 << 20}

// Offer is a version of a chart that a repository has.
type Offer struct {
	Name, Version string // the name that was asked for: in a registry it may be the path to the chart
	// of what is pulled, as sha256:HEX: the package, in a registry the manifest; empty when an index says none
	Digest string
	URL    string // of the package, in a registry its reference
}

// Chart is the name that the chart gives itself.
func (o Offer) Chart() string { return path.Base(o.Name) }

// Repository is where packaged charts come from. Errors are faults.
type Repository interface {
	// Find returns the newest version that the constraint admits.
	Find(ctx context.Context, name, constraint string) (Offer, error)
	// Pull returns the packaged chart, once it is what the digest says.
	Pull(ctx context.Context, o Offer) ([]byte, error)
	// Provenance returns the signed provenance file that belongs to the package.
	Provenance(ctx context.Context, o Offer) ([]byte, error)
}

// HTTP is a chart repository over HTTP(S). Its index is fetched by [HTTP.FetchIndex] and set, before charts
// are looked for.
type HTTP struct {
	URL                string
	Username, Password string
	PassCredentials    bool // also to the hosts of charts that are others than the URL's
	Transport          http.RoundTripper
	Limits             Limits
	Index              *Index
}

// Validators tell a server which state of an index is known.
type Validators struct{ ETag, LastModified string }

// IndexFile is a fetched index, in a file without name: it is gone once closed, and when the process ends.
type IndexFile struct {
	*os.File
	Digest     string // sha256:HEX
	Validators Validators
}

// FetchIndex fetches index.yaml, or returns nil when the server says that it is as known.
func (h *HTTP) FetchIndex(ctx context.Context, known Validators) (*IndexFile, error) {
	at, err := h.indexURL()
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if known.ETag != "" {
		header.Set("If-None-Match", known.ETag)
	}
	if known.LastModified != "" {
		header.Set("If-Modified-Since", known.LastModified)
	}
	resp, err := h.get(ctx, at, header, sourcev1.IndexationFailedReason, "the index")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // nothing is written
	if resp.StatusCode == http.StatusNotModified && known != (Validators{}) {
		return nil, nil
	}
	if err := h.status(resp, sourcev1.IndexationFailedReason, "the index"); err != nil {
		return nil, err
	}
	file, digest, err := spool(resp.Body, h.Limits.Index)
	if err != nil {
		return nil, fault.New(sourcev1.IndexationFailedReason, "cannot fetch the index of %s", fault.RedactURL(h.URL)).
			Because(err).
			WithHint("An index of more than the limit needs a larger --helm-index-max-size")
	}
	return &IndexFile{file, digest, validators(resp)}, nil
}

// validators are what the next request may ask with. A time of change that is not in the past of the answer
// does not tell whether the file changed again in the same second (RFC 9110, 8.8.2.2).
func validators(resp *http.Response) Validators {
	v := Validators{ETag: resp.Header.Get("ETag")}
	modified, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	answered, dateErr := http.ParseTime(resp.Header.Get("Date"))
	if err == nil && dateErr == nil && answered.Sub(modified) >= 2*time.Second {
		v.LastModified = resp.Header.Get("Last-Modified")
	}
	return v
}

// Parse reads the fetched index.
func (f *IndexFile) Parse(l Limits) (*Index, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	index, err := ParseIndex(f, l.Index)
	if err != nil {
		return nil, fault.New(sourcev1.IndexationFailedReason, "%s", err).
			WithHint("Check that spec.url is that of a Helm repository")
	}
	return index, nil
}

// spool copies at most limit bytes into a file without name.
func spool(r io.Reader, limit int64) (*os.File, string, error) {
	f, err := os.CreateTemp("", "sluice-index-")
	if err != nil {
		return nil, "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	if err = errors.Join(os.Remove(f.Name()), withoutURL(err)); err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	return f, "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// Find implements [Repository].
func (h *HTTP) Find(_ context.Context, name, constraint string) (Offer, error) {
	e, err := h.Index.Find(name, constraint)
	if err != nil {
		return Offer{}, notFound(err, h.URL)
	}
	at, err := h.chartURL(e.URL)
	if err != nil {
		return Offer{}, fault.New(sourcev1.InvalidChartReferenceReason,
			"the URL of version %s of chart '%s' in the index of %s cannot be used",
			e.Version, name, fault.RedactURL(h.URL)).Because(err)
	}
	o := Offer{Name: name, Version: e.Version, URL: at}
	if e.Digest != "" {
		o.Digest = "sha256:" + e.Digest
	}
	return o, nil
}

func notFound(err error, repository string) error {
	return fault.New(sourcev1.InvalidChartReferenceReason, "%s of %s", err, fault.RedactURL(repository)).
		WithHint("Correct spec.chart or spec.version, or publish the version").Final()
}

// Pull implements [Repository].
func (h *HTTP) Pull(ctx context.Context, o Offer) ([]byte, error) {
	data, err := h.download(ctx, o.URL, h.Limits.Chart, "chart '"+o.Name+"' "+o.Version)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	if got := "sha256:" + hex.EncodeToString(sum[:]); o.Digest != "" && got != o.Digest {
		return nil, fault.New(sourcev1.ChartPullErrorReason,
			"chart '%s' %s from %s has the digest %s, and the index says %s",
			o.Name, o.Version, fault.RedactURL(o.URL), got, o.Digest).
			WithHint("Either was changed after it was published. The last artifact keeps being served")
	}
	return data, nil
}

// maxProvenance bounds a provenance file.
const maxProvenance = 1 << 20

// Provenance implements [Repository].
func (h *HTTP) Provenance(ctx context.Context, o Offer) ([]byte, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	u.Path += ".prov"
	u.RawPath = ""
	return h.download(ctx, u.String(), maxProvenance, "the provenance of chart '"+o.Name+"' "+o.Version)
}

func (h *HTTP) download(ctx context.Context, at string, limit int64, what string) ([]byte, error) {
	resp, err := h.get(ctx, at, http.Header{}, sourcev1.ChartPullErrorReason, what)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // nothing is written
	if err := h.status(resp, sourcev1.ChartPullErrorReason, what); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	if err != nil {
		return nil, fault.New(sourcev1.ChartPullErrorReason, "cannot fetch %s from %s", what, fault.RedactURL(at)).
			Because(withoutURL(err))
	}
	return data, nil
}

// get sends a request, with the credentials where they may go.
func (h *HTTP) get(ctx context.Context, at string, header http.Header, reason, what string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fault.New(meta.URLInvalidReason, "the URL %s cannot be read", fault.RedactURL(at)).Final()
	}
	req.Header = header
	if h.Username != "" && (h.PassCredentials || h.sameHost(req.URL)) {
		req.SetBasicAuth(h.Username, h.Password)
	}
	resp, err := (&http.Client{Transport: h.Transport}).Do(req)
	if err != nil {
		f := fault.New(reason, "cannot fetch %s from %s", what, fault.RedactURL(at)).Because(withoutURL(err))
		if cause := fault.As(err); cause != nil {
			f.RetryAfter = cause.RetryAfter
		}
		return nil, f
	}
	return resp, nil
}

// sameHost tells whether a URL is of the repository's scheme, host and port.
func (h *HTTP) sameHost(u *url.URL) bool {
	base, err := url.Parse(h.URL)
	return err == nil && strings.EqualFold(base.Scheme, u.Scheme) && strings.EqualFold(base.Host, u.Host)
}

func (h *HTTP) status(resp *http.Response, reason, what string) error {
	at := fault.RedactURL(resp.Request.URL.String())
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(meta.AuthenticationFailedReason, "%s refuses to give %s: status %d", at, what,
			resp.StatusCode).
			WithHint("Check username and password in the Secret of spec.secretRef; those of another host need " +
				"spec.passCredentials")
	case http.StatusNotFound:
		return fault.New(reason, "%s has not %s: status %d", at, what, resp.StatusCode).WithHint("Check the URL")
	default:
		return fault.New(reason, "%s answers a request for %s with status %d", at, what, resp.StatusCode)
	}
}

// base returns the repository's URL as a folder.
func (h *HTTP) base() (*url.URL, error) {
	u, err := url.Parse(h.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(meta.URLInvalidReason, "%s is not the URL of a repository over HTTP(S)",
			fault.RedactURL(h.URL)).
			WithHint("Correct spec.url; a registry needs spec.type: oci").Final()
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/"
	u.RawPath = ""
	return u, nil
}

func (h *HTTP) indexURL() (string, error) {
	u, err := h.base()
	if err != nil {
		return "", err
	}
	u.Path = path.Join(u.Path, "index.yaml")
	return u.String(), nil
}

// chartURL resolves a URL in the index. A relative one keeps the query of the repository's, as in Helm.
func (h *HTTP) chartURL(raw string) (string, error) {
	base, err := h.base()
	if err != nil {
		return "", err
	}
	ref, err := url.Parse(raw)
	if err != nil {
		return "", errors.New("it cannot be read")
	}
	if ref.IsAbs() {
		if ref.Scheme != "http" && ref.Scheme != "https" {
			return "", fmt.Errorf("its scheme is %.20q, not http or https", ref.Scheme)
		}
		return ref.String(), nil
	}
	u := base.ResolveReference(ref)
	if u.RawQuery == "" {
		u.RawQuery = base.RawQuery
	}
	return u.String(), nil
}

// withoutURL takes the URL out of an HTTP client's error: it may hold a secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
