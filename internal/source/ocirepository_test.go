package source_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/signing"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// served downloads an artifact.
func (s *harness) served(a *meta.Artifact) []byte {
	s.Helper()
	resp, err := http.Get(a.URL)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return b
}

func TestOCIRepository(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	annotations := map[string]string{"org.opencontainers.image.revision": "main@sha1:abc",
		"org.opencontainers.image.source": "https://git.example/app"}
	first := r.Push("app", "latest", annotations,
		static.NewLayer(system.Archive(t, map[string]string{"a.yaml": system.ConfigMap("oci", "1"), "pic.jpg": "-"}),
			system.ContentMediaType))
	s.OCIRepository(r, "app")
	o := s.OCIRepositoryReady("app", first)
	if diff := cmp.Diff(annotations, o.Status.Artifact.Metadata); diff != "" {
		t.Error(diff)
	}
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.SourceRef.Kind = "OCIRepository" })
	s.ConfigMapHas("oci", "1")

	t.Log("an unchanged digest causes one HEAD request")
	before := r.Stats()
	s.RequestReconcile(&sourcev1.OCIRepository{}, "app")
	s.OCIRepositoryReady("app", first)
	if diff := cmp.Diff(map[string]int64{"HEAD manifests": 1, "requests": 1},
		system.RequestsSince(r, before)); diff != "" {
		t.Error(diff)
	}

	t.Log("nothing is pulled after a restart")
	s.Stop()
	before = r.Stats()
	s.Start()
	testenv.Eventually(t, "the registry gets requests", func() error {
		if got := system.RequestsSince(r, before); got["HEAD manifests"] == 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	s.RequestReconcile(&sourcev1.OCIRepository{}, "app")
	s.OCIRepositoryReady("app", first)
	if got := system.RequestsSince(r, before); got["GET manifests"]+got["GET blobs"] != 0 {
		t.Errorf("unexpected requests: %v", got)
	}

	t.Log("moving the tag updates the cluster")
	second := r.Push("app", "latest", nil, static.NewLayer(system.Archive(t,
		map[string]string{"a.yaml": system.ConfigMap("oci", "2")}),
		system.ContentMediaType))
	s.RequestReconcile(&sourcev1.OCIRepository{}, "app")
	s.OCIRepositoryReady("app", second)
	s.ConfigMapHas("oci", "2")

	t.Log("changed ignore rules make another artifact of the same revision")
	was := s.OCIRepositoryReady("app", second).Status.Artifact.Digest
	s.Patch(&sourcev1.OCIRepository{}, "app", `{"spec":{"ignore":"a.yaml"}}`)
	testenv.Eventually(t, "the artifact has changed", func() error {
		if o := s.OCIRepositoryReady("app", second); o.Status.Artifact.Digest == was || o.Status.ObservedIgnore == nil {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
}

func TestOCILayerCopy(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	chart := system.Archive(t, map[string]string{"app/Chart.yaml": "name: app\n"})
	const chartType = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
	digest := r.Push("app", "latest", nil, static.NewLayer([]byte("other"), system.ContentMediaType),
		static.NewLayer(chart, chartType))
	s.OCIRepository(r, "app", func(o *sourcev1.OCIRepositorySpec) {
		o.LayerSelector = &sourcev1.OCILayerSelector{MediaType: string(chartType), Operation: sourcev1.LayerCopy}
	})
	if got := s.served(s.OCIRepositoryReady("app", digest).Status.Artifact); !bytes.Equal(got, chart) {
		t.Errorf("got %d bytes that differ from the layer", len(got))
	}
}

// ociVerification is a case of TestOCIVerification.
type ociVerification struct {
	verify  sourcev1.Verification
	sign    func(signing.Target)
	message string
}

func ociVerifications(key *signing.Key, root *signing.Sigstore, notary *signing.Notary) map[string]ociVerification {
	return map[string]ociVerification{
		"keys": {
			verify: sourcev1.Verification{Provider: "cosign", SecretRef: &meta.LocalObjectReference{Name: "keys"}},
			sign:   key.Bundle, message: "by key 'cosign.pub'",
		},
		"keyless": {
			verify: sourcev1.Verification{
				Provider: "cosign", TrustedRootSecretRef: &meta.LocalObjectReference{Name: "root"},
				MatchOIDCIdentity: []sourcev1.OIDCIdentityMatch{{Issuer: "^https://ci\\.example$", Subject: "^me@"}},
			},
			sign:    func(to signing.Target) { root.Tagged(to, "me@example.com", "https://ci.example") },
			message: "by identity '^me@'",
		},
		"notation": {
			verify: sourcev1.Verification{Provider: "notation", SecretRef: &meta.LocalObjectReference{Name: "policy"}},
			sign:   func(to signing.Target) { notary.Sign(to, time.Hour) }, message: "by 'CN=Release",
		},
	}
}

func TestOCIVerification(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	key, stranger, root := signing.NewKey(t), signing.NewKey(t), signing.NewSigstore(t)
	notary := signing.NewNotary(t, time.Now().Add(time.Hour))
	s.Secret("keys", map[string]string{"cosign.pub": string(key.Public)})
	s.Secret("root", map[string]string{"trusted_root.json": string(root.Root)})
	s.Secret("policy", map[string]string{"trustpolicy.json": string(notary.Policy("strict")),
		"ca.crt": string(notary.CA)})
	for name, c := range ociVerifications(key, root, notary) {
		t.Run(name, func(t *testing.T) {
			s := &harness{s.For(t)}
			push := func(value string) signing.Target {
				layer := static.NewLayer(system.Archive(t, map[string]string{"a.yaml": system.ConfigMap(name, value)}),
					system.ContentMediaType)
				return signing.Target{TB: t, Image: r.Push(name, "latest", nil, layer), Access: r.Access()}
			}
			first := push("1")
			stranger.Bundle(first)
			stranger.Tagged(first)
			s.OCIRepository(r, name, func(o *sourcev1.OCIRepositorySpec) { o.Verify = &c.verify })
			o := &sourcev1.OCIRepository{}
			s.NotReady(o, name, "VerificationError", "cannot verify")
			if o.Status.Artifact != nil {
				t.Fatal("an artifact without a trusted signature was stored")
			}
			c.sign(first)
			s.RequestReconcile(&sourcev1.OCIRepository{}, name)
			kept := s.OCIRepositoryReady(name, first.Image).Status.Artifact
			s.verified(name, metav1.ConditionTrue, c.message)

			push("2")
			s.RequestReconcile(&sourcev1.OCIRepository{}, name)
			s.NotReady(o, name, "VerificationError", "cannot verify")
			s.verified(name, metav1.ConditionFalse, "cannot verify")
			if diff := cmp.Diff(kept, o.Status.Artifact); diff != "" {
				t.Errorf("the previous artifact was not kept: %s", diff)
			}
			s.served(kept)
		})
	}
}

// verified waits until the condition SourceVerified has a status and a message that contains a text.
func (s *harness) verified(name string, status metav1.ConditionStatus, message string) {
	s.Helper()
	testenv.Eventually(s, "SourceVerified is "+string(status), func() error {
		o := &sourcev1.OCIRepository{}
		if err := s.Get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.Status.Conditions, sourcev1.SourceVerifiedCondition)
		if c == nil || c.Status != status || !bytes.Contains([]byte(c.Message), []byte(message)) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func localSecret(n string) *meta.LocalObjectReference { return &meta.LocalObjectReference{Name: n} }

var ociLogins = map[string]struct {
	spec            func(*sourcev1.OCIRepositorySpec)
	reason, message string
}{
	"a-secret":   {spec: func(o *sourcev1.OCIRepositorySpec) { o.SecretRef = localSecret("login") }},
	"an-account": {spec: func(o *sourcev1.OCIRepositorySpec) { o.ServiceAccountName = "puller" }},
	"no-login": {spec: func(*sourcev1.OCIRepositorySpec) {}, reason: "AuthenticationFailed",
		message: "No login is set"},
	"a-wrong-login": {spec: func(o *sourcev1.OCIRepositorySpec) { o.SecretRef = localSecret("wrong") },
		reason:  "AuthenticationFailed",
		message: "Check the login"},
	"no-secret": {spec: func(o *sourcev1.OCIRepositorySpec) { o.SecretRef = localSecret("none") },
		reason:  "AuthenticationFailed",
		message: "not found"},
	"no-account": {spec: func(o *sourcev1.OCIRepositorySpec) { o.ServiceAccountName = "none" },
		reason: "AuthenticationFailed", message: "ServiceAccount"},
	"no-certificate": {spec: func(o *sourcev1.OCIRepositorySpec) {
		o.SecretRef, o.CertSecretRef = localSecret("login"),
			localSecret("no-client")
	}, reason: "OCIArtifactPullFailed"},
	"no-authority": {spec: func(o *sourcev1.OCIRepositorySpec) {
		o.SecretRef, o.CertSecretRef = localSecret("login"), nil
	},
		reason: "OCIArtifactPullFailed", message: "certificate"},
	"a-tag-in-url": {spec: func(o *sourcev1.OCIRepositorySpec) { o.URL += ":latest" }, reason: "URLInvalid",
		message: "oci://host/path"},
	"notation-no-key": {spec: func(o *sourcev1.OCIRepositorySpec) {
		o.SecretRef, o.Verify = localSecret("login"), &sourcev1.Verification{Provider: "notation"}
	}, reason: "VerificationError", message: "trust policy"},
	"anybody": {spec: func(o *sourcev1.OCIRepositorySpec) {
		o.SecretRef, o.Verify = localSecret("login"), &sourcev1.Verification{Provider: "cosign"}
	}, reason: "VerificationError", message: "matchOIDCIdentity"},
}

func TestOCILogins(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	r := ociregistry.New(t, "--tls-dir", t.TempDir(), "--client-certificates", "--username", "me", "--password",
		"secret")
	digest := r.Push("app", "latest", nil, static.NewLayer(system.Archive(t,
		map[string]string{"a.yaml": system.ConfigMap("a", "1")}),
		system.ContentMediaType))
	config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, r.Host, base64.StdEncoding.EncodeToString([]byte("me:secret")))
	s.Create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "login"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: config},
	})
	s.Secret("wrong", map[string]string{"username": "me", "password": "wrong"})
	tls := map[string]string{"ca.crt": string(r.CA), "tls.crt": string(r.ClientCert), "tls.key": string(r.ClientKey)}
	s.Secret("tls", tls)
	noClient := maps.Clone(tls)
	delete(noClient, "tls.crt")
	delete(noClient, "tls.key")
	s.Secret("no-client", noClient)
	s.Create(&corev1.ServiceAccount{
		ObjectMeta:       metav1.ObjectMeta{Namespace: s.Namespace, Name: "puller"},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "login"}},
	})
	cases := ociLogins
	for name, c := range cases {
		s.OCIRepository(r, name, func(o *sourcev1.OCIRepositorySpec) {
			o.URL, o.CertSecretRef = r.OCI+"/app", localSecret("tls")
			c.spec(o)
		})
	}
	for name, c := range cases {
		if c.reason == "" {
			s.OCIRepositoryReady(name, digest)
		} else {
			s.NotReady(&sourcev1.OCIRepository{}, name, c.reason, c.message)
		}
	}
}

