package bucket

import (
	"bytes"
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

	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// GCSReadOnly is the scope that is required to read a bucket of Google Cloud Storage.
const GCSReadOnly = "https://www.googleapis.com/auth/devstorage.read_only"

const exchangeTimeout = 30 * time.Second

// GCS is a bucket of Google Cloud Storage.
type GCS struct {
	Endpoint  string // host, or host:port
	Bucket    string
	Insecure  bool   // use plain HTTP
	Tokens    Tokens // nil for a public bucket
	Transport http.RoundTripper
}

// Tokens returns a token that is valid now.
type Tokens func(ctx context.Context) (*oauth2.Token, error)

// ServiceAccountTokens returns the tokens of a Google service account. The key serviceaccount of the Secret
// contains the JSON key of the account.
func ServiceAccountTokens(data map[string][]byte, transport http.RoundTripper) (Tokens, error) {
	key := data["serviceaccount"]
	if len(key) == 0 {
		return nil, refused("the Secret has no key 'serviceaccount'").
			WithHint("Set it to the JSON key of a service account, or correct spec.secretRef")
	}
	config, err := google.JWTConfigFromJSON(key, GCSReadOnly)
	if err != nil { // the error is not included, as it may contain parts of the key
		return nil, refused("the key 'serviceaccount' of the Secret is not the JSON key of a service account").
			WithHint("Only keys of type service_account are supported: other types can refer to files and programs")
	}
	if err := keysize.CheckPrivate(config.PrivateKey); err != nil {
		return nil, refused("the key 'serviceaccount' of the Secret cannot be used").Because(err).
			WithHint("Use the file that Google Cloud created")
	}
	client := context.WithValue(context.Background(), oauth2.HTTPClient,
		&http.Client{Transport: transport, Timeout: exchangeTimeout})
	source := config.TokenSource(client) // caches the token until it expires
	return func(context.Context) (*oauth2.Token, error) { return source.Token() }, nil
}

// gcs is a client of the JSON API: https://cloud.google.com/storage/docs/json_api/v1/objects
type gcs struct {
	objects string // URL of the bucket's objects
	bucket  string
	client  *http.Client
	tokens  Tokens
}

// NewGCS returns a client of the bucket. It sends no request.
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
			WithHint(endpointHint).Final()
	}
	return &gcs{
		objects: u.String() + "/storage/v1/b/" + url.PathEscape(o.Bucket) + "/o",
		bucket:  o.Bucket, tokens: o.Tokens, client: &http.Client{Transport: &limiter{o.Transport}},
	}, nil
}

// ID implements [Remote].
func (r *gcs) ID() string { return "gcs " + r.objects }

// gcsPage is the requested part of a page of a listing.
type gcsPage struct {
	Items gcsItems `json:"items"`
	Next  string   `json:"nextPageToken"`
}

// gcsItem is the requested part of an object in a listing.
type gcsItem struct {
	Name       string `json:"name"`
	ETag       string `json:"etag"`
	Size       string `json:"size"` // this API encodes 64-bit numbers as strings
	Generation string `json:"generation"`
}

// gcsItems are at most maxPage objects.
type gcsItems []gcsItem

// UnmarshalJSON implements [json.Unmarshaler]. It stops at the limit, as items can be much smaller in JSON than in
// memory.
func (l *gcsItems) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	start, err := decoder.Token()
	switch {
	case err != nil || start == nil: // null
		return err
	case start != json.Delim('['):
		return errors.New("the items are not a list")
	}
	for decoder.More() {
		if len(*l) >= maxPage {
			return tooLarge("%d objects", maxPage)
		}
		var item gcsItem
		if err := decoder.Decode(&item); err != nil {
			return err
		}
		*l = append(*l, item)
	}
	return nil
}

// List implements [Remote].
func (r *gcs) List(ctx context.Context, prefix string, visit func(Object) error) error {
	what := "cannot list the bucket '" + shorten(r.bucket) + "'"
	query := url.Values{
		"prefix": {prefix}, "maxResults": {strconv.Itoa(maxPage)},
		"fields": {"nextPageToken,items(name,etag,size,generation)"},
	}
	for {
		body, err := r.get(ctx, r.objects+"?"+query.Encode(), what)
		if err != nil {
			return err
		}
		page, err := readPage(body)
		if fault.As(err) != nil {
			return explain(what, err, response{})
		}
		if err != nil {
			return failed("%s: the response is not valid", what).Because(fault.WithoutURL(err))
		}
		for _, i := range page.Items {
			size, err := strconv.ParseInt(i.Size, 10, 64)
			if err != nil || size < 0 {
				return failed("%s: the response has no size for the object '%s'", what, shorten(i.Name))
			}
			if err := visit(Object{Name: i.Name, ETag: i.ETag, Size: size, Version: i.Generation}); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		if page.Next == query.Get("pageToken") {
			return failed("%s: the next page of the listing is the same page", what)
		}
		query.Set("pageToken", page.Next)
	}
}

// readPage reads and closes the body of a page.
func readPage(body io.ReadCloser) (gcsPage, error) {
	defer body.Close() // it is only read
	var page gcsPage
	err := json.NewDecoder(body).Decode(&page)
	return page, err
}

// Get implements [Remote].
func (r *gcs) Get(ctx context.Context, o Object) (io.ReadCloser, error) {
	query := url.Values{"alt": {"media"}}
	if o.Version != "" {
		query.Set("ifGenerationMatch", o.Version)
	}
	return r.get(forContent(ctx), r.objects+"/"+url.PathEscape(o.Name)+"?"+query.Encode(), "cannot fetch the object '"+
		shorten(o.Name)+"'")
}

// get sends a request, and returns the body of the response.
func (r *gcs) get(ctx context.Context, at, what string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, failed("%s: the URL is not valid", what)
	}
	// Without this header, compressed objects are decompressed, and their size differs from that in the listing.
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
		return nil, explain(what, err, response{})
	}
	if resp.StatusCode != http.StatusOK {
		return nil, r.refusal(what, resp)
	}
	return resp.Body, nil
}

// refusal returns the fault of a response other than 200.
func (r *gcs) refusal(what string, resp *http.Response) error {
	defer resp.Body.Close() // it is only read
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said) // the message is optional
	a := response{status: resp.StatusCode, message: said.Error.Message}
	if resp.StatusCode == http.StatusNotFound && resp.Request.URL.Query().Get("alt") == "" {
		a.code = "NoSuchBucket"
	}
	return explain(what, errors.New(resp.Status), a)
}

// tokenFailed is the fault of a failed login. The error of a token exchange contains the whole response, so only its
// status is included.
func tokenFailed(what string, err error) error {
	f := refused("%s: cannot get a token", what).WithHint("Check the service account, its key and its permissions")
	var exchange *oauth2.RetrieveError
	switch inner := fault.As(err); {
	case inner != nil:
		return f.Because(inner).After(inner.RetryAfter)
	case errors.As(err, &exchange):
		return f.Because(fmt.Errorf("the token exchange returned %s", shorten(exchange.Response.Status)))
	}
	return f.Because(fault.WithoutURL(err))
}
