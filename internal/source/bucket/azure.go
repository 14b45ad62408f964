package bucket

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// AzureScope is the scope of tokens for Blob Storage.
const AzureScope = "https://storage.azure.com/.default"

// Azure is a container of Azure Blob Storage.
type Azure struct {
	Endpoint  string // URL of the account; its query may contain a shared access signature
	Container string
	Login     AzureLogin
	Transport http.RoundTripper
}

// AzureLogin is a login to Azure. At most one of Token, SharedKey and SAS is set; the zero value is for public
// containers.
type AzureLogin struct {
	Token     azcore.TokenCredential
	SharedKey *container.SharedKeyCredential
	SAS       string // query of a shared access signature; it takes precedence over the query of the endpoint
	Ambient   bool   // the token belongs to the machine, not to the Secret: it must be sent to Azure only
}

// azure is a client of a container.
type azure struct {
	client *container.Client
	name   string
	id     string
}

// NewAzure returns a client of the container. It sends no request.
func NewAzure(o Azure) (Remote, error) {
	u, err := accountURL(o.Endpoint)
	if err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	signature, sigErr := url.ParseQuery(strings.TrimPrefix(o.Login.SAS, "?"))
	if err != nil || sigErr != nil { // the errors are not included, as they may contain the signature
		return nil, refused("the shared access signature is not valid").
			WithHint("Copy it again to the key sasKey of the Secret, or to spec.endpoint")
	}
	for key, values := range signature {
		query[key] = values
	}
	u.RawQuery = ""
	u = u.JoinPath(o.Container)
	id := "azure " + u.String()
	u.RawQuery = query.Encode()
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: &limiter{o.Transport}},
		Retry:     policy.RetryOptions{MaxRetries: attempts - 1},
		Telemetry: policy.TelemetryOptions{Disabled: true},
	}}
	var client *container.Client
	switch {
	case o.Login.Token != nil:
		client, err = container.NewClient(u.String(), o.Login.Token, options)
	case o.Login.SharedKey != nil:
		client, err = container.NewClientWithSharedKeyCredential(u.String(), o.Login.SharedKey, options)
	default:
		client, err = container.NewClientWithNoCredential(u.String(), options)
	}
	if err != nil {
		return nil, failed("cannot use the endpoint of the bucket").Because(fault.WithoutURL(err)).
			WithHint(azureEndpointHint).Final()
	}
	return &azure{client: client, name: o.Container, id: id}, nil
}

// accountURL parses the URL of an account.
func accountURL(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, failed("the endpoint of the bucket is not a URL").
			WithHint(azureEndpointHint).Final()
	}
	return u, nil
}

const azureEndpointHint = "Write spec.endpoint as https://ACCOUNT.blob.core.windows.net"

// ID implements [Remote].
func (r *azure) ID() string { return r.id }

// List implements [Remote].
func (r *azure) List(ctx context.Context, prefix string, visit func(Object) error) error {
	what := "cannot list the container '" + shorten(r.name) + "'"
	pages := r.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: to.Ptr(prefix),
		MaxResults: to.Ptr[int32](maxPage)})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return r.explain(what, err)
		}
		if page.Segment == nil {
			return failed("%s: the response is not valid", what)
		}
		for _, b := range page.Segment.BlobItems {
			if b.Name == nil || b.Properties == nil || b.Properties.ETag == nil || b.Properties.ContentLength == nil {
				return failed("%s: the response lacks a name, an ETag or a size", what)
			}
			etag := strings.Trim(string(*b.Properties.ETag), `"`)
			if err := visit(Object{Name: *b.Name, ETag: etag, Size: *b.Properties.ContentLength}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Get implements [Remote].
func (r *azure) Get(ctx context.Context, o Object) (io.ReadCloser, error) {
	resp, err := r.client.NewBlobClient(o.Name).DownloadStream(forContent(ctx), &blob.DownloadStreamOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{
			IfMatch: to.Ptr(azcore.ETag(`"` + o.ETag + `"`)),
		}},
	})
	if err != nil {
		return nil, r.explain("cannot fetch the object '"+shorten(o.Name)+"'", err)
	}
	return resp.Body, nil
}

// explain returns the fault of a failed request. The errors of the SDK contain the whole response, so only its status
// and code are included.
func (r *azure) explain(what string, err error) error {
	var said *azcore.ResponseError
	if errors.As(err, &said) {
		return explain(what, err, response{status: said.StatusCode, code: said.ErrorCode})
	}
	var login *azidentity.AuthenticationFailedError
	if errors.As(err, &login) && login.RawResponse != nil {
		return refused("%s: cannot get a token", what).
			Because(errors.New("Entra ID returned " + shorten(login.RawResponse.Status))).
			WithHint("Check tenantId, clientId and the secret or certificate of the Secret")
	}
	return explain(what, err, response{})
}
