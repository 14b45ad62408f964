package bucket

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// attempts is how often a request is sent. After that, the next pass fetches what is missing.
const attempts = 2

// S3 is an S3-compatible bucket.
type S3 struct {
	Endpoint  string // host, or host:port
	Bucket    string
	Region    string // requested from the server if empty
	Insecure  bool   // use plain HTTP
	Keys      *credentials.Credentials
	Transport http.RoundTripper
}

// s3 is a client of a bucket.
type s3 struct {
	client minio.Core
	bucket string
	id     string
}

const endpointHint = "Write spec.endpoint as a host, or host:port, without a path"

// NewS3 returns a client of the bucket. It sends no request.
func NewS3(o S3) (Remote, error) {
	if _, host, ok := strings.Cut(o.Endpoint, "://"); ok {
		o.Endpoint = host // a scheme is not documented, but accepted
	}
	o.Endpoint = strings.TrimSuffix(o.Endpoint, "/")
	client, err := minio.New(o.Endpoint, &minio.Options{
		Creds: o.Keys, Secure: !o.Insecure, Region: o.Region, MaxRetries: attempts,
		Transport: &limiter{o.Transport},
	})
	if err != nil {
		return nil, failed("the endpoint '%s' of the bucket is not a host, or host:port", shorten(o.Endpoint)).
			WithHint(endpointHint).Final()
	}
	if err := s3utils.CheckValidBucketName(o.Bucket); err != nil {
		return nil, failed("'%s' is not a valid name of a bucket", shorten(o.Bucket)).Because(err).
			WithHint("Set spec.bucketName to the name of the bucket alone, without a path").Final()
	}
	return &s3{client: minio.Core{Client: client}, bucket: o.Bucket, id: "s3 " + o.Endpoint + " " + o.Bucket}, nil
}

// ID implements [Remote].
func (r *s3) ID() string { return r.id }

// List implements [Remote].
func (r *s3) List(ctx context.Context, prefix string, visit func(Object) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // stops the listing if visit fails
	options := minio.ListObjectsOptions{Prefix: prefix, Recursive: true, MaxKeys: maxPage,
		UseV1: s3utils.IsGoogleEndpoint(*r.client.EndpointURL())}
	for o := range r.client.ListObjectsIter(ctx, r.bucket, options) {
		if o.Err != nil {
			return r.explain("cannot list the bucket '"+r.bucket+"'", o.Err)
		}
		if err := visit(Object{Name: o.Key, ETag: strings.Trim(o.ETag, `"`), Size: o.Size}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return r.explain("cannot list the bucket '"+r.bucket+"'", err)
	}
	return nil
}

// Get implements [Remote].
func (r *s3) Get(ctx context.Context, o Object) (io.ReadCloser, error) {
	var options minio.GetObjectOptions
	err := options.SetMatchETag(cmp.Or(o.ETag, "*"))
	if err != nil {
		return nil, failed("cannot request the object '%s'", shorten(o.Name)).Because(err)
	}
	body, _, _, err := r.client.GetObject(forContent(ctx), r.bucket, o.Name, options)
	if err != nil {
		return nil, r.explain("cannot fetch the object '"+shorten(o.Name)+"'", err)
	}
	return body, nil
}

// explain returns the fault of a failed request.
func (r *s3) explain(what string, err error) error {
	var said minio.ErrorResponse
	if errors.As(err, &said) {
		return explain(what, err, response{status: said.StatusCode, code: said.Code, message: said.Message})
	}
	return explain(what, err, response{})
}
