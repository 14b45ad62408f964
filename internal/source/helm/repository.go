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
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Limits bounds what is read, in bytes.
type Limits struct {
	Index int64 // of an index
	Chart int64 // of a packaged chart
	File  int64 // of one file of a chart
}

// DefaultLimits is sufficient for public repositories and charts.
var DefaultLimits = Limits{Index: 100 << 20, Chart: 10 << 20, File: 5 << 20}

// Offer is a version of a chart in a repository.
type Offer struct {
	Name    string // the requested name; in a registry it may be the path of the chart
	Version string
	Digest  string // sha256:HEX of the package, or in a registry of its manifest; empty if the index has none
	URL     string // of the package, or in a registry the reference of its manifest
}

// Chart returns the name of the chart, without a path.
func (o Offer) Chart() string { return path.Base(o.Name) }

// Repository is a source of packaged charts. Errors are faults.
type Repository interface {
	// Find returns the newest version that matches the constraint.
	Find(ctx context.Context, name, constraint string) (Offer, error)
	// Pull returns the packaged chart. It fails if the package does not match the digest.
	Pull(ctx context.Context, o Offer) ([]byte, error)
	// Provenance returns the signed provenance file of the package.
	Provenance(ctx context.Context, o Offer) ([]byte, error)
}

// HTTP is a chart repository over HTTP(S). Index must be set before charts are searched; [HTTP.FetchIndex] fetches it.
type HTTP struct {
	URL                string
	Username, Password string
	PassCredentials    bool // send credentials also to other hosts than the host of the URL
	Transport          http.RoundTripper
	Limits             Limits
	Index              *Index
}

// Validators identify a version of an index in conditional requests.
type Validators struct{ ETag, LastModified string }

// IndexFile is a fetched index in a temporary file, which is removed when it is closed or when the process ends.
type IndexFile struct {
	*os.File
	Digest     string // sha256:HEX
	Validators Validators
}

// FetchIndex fetches index.yaml. It returns nil if the server reports that the index matches the known validators.
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
	resp, err := h.get(ctx, at, header, sourcev1.IndexationFailedReason, indexFile)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it is only read
	if resp.StatusCode == http.StatusNotModified && known != (Validators{}) {
		return nil, nil
	}
	if err := h.status(resp, sourcev1.IndexationFailedReason, indexFile); err != nil {
		return nil, err
	}
	file, digest, err := spool(resp.Body, h.Limits.Index)
	if err != nil {
		f := fault.New(sourcev1.IndexationFailedReason, "cannot fetch the index of %s", fault.RedactURL(h.URL)).
			Because(err)
		if errors.Is(err, errIndexTooLarge) {
			return nil, f.WithHint("Raise --helm-index-max-size, or use a repository with fewer charts")
		}
		return nil, f
	}
	return &IndexFile{File: file, Digest: digest, Validators: validators(resp)}, nil
}

// validators returns the validators of a response. Last-Modified is not used if it is less than 2 s before
// the response: the file could have changed again within the same second (RFC 9110, section 8.8.2.2).
func validators(resp *http.Response) Validators {
	v := Validators{ETag: resp.Header.Get("ETag")}
	modified, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	date, dateErr := http.ParseTime(resp.Header.Get("Date"))
	if err == nil && dateErr == nil && date.Sub(modified) >= 2*time.Second {
		v.LastModified = resp.Header.Get("Last-Modified")
	}
	return v
}

// Parse parses the index.
func (f *IndexFile) Parse(ctx context.Context, l Limits) (*Index, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	index, err := ParseIndex(ctx, f, l.Index)
	if err != nil {
		if guard.IsMemory(err) {
			return nil, fault.New(sourcev1.IndexationFailedReason, "cannot parse the index").Because(err)
		}
		return nil, fault.New(sourcev1.IndexationFailedReason, "%s", err).
			WithHint("Check that spec.url is the URL of a Helm repository")
	}
	return index, nil
}

// indexFile is how errors name the index.
const indexFile = "the index"

var errIndexTooLarge = errors.New("the index is too large")

// spool copies at most limit bytes to an unnamed file, and returns the file and its digest.
func spool(r io.Reader, limit int64) (*os.File, string, error) {
	f, err := os.CreateTemp("", "sluice-index-")
	if err != nil {
		return nil, "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%w: it exceeds %d bytes", errIndexTooLarge, limit)
	}
	if err = errors.Join(os.Remove(f.Name()), fault.WithoutURL(err)); err != nil {
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
			"the URL of version %s of chart '%s' in the index of %s is invalid",
			e.Version, name, fault.RedactURL(h.URL)).Because(err)
	}
	o := Offer{Name: name, Version: e.Version, URL: at}
	if e.Digest != "" {
		o.Digest = "sha256:" + e.Digest
	}
	return o, nil
}

