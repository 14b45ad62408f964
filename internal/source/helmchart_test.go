package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"helm.sh/helm/v4/pkg/provenance"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
)

// chartReady waits until a HelmChart is Ready at a version, and returns its files by name.
func (s *harness) chartReady(name, version, message string) (*sourcev1.HelmChart, map[string]string) {
	s.Helper()
	c := &sourcev1.HelmChart{}
	testenv.Eventually(s, name+" is Ready with "+version, func() error {
		if err := s.Get(c, name); err != nil {
			return err
		}
		ready := apimeta.FindStatusCondition(c.Status.Conditions, reconcile.TypeReady)
		if !reconcile.IsReady(c) || !c.Status.Artifact.HasRevision(version) || ready.Message != message {
			return fmt.Errorf("%+v, %+v", c.Status.Artifact, c.Status.Conditions)
		}
		return nil
	})
	return c, s.unpack(c.Status.Artifact.URL)
}

// unpack fetches an archive and returns its files.
func (s *harness) unpack(url string) map[string]string {
	s.Helper()
	resp, err := http.Get(url)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		s.Fatalf("%s: %v, status %d", url, err, resp.StatusCode)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		var text []byte
		if err == nil {
			text, err = io.ReadAll(r)
		}
		if err != nil {
			s.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

// updateChart changes the spec of a HelmChart.
func (s *harness) updateChart(name string, change func(*sourcev1.HelmChartSpec)) {
	s.Helper()
	c := &sourcev1.HelmChart{}
	s.Update(c, name, func() { change(&c.Spec) })
}

func TestHelmChartOfRepository(t *testing.T) {
	t.Parallel()
	s, h := newHarness(t), chartrepo.New(t)
	h.Publish(chartrepo.NewChart("app", "1.0.0"), chartrepo.NewChart("app", "2.0.0-rc.1"))
	s.HelmChart("app", func(c *sourcev1.HelmChartSpec) { c.Version = ">=1.0.0" })
	s.NotReady(&sourcev1.HelmChart{}, "app", "SourceUnavailable", "HelmRepository '"+s.Namespace+"/charts' not found")
	s.HelmRepository(h)
	c, _ := s.chartReady("app", "1.0.0", "pulled 'app' chart with version '1.0.0'")
	r := &sourcev1.HelmRepository{}
	if err := s.Get(r, "charts"); err != nil {
		t.Fatal(err)
	}
	if c.Status.ObservedChartName != "app" || c.Status.ObservedSourceArtifactRevision != r.Status.Artifact.Revision {
		t.Errorf("%+v", c.Status)
	}
	if !strings.HasSuffix(r.Status.URL, "/latest.yaml") || !strings.HasSuffix(c.Status.URL, "/latest.tgz") {
		t.Errorf("URLs: %s, %s", r.Status.URL, c.Status.URL)
	}
	if r.Status.Artifact.Revision != r.Status.Artifact.Digest {
		t.Errorf("%+v", r.Status.Artifact)
	}

	h.Requests()
	s.Reconcile(&sourcev1.HelmRepository{}, "charts")
	s.Reconcile(&sourcev1.HelmChart{}, "app")
	if got := h.Requests(); !slices.Equal(got, []string{"GET /index.yaml 304"}) {
		t.Errorf("requests without a change: %q", got)
	}

	h.Publish(chartrepo.NewChart("app", "1.1.0"))
	s.Reconcile(&sourcev1.HelmRepository{}, "charts")
	s.chartReady("app", "1.1.0", "pulled 'app' chart with version '1.1.0'")
	if got := h.Requests(); !slices.Equal(got, []string{"GET /index.yaml 200", "GET /app-1.1.0.tgz 200"}) {
		t.Errorf("requests for a new version: %q", got)
	}

	s.updateChart("app", func(c *sourcev1.HelmChartSpec) {
		c.Version, c.ValuesFiles = "1.0.0",
			[]string{"values.yaml"}
	})
	s.chartReady("app", "1.0.0", "pulled 'app' chart with version '1.0.0'")
	s.updateChart("app", func(c *sourcev1.HelmChartSpec) {
		c.Version, c.ValuesFiles, c.IgnoreMissingValuesFiles = "1.0.0",
			[]string{"values.yaml", "missing.yaml", "values-prod.yaml"}, true
	})
	c, files := s.chartReady("app", "1.0.0+3",
		"packaged 'app' chart with version '1.0.0+3' and merged values files [values.yaml, values-prod.yaml]")
	if files["app/values.yaml"] != "color: red\nsize:\n  h: 2\n  w: 9\n" ||
		!slices.Equal(c.Status.ObservedValuesFiles, []string{"values.yaml", "values-prod.yaml"}) {
		t.Errorf("%q, %q", files["app/values.yaml"], c.Status.ObservedValuesFiles)
	}
	s.updateChart("app", func(c *sourcev1.HelmChartSpec) { c.IgnoreMissingValuesFiles = false })
	s.NotReady(&sourcev1.HelmChart{}, "app", "ValuesFilesError", "missing.yaml")
	s.updateChart("app", func(c *sourcev1.HelmChartSpec) { c.ValuesFiles, c.Version = nil, "9.x" })
	failed := &sourcev1.HelmChart{}
	s.NotReady(failed, "app", "InvalidChartReference", `no version of chart "app" matches "9.x"`)
	if !apimeta.IsStatusConditionTrue(failed.Status.Conditions, sourcev1.FetchFailedCondition) ||
		failed.Status.Artifact == nil {
		t.Errorf("%+v", failed.Status)
	}
}

func TestHelmRepositoryOutage(t *testing.T) {
	t.Parallel()
	s, h := newHarness(t), chartrepo.New(t)
	h.Publish(chartrepo.NewChart("app", "1.0.0"))
	s.HelmRepository(h)
	s.HelmChart("app")
	const pulled = "pulled 'app' chart with version '1.0.0'"
	s.chartReady("app", "1.0.0", pulled)

	h.Write("index.yaml", []byte("<html>out of order</html>"))
	s.RequestReconcile(&sourcev1.HelmRepository{}, "charts")
	r := &sourcev1.HelmRepository{}
	s.NotReady(r, "charts", "IndexationFailed", "line 1: expected a key of the index")
	h.Stop()
	s.RequestReconcile(&sourcev1.HelmRepository{}, "charts")
	s.NotReady(r, "charts", "IndexationFailed", "cannot fetch the index")
	if r.Status.Artifact == nil || !apimeta.IsStatusConditionTrue(r.Status.Conditions, sourcev1.FetchFailedCondition) {
		t.Errorf("%+v", r.Status)
	}
	s.Reconcile(&sourcev1.HelmChart{}, "app")
	s.chartReady("app", "1.0.0", pulled)

	s.Stop() // a restart while the repository is unreachable
	s.Start()
	s.Reconcile(&sourcev1.HelmChart{}, "app")
	s.chartReady("app", "1.0.0", pulled)
}

func TestHelmChartWithWrongDigest(t *testing.T) {
	t.Parallel()
	s, h := newHarness(t), chartrepo.New(t)
	h.Publish(chartrepo.NewChart("app", "1.0.0"))
	h.Write("app-1.0.0.tgz", chartrepo.Package(t, chartrepo.NewChart("app", "1.0.1")))
	s.HelmRepository(h)
	s.HelmChart("app")
	c := &sourcev1.HelmChart{}
	s.NotReady(c, "app", "ChartPullError", "but the index has sha256:")
	if c.Status.Artifact != nil {
		t.Error("the chart was stored")
	}
}

// cosignKey returns a new public key.
func cosignKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestHelmProvenanceVerification(t *testing.T) {
	t.Parallel()
	s, h := newHarness(t), chartrepo.New(t)
	h.Publish(chartrepo.NewChart("app", "1.0.0"))
	data := chartrepo.Package(t, chartrepo.NewChart("app", "1.0.0"))
	h.Write("app-1.0.0.tgz", data)
	h.Publish()
	newKey := func() (*openpgp.Entity, string) {
		key, err := openpgp.NewEntity("team", "", "team@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
		if err != nil {
			t.Fatal(err)
		}
		var public bytes.Buffer
		if err := key.Serialize(&public); err != nil {
			t.Fatal(err)
		}
		return key, public.String()
	}
	key, public := newKey()
	prov, err := (&provenance.Signatory{Entity: key}).ClearSign(data, "app-1.0.0.tgz", []byte("name: app\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, stranger := newKey()
	s.Secret("stranger", map[string]string{"pubring.gpg": stranger})
	s.Secret("trusted", map[string]string{"pubring.gpg": public})
	s.Secret("other", map[string]string{"cosign.pub": cosignKey(t)})
	s.HelmRepository(h)
	by := func(secret string) func(*sourcev1.HelmChartSpec) {
		return func(c *sourcev1.HelmChartSpec) {
			c.Verify = &sourcev1.Verification{Provider: "cosign", SecretRef: &meta.LocalObjectReference{Name: secret}}
		}
	}
	s.HelmChart("app", by("trusted"))
	c := &sourcev1.HelmChart{}
	s.NotReady(c, "app", "ChartVerificationError", "404")
	if c.Status.Artifact != nil {
		t.Error("an unsigned chart was stored")
	}
	h.Write("app-1.0.0.tgz.prov", []byte(prov))
	s.RequestReconcile(&sourcev1.HelmChart{}, "app")
	c, _ = s.chartReady("app", "1.0.0", "pulled 'app' chart with version '1.0.0'")
	if v := apimeta.FindStatusCondition(c.Status.Conditions, sourcev1.SourceVerifiedCondition); v == nil ||
		v.Status != metav1.ConditionTrue || !strings.Contains(v.Message, "signed by OpenPGP key") {
		t.Errorf("%+v", v)
	}
	s.updateChart("app", by("stranger"))
	s.NotReady(c, "app", "ChartVerificationError", "not trusted")
	if !apimeta.IsStatusConditionFalse(c.Status.Conditions, sourcev1.SourceVerifiedCondition) ||
		c.Status.Artifact == nil {
		t.Errorf("%+v", c.Status)
	}
	s.updateChart("app", by("other"))
	s.NotReady(c, "app", "ChartVerificationError",
		"Set spec.verify.secretRef to a Secret whose key 'pubring.gpg' has the output of: gpg --export KEY")
	s.updateChart("app", func(c *sourcev1.HelmChartSpec) { c.Verify = nil })
	c, _ = s.chartReady("app", "1.0.0", "pulled 'app' chart with version '1.0.0'")
	if v := apimeta.FindStatusCondition(c.Status.Conditions, sourcev1.SourceVerifiedCondition); v != nil {
		t.Errorf("%+v", v)
	}
}

func TestHelmChartOfGitRepository(t *testing.T) {
	t.Parallel()
	s, h := newHarness(t), chartrepo.New(t)
	h.Publish(chartrepo.NewChart("db", "1.0.0"), chartrepo.NewChart("db", "1.4.0"))
	s.HelmRepository(h)
	chartYAML := func(version string) string {
		return fmt.Sprintf("apiVersion: v2\nname: app\nversion: %s\ndependencies:\n"+
			"- {name: db, version: 1.x, repository: %q}\n", version, h.URL+"/")
	}
	files := map[string]string{"charts/app/Chart.yaml": chartYAML("1.0.0"), "charts/app/values.yaml": "a: 1\n",
		"prod.yaml": "a: 2\n"}
	s.Git.Init("repo")
	first := s.Git.Commit("repo", files)
	s.GitRepository("repo")
	ofGit := func(c *sourcev1.HelmChartSpec) {
		c.Chart, c.SourceRef = "./charts/app",
			sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.GitRepositoryKind, Name: "repo"}
	}
	s.HelmChart("by-version", ofGit)
	s.HelmChart("by-revision", ofGit, func(c *sourcev1.HelmChartSpec) {
		c.ReconcileStrategy, c.ValuesFiles = sourcev1.ReconcileStrategyRevision, []string{"prod.yaml"}
	})
	const packaged = "packaged 'app' chart with version '1.0.0'"
	c, got := s.chartReady("by-version", "1.0.0", packaged)
	if !strings.Contains(got["app/charts/db/Chart.yaml"], "version: 1.4.0") || got["app/values.yaml"] != "a: 1\n" {
		t.Errorf("%q", got)
	}
	if !strings.HasSuffix(c.Status.ObservedSourceArtifactRevision, first) {
		t.Errorf("%+v", c.Status)
	}
	version := "1.0.0+" + first[:12] + ".1"
	_, got = s.chartReady("by-revision", version, "packaged 'app' chart with version '"+version+
		"' and merged values files [prod.yaml]")
	if got["app/values.yaml"] != "a: 2\n" {
		t.Errorf("%q", got)
	}

	files["charts/app/values.yaml"] = "a: 3\n"
	second := s.Git.Commit("repo", files)
	s.RequestFetch("repo")
	version = "1.0.0+" + second[:12] + ".1"
	s.chartReady("by-revision", version, "packaged 'app' chart with version '"+version+
		"' and merged values files [prod.yaml]")
	s.Stop()
	s.Start() // after a restart, an existing version is not packaged again
	s.Reconcile(&sourcev1.HelmChart{}, "by-version")
	if _, got := s.chartReady("by-version", "1.0.0", packaged); got["app/values.yaml"] != "a: 1\n" {
		t.Errorf("files of an unchanged version: %q", got)
	}

	files["charts/app/Chart.yaml"] = chartYAML("1.1.0")
	s.Git.Commit("repo", files)
	s.RequestFetch("repo")
	if _, got := s.chartReady("by-version", "1.1.0",
		"packaged 'app' chart with version '1.1.0'"); got["app/values.yaml"] != "a: 3\n" {
		t.Errorf("%q", got)
	}

	checkChartFailures(t, files, chartYAML, s)
}

// TestValuesFilesOfOtherSources packages a chart of a repository with a values file of a GitRepository. Each change of
// that file makes another version, other commits do not.
func TestValuesFilesOfOtherSources(t *testing.T) {
	t.Parallel()
	s, h := newHarness(t), chartrepo.New(t)
	h.Publish(chartrepo.NewChart("app", "1.0.0"))
	s.HelmRepository(h)
	s.HelmChart("app", func(c *sourcev1.HelmChartSpec) {
		c.Chart, c.ValuesFiles = "app", []string{"GitRepository://site/envs/prod.yaml"}
	})
	c := &sourcev1.HelmChart{}
	s.NotReady(c, "app", sourcev1.SourceUnavailableReason,
		"GitRepository '"+s.Namespace+"/site' not found. Create it, or correct spec.valuesFiles")
	sops := sopskey.New(t)
	s.Git.Init("site")
	files := map[string]string{"envs/prod.yaml": "color: blue\n", "secret.yaml": sops.Encrypt("yaml", "a: b\n")}
	s.Git.Commit("site", files)
	s.GitRepository("site")
	hasValues := func(content string) {
		t.Helper()
		sum := sha256.Sum256(fmt.Appendf(nil, "%d false %s", len(content), content))
		version := fmt.Sprintf("1.0.0+1.%x", sum[:6])
		message := "packaged 'app' chart with version '" + version +
			"' and merged values files [GitRepository://site/envs/prod.yaml]"
		if _, got := s.chartReady("app", version, message); got["app/values.yaml"] != content {
			t.Errorf("%q", got)
		}
	}
	hasValues("color: blue\n")
	files["README.md"] = "other"
	s.Git.Commit("site", files)
	s.RequestFetch("site")
	files["envs/prod.yaml"] = "color: green\n"
	s.Git.Commit("site", files)
	s.RequestFetch("site")
	hasValues("color: green\n")
	const syntax = "Write it as GitRepository://NAME/PATH; also OCIRepository, Bucket or ExternalArtifact"
	for file, message := range map[string]string{
		"GitRepository://site/none.yaml":   "'GitRepository://site/none.yaml': the artifact has no such file",
		"HelmRepository://site/a.yaml":     syntax,
		"GitRepository://site/secret.yaml": "Use spec.valuesFrom and spec.decryption of the HelmRelease",
	} {
		s.updateChart("app", func(c *sourcev1.HelmChartSpec) { c.ValuesFiles = []string{file} })
		s.NotReady(c, "app", sourcev1.ValuesFilesErrorReason, message)
	}
}

// checkChartFailures checks charts with a missing dependency and at a missing path.
func checkChartFailures(t *testing.T, files map[string]string, chartYAML func(version string) string, s *harness) {
	t.Helper()
	files["charts/app/Chart.yaml"] = strings.ReplaceAll(chartYAML("1.2.0"), "1.x", "7.x")
	s.Git.Commit("repo", files)
	s.RequestFetch("repo")
	failed := &sourcev1.HelmChart{}
	s.NotReady(failed, "by-version", "DependencyBuildError", `no version of chart "db" matches "7.x"`)
	if !apimeta.IsStatusConditionTrue(failed.Status.Conditions, sourcev1.BuildFailedCondition) ||
		!failed.Status.Artifact.HasRevision("1.1.0") {
		t.Errorf("%+v", failed.Status)
	}
	s.updateChart("by-version", func(c *sourcev1.HelmChartSpec) { c.Chart = "charts/none" })
	s.NotReady(failed, "by-version", "InvalidChartReference", "no chart found at 'charts/none'")
}

func TestInvalidHelmRepositories(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	for _, test := range []struct {
		name, reason, message string
		spec                  sourcev1.HelmRepositorySpec
	}{
		{name: "scheme", reason: "URLInvalid", message: "Set spec.url to a URL such as https://HOST/PATH, or set " +
			"spec.type: oci for a registry",
			spec: sourcev1.HelmRepositorySpec{URL: "oci://h.example/x"}},
		{name: "web", reason: "URLInvalid", message: "oci://",
			spec: sourcev1.HelmRepositorySpec{URL: "https://h.example/x",
				Type: sourcev1.HelmRepositoryTypeOCI}},
		{name: "secret", reason: "AuthenticationFailed", message: "Secret",
			spec: sourcev1.HelmRepositorySpec{URL: "https://h.example/x",
				SecretRef: &meta.LocalObjectReference{Name: "none"}}},
		{name: "access", reason: "AccessDenied", message: "spec.accessFrom",
			spec: sourcev1.HelmRepositorySpec{URL: "https://h.example/x",
				AccessFrom: &meta.AccessFrom{NamespaceSelectors: []meta.NamespaceSelector{{}}}}},
	} {
		s.Create(&sourcev1.HelmRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: test.name},
			Spec: test.spec})
		s.NotReady(&sourcev1.HelmRepository{}, test.name, test.reason, test.message)
	}
}
