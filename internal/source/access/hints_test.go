package access

import (
	"context"
	"hash/fnv"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/testenv/stubsecrets"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// objects is a reader of some objects, by type and name.
type objects []client.Object

func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range o {
		if o.GetName() == key.Name && reflect.TypeOf(o) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (objects) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestHintsOfLogins(t *testing.T) {
	t.Setenv("AWS_ROLE_ARN", "")
	c := Connector{Egress: &egress.Policy{}, Identities: &auth.Identities{Accounts: accounts{}},
		Secrets: Secrets{Reader: objects{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}}}}
	here := metav1.ObjectMeta{Namespace: "apps", Name: "app"}
	gone, empty := &meta.LocalObjectReference{Name: "gone"}, &meta.LocalObjectReference{Name: "empty"}
	remote := func(spec sourcev1.GitRepositorySpec) error {
		spec.URL = "https://git.example/app"
		_, err := (&Git{Connector: c}).Remote(t.Context(), &sourcev1.GitRepository{ObjectMeta: here, Spec: spec})
		return err
	}
	bucket := func(b Bucket) error {
		b.spec.Endpoint, b.spec.BucketName = "s3.example", "apps"
		_, err := (&Buckets{Connector: c}).Remote(t.Context(), b)
		return err
	}
	verify := func(v sourcev1.Verification) error {
		_, _, err := (&Signatures{Connector: c}).Verifier(t.Context(), "apps", &v)
		return err
	}
	_, _, account := (&Registries{Connector: c}).Access(t.Context(), Registry{Namespace: "apps",
		URL: "oci://registry.example/app", ServiceAccount: "gone"})
	for want, err := range map[string]error{
		"Create it, or correct spec.secretRef": remote(sourcev1.GitRepositorySpec{SecretRef: gone}),
		"Set spec.provider to github and spec.secretRef to the Secret of a GitHub App, or neither": remote(
			sourcev1.GitRepositorySpec{Provider: sourcev1.ProviderGitHub}),
		"Create it, or correct spec.serviceAccountName":   account,
		"Set spec.provider to generic, aws, gcp or azure": bucket(Bucket{spec: sourcev1.BucketSpec{Provider: "other"}}),
		"Set it to the ARN of a role that can read the " +
			"bucket": bucket(Bucket{spec: stsSpec("https://sts.eu-west-1.amazonaws.com"),
			account: serviceAccount("plain")}),
		"Set the annotation eks.amazonaws.com/role-arn on the ServiceAccount of the controller, or set " +
			"spec.serviceAccountName": bucket(Bucket{spec: stsSpec("https://sts.eu-west-1.amazonaws.com")}),
		"Set spec.verify.secretRef to a Secret made by 'sluice create secret notation'": verify(sourcev1.Verification{
			Provider: "notation"}),
		"Add the file trusted_root.json of your Sigstore instance": verify(sourcev1.Verification{
			TrustedRootSecretRef: empty}),
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}

func TestTheFirstPullSecretWithALoginCounts(t *testing.T) {
	config := func(name, host, user string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{
			".dockerconfigjson": []byte(`{"auths": {"` + host + `": {"username": "` + user + `", "password": "x"}}}`)}}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app"}}
	many := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
	for _, name := range []string{"other", "first", "second"} {
		account.ImagePullSecrets = append(account.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	for range 101 {
		many.ImagePullSecrets = append(many.ImagePullSecrets, corev1.LocalObjectReference{Name: "other"})
	}
	r := &Registries{Connector: Connector{Egress: &egress.Policy{}, Identities: &auth.Identities{Accounts: accounts{}},
		Secrets: Secrets{Reader: objects{account, many, config("other", "x.example", "x"),
			config("first", "registry.example", "one"), config("second", "registry.example", "two")}}}}
	spec := Registry{Namespace: "apps", URL: "oci://registry.example/app", ServiceAccount: "app"}
	access, _, err := r.Access(t.Context(), spec)
	if err != nil || access.Login.Username != "one" {
		t.Errorf("the login is %q, %v", access.Login.Username, err)
	}
	spec.ServiceAccount = "many"
	if _, _, err := r.Access(t.Context(), spec); fault.As(err) == nil ||
		fault.As(err).Hint != "Put several logins into one Secret" {
		t.Errorf("got %v", err)
	}
}

func TestHintFitsTheBucket(t *testing.T) {
	for want, spec := range map[string]sourcev1.BucketSpec{
		"'aws' supports 'aws', 'generic' supports 'ldap', other providers support no STS": {
			Provider: sourcev1.ProviderGCP, STS: &sourcev1.BucketSTS{Provider: sourcev1.STSProviderAWS}},
		"Remove spec.serviceAccountName, or set spec.provider to aws, gcp or azure and remove spec.secretRef": {
			Provider: sourcev1.ProviderAWS, ServiceAccountName: "app",
			SecretRef: &meta.LocalObjectReference{Name: "s"}},
	} {
		err := checkProvider(spec)
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}

func TestHintsOfKeys(t *testing.T) {
	d := Decryption{Reader: stubsecrets.Reader{"broken": {"a.agekey": []byte("no key")}}}
	for want, of := range map[string]meta.Decryption{
		"Set it to sops": {Provider: "vault"},
		"Create it, or correct spec.decryption.secretRef": {Provider: "sops",
			SecretRef: &meta.LocalObjectReference{Name: "none"}},
		"Replace the value of this entry in the Secret": {Provider: "sops",
			SecretRef: &meta.LocalObjectReference{Name: "broken"}},
	} {
		_, err := d.Keys(t.Context(), "apps", &of, fnv.New64())
		if err == nil || !strings.HasSuffix(err.Error(), ". "+want) {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
