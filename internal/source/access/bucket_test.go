package access

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/bucket"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// accounts are service accounts with a role on AWS.
type accounts struct{}

func (accounts) Annotations(_ context.Context, account types.NamespacedName) (map[string]string, error) {
	switch account.Name {
	case "reader":
		return map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/reader"}, nil
	case "plain":
		return nil, nil
	}
	return nil, errors.New("not found")
}

func (accounts) Token(_ context.Context, account types.NamespacedName, audience string) (string, error) {
	return account.Name + " to " + audience, nil
}

// machine is a Secret with the client ID of a managed identity.
var machine = secretData{"clientId": []byte("66666666-7777-8888-9999-000000000000")}

func stsSpec(endpoint string) sourcev1.BucketSpec {
	return sourcev1.BucketSpec{Provider: "aws", STS: &sourcev1.BucketSTS{Provider: "aws", Endpoint: endpoint}}
}

func serviceAccount(name string) *types.NamespacedName {
	return &types.NamespacedName{Namespace: "apps", Name: name}
}

var bucketLogins = map[string]struct {
	bucket Bucket
	reason string // empty if the login is accepted
}{
	"AWS token for AWS": {
		bucket: Bucket{spec: stsSpec("https://sts.eu-west-1.amazonaws.com"), account: serviceAccount("reader")},
	},
	"AWS token for a VPC endpoint": {
		bucket: Bucket{spec: stsSpec("https://vpce-1-2.sts.eu-west-1.vpce.amazonaws.com"),
			account: serviceAccount("reader")},
	},
	"AWS token for another host": {
		bucket: Bucket{spec: stsSpec("https://sts.example.com"), account: serviceAccount("reader")},
		reason: "InvalidSTSConfiguration",
	},
	"AWS token for an API gateway of another customer": {
		bucket: Bucket{spec: stsSpec("https://sts.execute-api.eu-west-1.amazonaws.com"),
			account: serviceAccount("reader")},
		reason: "InvalidSTSConfiguration",
	},
	"AWS token over plain HTTP": {
		bucket: Bucket{spec: stsSpec("http://sts.eu-west-1.amazonaws.com"), account: serviceAccount("reader")},
		reason: "InvalidSTSConfiguration",
	},
	"service account without a role": {
		bucket: Bucket{spec: stsSpec("https://sts.amazonaws.com"), account: serviceAccount("plain")},
		reason: "InvalidSTSConfiguration",
	},
	"service account that does not exist": {
		bucket: Bucket{spec: stsSpec("https://sts.amazonaws.com"), account: serviceAccount("none")},
		reason: "AuthenticationFailed",
	},
	"process without an identity": {
		bucket: Bucket{spec: stsSpec("https://sts.amazonaws.com")},
		reason: "InvalidSTSConfiguration",
	},
	"Google token for another host": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "gcp", Endpoint: "storage.example.com"}},
		reason: "AuthenticationFailed",
	},
	"Google token over plain HTTP": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "gcp", Endpoint: "storage.googleapis.com",
			Insecure: true}},
		reason: "AuthenticationFailed",
	},
	"Google token for Google": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "gcp", Endpoint: "storage.googleapis.com"}},
	},
	"Azure token of a service account for another host": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "azure", Endpoint: "https://acme.example.com",
			ServiceAccountName: "reader"}, account: serviceAccount("reader")},
		reason: "AuthenticationFailed",
	},
	"Azure token of the machine for another host": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "azure", Endpoint: "https://acme.example.com"},
			login: machine},
		reason: "AuthenticationFailed",
	},
	"Azure token of the machine for Azure": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "azure",
			Endpoint: "https://acme.blob.core.windows.net"}, login: machine},
	},
	"public container of an Azure emulator": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "azure", Endpoint: "http://127.0.0.1:10000/acme"}},
	},
	"unknown provider": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Provider: "other"}},
		reason: "InvalidProviderConfiguration",
	},
	"proxy without a usable address": {
		bucket: Bucket{proxy: secretData{"address": []byte("x")}},
		reason: "AuthenticationFailed",
	},
	"certificate without its key": {
		bucket: Bucket{cert: secretData{"tls.crt": []byte("x")}},
		reason: "AuthenticationFailed",
	},
	"LDAP login without a password": {
		bucket: Bucket{spec: sourcev1.BucketSpec{STS: &sourcev1.BucketSTS{Provider: "ldap"}},
			stsLogin: secretData{"username": []byte("x")}},
		reason: "AuthenticationFailed",
	},
	"bucket name with a path": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Endpoint: "s3.example.com", BucketName: "../x"}},
		reason: "BucketOperationFailed",
	},
	"endpoint with a path": {
		bucket: Bucket{spec: sourcev1.BucketSpec{Endpoint: "s3.example.com/../x", BucketName: "apps"}},
		reason: "BucketOperationFailed",
	},
}

func TestRemoteRefusesInvalidLogins(t *testing.T) {
	t.Setenv("AWS_ROLE_ARN", "")
	b := Buckets{Connector: Connector{Egress: &egress.Policy{}, Identities: &auth.Identities{Accounts: accounts{}}},
		Metadata: http.DefaultTransport}
	for name, c := range bucketLogins {
		if c.bucket.spec.BucketName == "" {
			c.bucket.spec.BucketName = "apps"
		}
		if c.bucket.spec.Endpoint == "" {
			c.bucket.spec.Endpoint = "s3.example.com"
		}
		_, err := b.Remote(t.Context(), c.bucket)
		if fault.Reason(err, "") != c.reason || c.reason == "" && err != nil {
			t.Errorf("%s: got %v, want %q", name, err, c.reason)
		}
	}
}

