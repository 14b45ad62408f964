package artifact

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// S3Options configure the bucket of a backend. Credentials come from the environment, in this order:
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the file in AWS_SHARED_CREDENTIALS_FILE, the role of the machine or
// the pod.
type S3Options struct {
	Endpoint string // URL; http:// disables TLS
	Bucket   string
	Prefix   string // of all names in the bucket; may be empty
	Region   string // requested from the server if empty
}

// s3Backend stores files as objects in a bucket.
type s3Backend struct {
	client *minio.Client
	bucket string
	prefix string // empty, or ends with a slash
}

// NewS3Backend returns the backend. It does not connect to the server. Wrap returns the transport of requests to the
// bucket, not of those for credentials; nil changes nothing.
func NewS3Backend(o S3Options, wrap func(http.RoundTripper) http.RoundTripper) (Backend, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("the endpoint is not a URL such as https://s3.example.com")
	}
	if err := s3utils.CheckValidBucketName(o.Bucket); err != nil {
		return nil, fmt.Errorf("%q is not a valid bucket name: %w", o.Bucket, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = backendAnswer
	bucket := http.RoundTripper(transport)
	if wrap != nil {
		bucket = wrap(transport)
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Transport: transport}},
		}),
		Secure: u.Scheme == "https", Region: o.Region, Transport: bucket, MaxRetries: 2,
	})
	if err != nil {
		return nil, err
	}
	b := &s3Backend{client: client, bucket: o.Bucket, prefix: strings.Trim(o.Prefix, "/")}
	if b.prefix != "" {
		b.prefix += "/"
	}
	return b, nil
}

func (b *s3Backend) Put(ctx context.Context, name string, content io.Reader, size int64) error {
	_, err := b.client.PutObject(ctx, b.bucket, b.prefix+name, content, size, minio.PutObjectOptions{})
	return fault.WithoutURL(err)
}

func (b *s3Backend) Get(ctx context.Context, name string) (io.ReadCloser, BackendFile, error) {
	body, info, _, err := (minio.Core{Client: b.client}).
		GetObject(ctx, b.bucket, b.prefix+name, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, BackendFile{}, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return body, BackendFile{Name: name, Size: info.Size,
		Modified: info.LastModified.Truncate(time.Second)}, fault.WithoutURL(err)
}

func (b *s3Backend) Delete(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.bucket, b.prefix+name, minio.RemoveObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return fault.WithoutURL(err)
}

func (b *s3Backend) List(ctx context.Context, prefix string) ([]BackendFile, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // stops the listing after an error
	var files []BackendFile
	for o := range b.client.ListObjectsIter(ctx, b.bucket,
		minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, fault.WithoutURL(o.Err)
		}
		files = append(files, BackendFile{Name: strings.TrimPrefix(o.Key, b.prefix), Size: o.Size,
			Modified: o.LastModified.Truncate(time.Second)})
	}
	return files, ctx.Err()
}
