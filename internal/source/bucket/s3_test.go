package bucket

import (
	"net/http"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// accountKeys is the Secret with the keys of the server's account.
var accountKeys = map[string][]byte{"accesskey": []byte(s3server.AccessKey), "secretkey": []byte(s3server.SecretKey)}

func remoteOf(t testing.TB, s *s3server.Server, bucket string) Remote {
	t.Helper()
	creds, err := KeysFrom(accountKeys)
	if err != nil {
		t.Fatal(err)
	}
	return newS3(t, S3{Endpoint: s.Endpoint, Bucket: bucket, Region: "us-east-1", Insecure: true, Keys: creds})
}

func newS3(t testing.TB, o S3) Remote {
	t.Helper()
	if o.Transport == nil {
		o.Transport = &http.Transport{}
	}
	r, err := NewS3(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