// notFound is the fault of a chart or version that does not exist.
func notFound(err error, repository string) error {
	return fault.New(sourcev1.InvalidChartReferenceReason, "%s in %s", err, fault.RedactURL(repository)).
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
			"chart '%s' %s from %s has the digest %s, but the index has %s",
			o.Name, o.Version, fault.RedactURL(o.URL), got, o.Digest).
			WithHint("One of them was changed after it was published. The last artifact stays available")
	}
	return data, nil
}

// maxProvenance bounds a provenance file, in bytes.
const maxProvenance = 1 << 20

// Provenance implements [Repository].
func (h *HTTP) Provenance(ctx context.Context, o Offer) ([]byte, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("cannot parse the URL of the chart")
	}
	u.Path += ".prov"
	u.RawPath = ""
	return h.download(ctx, u.String(), maxProvenance, "the provenance of chart '"+o.Name+"' "+o.Version)
}

// download returns a file of at most limit bytes.
func (h *HTTP) download(ctx context.Context, at string, limit int64, what string) ([]byte, error) {
	resp, err := h.get(ctx, at, http.Header{}, sourcev1.ChartPullErrorReason, what)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it is only read
	if err := h.status(resp, sourcev1.ChartPullErrorReason, what); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it exceeds %d bytes", limit)
	}
	if err != nil {
		return nil, fault.New(sourcev1.ChartPullErrorReason, "cannot fetch %s from %s", what, fault.RedactURL(at)).
			Because(fault.WithoutURL(err))
	}
	return data, nil
}

// get sends a request, with the credentials if the host may receive them.
func (h *HTTP) get(ctx context.Context, at string, header http.Header, reason, what string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fault.New(meta.URLInvalidReason, "the URL %s is invalid", fault.RedactURL(at)).Final()
	}
	req.Header = header
	if h.Username != "" && (h.PassCredentials || h.sameHost(req.URL)) {
		req.SetBasicAuth(h.Username, h.Password)
	}
	resp, err := (&http.Client{Transport: h.Transport}).Do(req)
	if err != nil {
		f := fault.New(reason, "cannot fetch %s from %s", what, fault.RedactURL(at)).Because(fault.WithoutURL(err))
		if cause := fault.As(err); cause != nil {
			f.RetryAfter = cause.RetryAfter
		}
		return nil, f
	}
	return resp, nil
}

// sameHost reports whether a URL has the scheme, host and port of the repository.
func (h *HTTP) sameHost(u *url.URL) bool {
	base, err := url.Parse(h.URL)
	return err == nil && strings.EqualFold(base.Scheme, u.Scheme) && strings.EqualFold(base.Host, u.Host)
}

// status returns a fault unless the response has status 200.
func (h *HTTP) status(resp *http.Response, reason, what string) error {
	at := fault.RedactURL(resp.Request.URL.String())
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(meta.AuthenticationFailedReason, "%s refused access to %s: status %d", at, what,
			resp.StatusCode).
			WithHint("%s", h.loginHint(resp.Request.URL))
	case http.StatusNotFound:
		if what == indexFile { // with the reason that Flux has
			return fault.New(meta.FailedReason, "%s not found at %s: status %d", what, at, resp.StatusCode).
				WithHint("Check spec.url: it must be the address of the directory with index.yaml")
		}
		return fault.New(reason, "%s not found at %s: status %d", what, at, resp.StatusCode).
			WithHint("The index lists a file that the repository does not have: publish the chart again")
	default:
		return fault.New(reason, "cannot fetch %s from %s: status %d", what, at, resp.StatusCode)
	}
}

// loginHint returns what to do if a host refuses the login of a request.
func (h *HTTP) loginHint(to *url.URL) string {
	switch {
	case h.Username == "":
		return "No login is set: set spec.secretRef to a Secret with username and password, or correct spec.url"
	case !h.PassCredentials && !h.sameHost(to):
		return "The login is not sent to other hosts than that of spec.url. Set spec.passCredentials to send it"
	}
	return "Check username and password in the Secret of spec.secretRef"
}

// base returns the URL of the repository with a trailing slash.
func (h *HTTP) base() (*url.URL, error) {
	u, err := url.Parse(h.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(meta.URLInvalidReason, "%s is not the URL of a repository over HTTP(S)",
			fault.RedactURL(h.URL)).
			WithHint("Set spec.url to a URL such as https://HOST/PATH, or set spec.type: oci for a registry").Final()
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

// chartURL resolves a URL in the index. A relative URL gets the query of the repository's URL, as in Helm.
func (h *HTTP) chartURL(raw string) (string, error) {
	base, err := h.base()
	if err != nil {
		return "", err
	}
	ref, err := url.Parse(raw)
	if err != nil {
		return "", errors.New("it cannot be parsed")
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