func TestOCIProxy(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	digest := r.Push("app", "latest", nil, static.NewLayer(system.Archive(t,
		map[string]string{"a.yaml": system.ConfigMap("a", "1")}),
		system.ContentMediaType))
	var passed atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		if p.In.Header.Get("Proxy-Authorization") == "Basic "+base64.StdEncoding.EncodeToString([]byte("me:secret")) &&
			p.In.URL.Host == r.Host {
			passed.Add(1)
		}
	}})
	t.Cleanup(proxy.Close)
	s.Secret("proxy", map[string]string{"address": proxy.URL, "username": "me", "password": "secret"})
	s.OCIRepository(r, "app", func(o *sourcev1.OCIRepositorySpec) {
		o.ProxySecretRef = &meta.LocalObjectReference{Name: "proxy"}
	})
	s.OCIRepositoryReady("app", digest)
	stats := r.Stats()
	all := stats["GET ping"] + stats["HEAD manifests"] + stats["GET manifests"] + stats["GET blobs"]
	if got := passed.Load(); got == 0 || got > all {
		t.Errorf("%d of %d requests used the proxy", got, all)
	}
}

func TestInvalidOCILayers(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	good := system.Archive(t, map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	first := r.Push("app", "latest", nil, static.NewLayer(good, system.ContentMediaType))
	s.OCIRepository(r, "app")
	kept := s.OCIRepositoryReady("app", first).Status.Artifact
	for what, layer := range map[string][]byte{
		"truncated": good[:len(good)-20], "leads out": system.Archive(t, map[string]string{"../a.yaml": "a"}),
		"no archive": []byte("text"),
	} {
		t.Log(what)
		r.Push("app", "latest", map[string]string{"what": what}, static.NewLayer(layer, system.ContentMediaType))
		s.RequestReconcile(&sourcev1.OCIRepository{}, "app")
		o := &sourcev1.OCIRepository{}
		s.NotReady(o, "app", "OCIArtifactLayerOperationFailed", "cannot be extracted")
		if diff := cmp.Diff(kept, o.Status.Artifact); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		s.served(kept)
		again := r.Push("app", "latest", nil, static.NewLayer(good, system.ContentMediaType))
		s.RequestReconcile(&sourcev1.OCIRepository{}, "app")
		s.OCIRepositoryReady("app", again)
	}
}

func TestOCIRegistryOutage(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	digest := r.Push("app", "latest", nil, static.NewLayer(system.Archive(t,
		map[string]string{"a.yaml": system.ConfigMap("a", "1")}),
		system.ContentMediaType))
	s.OCIRepository(r, "app")
	kept := s.OCIRepositoryReady("app", digest).Status.Artifact
	r.Stop()
	s.RequestReconcile(&sourcev1.OCIRepository{}, "app")
	o := &sourcev1.OCIRepository{}
	s.NotReady(o, "app", "OCIArtifactPullFailed", "cannot find")
	if c := apimeta.FindStatusCondition(o.Status.Conditions, "FetchFailed"); c == nil ||
		c.Status != metav1.ConditionTrue {
		t.Errorf("FetchFailed: %+v", c)
	}
	if diff := cmp.Diff(kept, o.Status.Artifact); diff != "" {
		t.Error(diff)
	}
	s.served(kept)
}
