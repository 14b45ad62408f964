package source

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
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

func TestLoginsThatMustNotBeAreRefused(t *testing.T) {
	t.Setenv("AWS_ROLE_ARN", "")
	l := BucketLogin{Connector{Egress: &egress.Policy{}, Identities: &auth.Identities{Accounts: accounts{}}}}
	sts := func(endpoint string) *sourcev1.BucketSTS {
		return &sourcev1.BucketSTS{Provider: "aws", Endpoint: endpoint}
	}
	reader := &types.NamespacedName{Namespace: "apps", Name: "reader"}
	machine := secretData{"clientId": []byte("66666666-7777-8888-9999-000000000000")}
	for what, c := range map[string]struct {
		access access
		reason string // none: it is taken
	}{
		"a token of AWS to AWS": {
			access{Spec: sourcev1.BucketSpec{Provider: "aws", STS: sts("https://sts.eu-west-1.amazonaws.com")},
				Account: reader}, ""},
		"a token of AWS to a VPC endpoint": {access{Spec: sourcev1.BucketSpec{Provider: "aws",
			STS: sts("https://vpce-1-2.sts.eu-west-1.vpce.amazonaws.com")}, Account: reader}, ""},
		"a token of AWS to others": {access{Spec: sourcev1.BucketSpec{Provider: "aws",
			STS: sts("https://sts.example.com")}, Account: reader}, "InvalidSTSConfiguration"},
		"a token of AWS to a gateway of others": {access{Spec: sourcev1.BucketSpec{Provider: "aws",
			STS: sts("https://sts.execute-api.eu-west-1.amazonaws.com")}, Account: reader}, "InvalidSTSConfiguration"},
		"a token of AWS by HTTP": {access{Spec: sourcev1.BucketSpec{Provider: "aws",
			STS: sts("http://sts.eu-west-1.amazonaws.com")}, Account: reader}, "InvalidSTSConfiguration"},
		"an account without a role": {access{Spec: sourcev1.BucketSpec{Provider: "aws",
			STS: sts("https://sts.amazonaws.com")}, Account: &types.NamespacedName{Namespace: "apps", Name: "plain"}},
			"InvalidSTSConfiguration"},
		"an account that is not": {access{Spec: sourcev1.BucketSpec{Provider: "aws",
			STS: sts("https://sts.amazonaws.com")}, Account: &types.NamespacedName{Namespace: "apps", Name: "none"}},
			"AuthenticationFailed"},
		"a process without an identity": {
			access{Spec: sourcev1.BucketSpec{Provider: "aws", STS: sts("https://sts.amazonaws.com")}},
			"InvalidSTSConfiguration"},
		"a token of Google to others": {
			access{Spec: sourcev1.BucketSpec{Provider: "gcp", Endpoint: "storage.example.com"}},
			"AuthenticationFailed"},
		"a token of Google by HTTP": {
			access{Spec: sourcev1.BucketSpec{Provider: "gcp", Endpoint: "storage.googleapis.com", Insecure: true}},
			"AuthenticationFailed"},
		"a token of Google to Google": {
			access{Spec: sourcev1.BucketSpec{Provider: "gcp", Endpoint: "storage.googleapis.com"}}, ""},
		"a token of an account on Azure to others": {access{Spec: sourcev1.BucketSpec{Provider: "azure",
			Endpoint: "https://acme.example.com", ServiceAccountName: "reader"}, Account: reader},
			"AuthenticationFailed"},
		"a token of the machine on Azure to others": {access{Spec: sourcev1.BucketSpec{Provider: "azure",
			Endpoint: "https://acme.example.com"}, Login: machine}, "AuthenticationFailed"},
		"a token of the machine on Azure to Azure": {
			access{Spec: sourcev1.BucketSpec{Provider: "azure", Endpoint: "https://acme.blob.core.windows.net"},
				Login: machine}, ""},
		"what is public at an emulator of Azure": {
			access{Spec: sourcev1.BucketSpec{Provider: "azure", Endpoint: "http://127.0.0.1:10000/acme"}}, ""},
		"a provider that is not": {access{Spec: sourcev1.BucketSpec{Provider: "other"}},
			"InvalidProviderConfiguration"},
		"a proxy that is none": {access{Spec: sourcev1.BucketSpec{},
			Proxy: secretData{"address": []byte("x")}}, "AuthenticationFailed"},
		"a certificate without its key": {access{Spec: sourcev1.BucketSpec{},
			Cert: secretData{"tls.crt": []byte("x")}}, "AuthenticationFailed"},
		"an LDAP login with half of what it needs": {access{
			Spec:     sourcev1.BucketSpec{STS: &sourcev1.BucketSTS{Provider: "ldap"}},
			STSLogin: secretData{"username": []byte("x")}}, "AuthenticationFailed"},
		"a bucket's name that leads somewhere else": {
			access{Spec: sourcev1.BucketSpec{Endpoint: "s3.example.com", BucketName: "../x"}}, "BucketOperationFailed"},
		"an endpoint that is a path of another host": {
			access{Spec: sourcev1.BucketSpec{Endpoint: "s3.example.com/../x", BucketName: "apps"}},
			"BucketOperationFailed"},
	} {
		if c.access.Spec.BucketName == "" {
			c.access.Spec.BucketName = "apps"
		}
		if c.access.Spec.Endpoint == "" {
			c.access.Spec.Endpoint = "s3.example.com"
		}
		_, err := l.remote(t.Context(), c.access)
		if fault.Reason(err, "") != c.reason || c.reason == "" && err != nil {
			t.Errorf("%s: got %v, want %q", what, err, c.reason)
		}
	}
}

