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
)

// AzureScope is what a token for Blob Storage is asked for.
const AzureScope = "https://storage.azure.com/.default"

// Azure says where a container of Azure Blob Storage is.
type Azure struct {
	Endpoint  string // URL of the account; its query may hold a shared access signature
	Container string
	Login     AzureLogin
	Transport http.RoundTripper
}

// AzureLogin is one way to be let in; its zero value asks for what is public.
type AzureLogin struct {
	Token     azcore.TokenCredential
	SharedKey *container.SharedKeyCredential
	SAS       string // query of a shared access signature; it wins over that of the endpoint
	Ambient   bool   // the token is that of the machine, not of the Secret: it must go to Azure only
}

type azure struct {
	client *container.Client
	name   string
	id     string
}

// NewAzure returns the container. It asks nothing of the server.
func NewAzure(o Azure) (Remote, error) {
	u, err := accountURL(o.Endpoint)
	if err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	signature, sigErr := url.ParseQuery(strings.TrimPrefix(o.Login.SAS, "?"))
	if err != nil || sigErr != nil { // their texts may hold the signature
		return nil, refused("the shared access signature cannot be read").
			WithHint("Copy it anew into sasKey of the Secret")
	}
	for key, values := range signature {
		query[key] = values
	}
	u.RawQuery = ""
	u = u.JoinPath(o.Container)
	id := "azure " + u.String()
	u.RawQuery = query.Encode()
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: o.Transport},
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
		return nil, failed("cannot use the endpoint of the bucket").Because(redacted(err)).
			WithHint("Correct spec.endpoint").Final()
	}
	return &azure{client, o.Container, id}, nil
}

func accountURL(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, failed("the endpoint of the bucket is not a URL").
			WithHint("Write spec.endpoint as https://ACCOUNT.blob.core.windows.net").Final()
	}
	return u, nil
}

func (r *azure) ID() string { return r.id }

func (r *azure) List(ctx context.Context, prefix string, visit func(Object) error) error {
	what := "cannot list the container '" + shorten(r.name) + "'"
	pages := r.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: to.Ptr(prefix)})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return r.explain(what, err)
		}
		if page.Segment == nil {
			return failed("%s: the answer is not what is documented", what)
		}
		for _, b := range page.Segment.BlobItems {
			if b.Name == nil || b.Properties == nil || b.Properties.ETag == nil || b.Properties.ContentLength == nil {
				return failed("%s: the answer lacks a name, an ETag or a size", what)
			}
			etag := strings.Trim(string(*b.Properties.ETag), `"`)
			if err := visit(Object{Name: *b.Name, ETag: etag, Size: *b.Properties.ContentLength}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *azure) Get(ctx context.Context, o Object) (io.ReadCloser, error) {
	resp, err := r.client.NewBlobClient(o.Name).DownloadStream(ctx, &blob.DownloadStreamOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{
			IfMatch: to.Ptr(azcore.ETag(`"` + o.ETag + `"`)),
		}},
	})
	if err != nil {
		return nil, r.explain("cannot fetch the object '"+shorten(o.Name)+"'", err)
	}
	return resp.Body, nil
}

func (r *azure) explain(what string, err error) error {
	var said *azcore.ResponseError
	if errors.As(err, &said) { // its text holds the whole answer
		return explain(what, err, answer{status: said.StatusCode, code: said.ErrorCode})
	}
	var login *azidentity.AuthenticationFailedError
	if errors.As(err, &login) && login.RawResponse != nil { // as does its
		return refused("%s: there is no token", what).
			Because(errors.New("Entra ID answered with " + shorten(login.RawResponse.Status))).
			WithHint("Check tenantId, clientId and the secret or certificate of the Secret")
	}
	return explain(what, err, answer{})
}
