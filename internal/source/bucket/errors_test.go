package bucket

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintsOfSettings(t *testing.T) {
	_, endpoint := NewS3(S3{Endpoint: "s3.example/path", Bucket: "apps", Keys: NoKeys()})
	_, name := NewS3(S3{Endpoint: "s3.example", Bucket: "apps/dir", Keys: NoKeys()})
	_, signature := NewAzure(Azure{Endpoint: "https://acme.blob.core.windows.net", Container: "apps",
		Login: AzureLogin{SAS: "sig=%zz"}})
	_, login := AzureLoginFrom(map[string][]byte{"accountKey": []byte("no base64!")},
		"https://acme.blob.core.windows.net", http.DefaultTransport, nil)
	for want, err := range map[string]error{
		"Write spec.endpoint as a host, or host:port, without a " +
			"path": endpoint,
		"Set spec.bucketName to the name of the bucket alone, without a " +
			"path": name,
		"Copy it again to the key sasKey of the Secret, or to " +
			"spec.endpoint": signature,
		"Check tenantId, clientCertificate and its password, or accountKey, which must be in base64 as shown by " +
			"Azure": login,
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}

func TestHintFitsTheResponse(t *testing.T) {
	credentials := "Check the credentials, or set spec.secretRef if it is not set. They must allow to list the " +
		"bucket and to read its objects"
	for name, c := range map[string]struct {
		err  error
		said response
		want string
	}{
		"plain HTTP": {err: fmt.Errorf("get: %w", http.ErrSchemeMismatch),
			want: "Use an endpoint with TLS, or set spec.insecure: true"},
		"no bucket": {said: response{status: http.StatusNotFound, code: "NoSuchBucket"},
			want: "Create the bucket, or correct spec.bucketName, spec.endpoint and spec.region"},
		"clock": {said: response{status: http.StatusForbidden, code: "RequestTimeTooSkewed"},
			want: "Correct the clock of the node that the controller runs on"},
		"no login":    {said: response{status: http.StatusUnauthorized}, want: credentials},
		"wrong login": {said: response{status: http.StatusForbidden, code: "InvalidAccessKeyId"}, want: credentials},
		"changed object": {said: response{status: http.StatusPreconditionFailed},
			want: "The bucket is listed again and the fetch retried"},
		"server error": {said: response{status: http.StatusBadGateway}, want: ""},
	} {
		if c.err == nil {
			c.err = errors.New("failed")
		}
		err := explain("cannot list the bucket 'apps'", c.err, c.said)
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%s: got %v, want the hint %q", name, err, c.want)
		}
	}
	for want, err := range map[string]error{
		"Check that --storage-path is writable and has free space. The last artifact stays available": storageFailed(
			"cannot write", errors.New("full")),
		"Check spec.sts and the Secrets that it names": stsFailed("https://sts.example", errors.New("refused")),
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
