package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	// GCSReadOnly is the scope that reading a bucket of Google Cloud Storage needs.
	GCSReadOnly = "https://www.googleapis.com/auth/devstorage.read_only"

	maxAnswer       = 16 << 20 // bytes of a page of a listing
	exchangeTimeout = 30 * time.Second
)

// GCS says where a bucket of Google Cloud Storage is.
type GCS struct {
	Endpoint  string // host, or host:port
	Bucket    string
	Insecure  bool   // HTTP
	Tokens    Tokens // nil asks for what is public
	Transport http.RoundTripper
}

// Tokens returns a token that is valid now.
type Tokens func(ctx context.Context) (*oauth2.Token, error)

// ServiceAccountTokens are those of the JSON key of a Google service account, the key serviceaccount of a Secret.
func ServiceAccountTokens(data map[string][]byte, transport http.RoundTripper) (Tokens, error) {
	key := data["serviceaccount"]
	if len(key) == 0 {
		return nil, refused("the Secret has no key serviceaccount").
			WithHint("Set it to the JSON key of a service account, or correct spec.secretRef")
	}
	config, err := google.JWTConfigFromJSON(key, GCSReadOnly)
	if err != nil { // its text may hold parts of the key
		return nil, refused("the key serviceaccount of the Secret is not the JSON key of a service account").
			WithHint("Keys of the type service_account are supported; other types can name files and programs")
	}
	client := context.WithValue(context.Background(), oauth2.HTTPClient,
		&http.Client{Transport: transport, Timeout: exchangeTimeout})
	source := config.TokenSource(client) // keeps its token until it expires
	return func(context.Context) (*oauth2.Token, error) { return source.Token() }, nil
}

// gcs speaks the JSON API: https://cloud.google.com/storage/docs/json_api/v1/objects
type gcs struct {
	objects string // URL of the bucket's objects
	bucket  string
	client  *http.Client
	tokens  Tokens
}

// NewGCS returns the bucket. It asks nothing of the server.
func NewGCS(o GCS) (Remote, error) {
	if _, host, ok := strings.Cut(o.Endpoint, "://"); ok {
		o.Endpoint = host
	}
	u := &url.URL{Scheme: "https", Host: strings.TrimSuffix(o.Endpoint, "/")}
	if o.Insecure {
		u.Scheme = "http"
	}
	if check, err := url.Parse(u.String()); err != nil || u.Host == "" || check.Host != u.Host {
		return nil, failed("the endpoint '%s' of the bucket is not a host, or host:port", shorten(o.Endpoint)).
			WithHint("Correct spec.endpoint").Final()
	}
	return &gcs{
		objects: u.String() + "/storage/v1/b/" + url.PathEscape(o.Bucket) + "/o",
		bucket:  o.Bucket, tokens: o.Tokens, client: &http.Client{Transport: o.Transport},
	}, nil
}

func (r *gcs) ID() string { return "gcs " + r.objects }

// gcsPage is what is asked for of a page of a listing.
type gcsPage struct {
	Items []struct {
		Name       string `json:"name"`
		ETag       string `json:"etag"`
		Size       string `json:"size"` // numbers of 64 bits are text in this API
		Generation string `json:"generation"`
	} `json:"items"`
	Next string `json:"nextPageToken"`
}

func (r *gcs) List(ctx context.Context, prefix string, visit func(Object) error) error {
	what := "cannot list the bucket '" + shorten(r.bucket) + "'"
	query := url.Values{
		"prefix": {prefix}, "maxResults": {"1000"}, "fields": {"nextPageToken,items(name,etag,size,generation)"},
	}
	for {
		body, err := r.get(ctx, r.objects+"?"+query.Encode(), what)
		if err != nil {
			return err
		}
		page, err := readPage(body)
		if err != nil {
			return failed("%s: the answer is not what is documented", what).Because(redacted(err))
		}
		for _, i := range page.Items {
			size, err := strconv.ParseInt(i.Size, 10, 64)
			if err != nil || size < 0 {
				return failed("%s: the answer gives the object '%s' no size", what, shorten(i.Name))
			}
			if err := visit(Object{Name: i.Name, ETag: i.ETag, Size: size, Version: i.Generation}); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		if page.Next == query.Get("pageToken") {
			return failed("%s: the answer leads to itself", what)
		}
		query.Set("pageToken", page.Next)
	}
}

func readPage(body io.ReadCloser) (gcsPage, error) {
	defer body.Close() // read, or given up
	var page gcsPage
	err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&page)
	return page, err
}

func (r *gcs) Get(ctx context.Context, o Object) (io.ReadCloser, error) {
	query := url.Values{"alt": {"media"}}
	if o.Version != "" {
		query.Set("ifGenerationMatch", o.Version)
	}
	return r.get(ctx, r.objects+"/"+url.PathEscape(o.Name)+"?"+query.Encode(), "cannot fetch the object '"+
		shorten(o.Name)+"'")
}

func (r *gcs) get(ctx context.Context, at, what string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, failed("%s: it makes no URL", what)
	}
	// Without this, objects that are stored compressed come unpacked, and not in the size that was listed.
	req.Header.Set("Accept-Encoding", "gzip")
	if r.tokens != nil {
		token, err := r.tokens(ctx)
		if err != nil {
			return nil, tokenFailed(what, err)
		}
		token.SetAuthHeader(req)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, explain(what, err, answer{})
	}
	if resp.StatusCode != http.StatusOK {
		return nil, r.refusal(what, resp)
	}
	return resp.Body, nil
}

func (r *gcs) refusal(what string, resp *http.Response) error {
	defer resp.Body.Close() // only its beginning is of interest
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said) // the status says enough
	a := answer{status: resp.StatusCode, message: said.Error.Message}
	if resp.StatusCode == http.StatusNotFound && resp.Request.URL.Query().Get("alt") == "" {
		a.code = "NoSuchBucket"
	}
	return explain(what, errors.New(resp.Status), a)
}

// tokenFailed tells of a login that failed. The error of a token's exchange holds the whole answer, so only
// its code is told.
func tokenFailed(what string, err error) error {
	f := refused("%s: there is no token", what).WithHint("Check the service account, its key and its rights")
	var exchange *oauth2.RetrieveError
	switch inner := fault.As(err); {
	case inner != nil:
		return f.Because(inner).After(inner.RetryAfter)
	case errors.As(err, &exchange):
		return f.Because(fmt.Errorf("the exchange of tokens answered with %s", shorten(exchange.Response.Status)))
	}
	return f.Because(redacted(err))
}