func TestProvidersThatDoNotGoTogetherAreRefused(t *testing.T) {
	for what, spec := range map[string]sourcev1.BucketSpec{
		"aws with ldap":           {Provider: "aws", STS: &sourcev1.BucketSTS{Provider: "ldap"}},
		"generic with aws":        {STS: &sourcev1.BucketSTS{Provider: "aws"}},
		"gcp with one":            {Provider: "gcp", STS: &sourcev1.BucketSTS{Provider: "aws"}},
		"generic with an account": {ServiceAccountName: "x"},
		"an account beside a Secret": {Provider: "aws", ServiceAccountName: "x",
			SecretRef: &meta.LocalObjectReference{Name: "x"}},
	} {
		if err := checkProvider(spec); err == nil || !fault.As(err).Terminal {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAWayIsMadeAnewWhenItMust(t *testing.T) {
	plain := access{Spec: sourcev1.BucketSpec{Endpoint: "a"}}
	for what, c := range map[string]struct {
		other access
		same  bool
	}{
		"the interval": {access{Spec: sourcev1.BucketSpec{Endpoint: "a",
			Interval: metav1.Duration{Duration: time.Hour}}}, true},
		"the prefix":   {access{Spec: sourcev1.BucketSpec{Endpoint: "a", Prefix: "x"}}, true},
		"the endpoint": {access{Spec: sourcev1.BucketSpec{Endpoint: "b"}}, false},
		"the login": {access{Spec: sourcev1.BucketSpec{Endpoint: "a"},
			Login: secretData{"accesskey": []byte("x")}}, false},
		"the proxy": {access{Spec: sourcev1.BucketSpec{Endpoint: "a"},
			Proxy: secretData{"accesskey": []byte("x")}}, false},
		"the account": {access{Spec: sourcev1.BucketSpec{Endpoint: "a"},
			Account: &types.NamespacedName{Name: "x"}}, false},
		"the STS secret": {access{Spec: sourcev1.BucketSpec{Endpoint: "a"},
			STSLogin: secretData{"password": []byte("x")}}, false},
	} {
		if got := c.other.key() == plain.key(); got != c.same {
			t.Errorf("%s: the same is %v", what, got)
		}
	}
}