// TestPrivateServersThatAreNoBucketsAreNotQuoted names a server of the cluster as the endpoint of a bucket.
func TestPrivateServersThatAreNoBucketsAreNotQuoted(t *testing.T) {
	b := Buckets{Connector: Connector{Egress: &egress.Policy{HidePrivate: true},
		Identities: &auth.Identities{Accounts: accounts{}}}, Metadata: http.DefaultTransport}
	for _, answer := range []string{"internal", "<Error><Code>internal</Code><Message>internal</Message></Error>",
		`{"error":{"message":"internal"}}`} {
		for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, answer)
			}))
			t.Cleanup(server.Close)
			spec := sourcev1.BucketSpec{Provider: "generic", Insecure: true, BucketName: "apps",
				Endpoint: strings.TrimPrefix(server.URL, "http://")}
			remote, err := b.Remote(t.Context(), Bucket{spec: spec,
				login: secretData{"accesskey": []byte("x"), "secretkey": []byte("y")}})
			if err != nil {
				t.Fatal(err)
			}
			err = remote.List(t.Context(), "", func(bucket.Object) error { return nil })
			if err == nil || strings.Contains(err.Error(), "internal") {
				t.Errorf("status %d, answer %s: %v", status, answer, err)
			}
		}
	}
}

// roundTripper is a function that answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestManagedIdentityUsesTheMetadataTransport(t *testing.T) {
	asked := 0
	b := Buckets{Connector: Connector{Egress: &egress.Policy{}},
		Metadata: roundTripper(func(*http.Request) (*http.Response, error) {
			asked++
			return nil, fault.New("", "not reachable").Final()
		})}
	at := Bucket{spec: sourcev1.BucketSpec{Endpoint: "https://acme.blob.core.windows.net"}, login: machine}
	login, err := b.azureLogin(t.Context(), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = login.Token.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{bucket.AzureScope}})
	if err == nil || asked == 0 {
		t.Errorf("%d requests by the metadata transport, error %v", asked, err)
	}
	b.Metadata = nil
	if _, err := b.azureLogin(t.Context(), at, nil); fault.Reason(err, "") != meta.AuthenticationFailedReason {
		t.Errorf("without a metadata transport: %v", err)
	}
}

func TestResolveRefusesUnsupportedProviders(t *testing.T) {
	for name, spec := range map[string]sourcev1.BucketSpec{
		"aws with LDAP":               {Provider: "aws", STS: &sourcev1.BucketSTS{Provider: "ldap"}},
		"generic with the STS of AWS": {STS: &sourcev1.BucketSTS{Provider: "aws"}},
		"gcp with an STS":             {Provider: "gcp", STS: &sourcev1.BucketSTS{Provider: "aws"}},
		"generic with an account":     {ServiceAccountName: "x"},
		"account together with Secret": {Provider: "aws", ServiceAccountName: "x",
			SecretRef: &meta.LocalObjectReference{Name: "x"}},
	} {
		_, err := (&Buckets{}).Resolve(t.Context(), &sourcev1.Bucket{Spec: spec})
		if err == nil || !fault.As(err).Terminal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyChangesWithTheAccess(t *testing.T) {
	base := Bucket{spec: sourcev1.BucketSpec{Endpoint: "a"}}
	for name, c := range map[string]struct {
		change func(*Bucket)
		same   bool
	}{
		"interval":   {change: func(b *Bucket) { b.spec.Interval = meta.Duration{Duration: time.Hour} }, same: true},
		"prefix":     {change: func(b *Bucket) { b.spec.Prefix = "x" }, same: true},
		"endpoint":   {change: func(b *Bucket) { b.spec.Endpoint = "b" }, same: false},
		"login":      {change: func(b *Bucket) { b.login = secretData{"accesskey": []byte("x")} }, same: false},
		"proxy":      {change: func(b *Bucket) { b.proxy = secretData{"accesskey": []byte("x")} }, same: false},
		"account":    {change: func(b *Bucket) { b.account = &types.NamespacedName{Name: "x"} }, same: false},
		"STS Secret": {change: func(b *Bucket) { b.stsLogin = secretData{"password": []byte("x")} }, same: false},
	} {
		other := base
		c.change(&other)
		if got := other.Key() == base.Key(); got != c.same {
			t.Errorf("%s: same key is %v, want %v", name, got, c.same)
		}
	}
}

// TestBucketRegionsNameNoHost has regions that would be parts of host names.
func TestBucketRegionsNameNoHost(t *testing.T) {
	buckets := &Buckets{Connector: Connector{Egress: &egress.Policy{}, Identities: &auth.Identities{}}}
	for _, region := range []string{"evil.example", "evil.example/", "x/y", "a#b", "@evil", "a b", "a:b"} {
		spec := sourcev1.BucketSpec{Endpoint: "s3.amazonaws.com", BucketName: "b", Region: region}
		b, err := buckets.Resolve(t.Context(), &sourcev1.Bucket{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := buckets.Remote(t.Context(), b); err == nil || !strings.Contains(err.Error(),
			"region. Use letters, digits, '-' and '_' only, such as eu-west-1") {
			t.Errorf("region %q: %v", region, err)
		}
	}
}
