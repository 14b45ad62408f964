package bucket

import (
	"net/http"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// accountKeys is the Secret with the keys of the server's account.
var accountKeys = map[string][]byte{"accesskey": []byte(testenv.S3AccessKey), "secretkey": []byte(testenv.S3SecretKey)}

func remoteOf(t testing.TB, s *testenv.S3, bucket string) Remote {
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
