package source_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"helm.sh/helm/v4/pkg/provenance"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/signing"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// pushChart pushes a chart to a registry like Helm does.
func pushChart(t *testing.T, r *ociregistry.Server, name, version string, more ...v1.Layer) signing.Target {
	t.Helper()
	chart := static.NewLayer(chartrepo.Package(t, chartrepo.NewChart(name, version)),
		"application/vnd.cncf.helm.chart.content.v1.tar+gzip")
	image := r.Push("charts/"+name, strings.ReplaceAll(version, "+", "_"), nil, append([]v1.Layer{chart}, more...)...)
	return signing.Target{TB: t, Image: image, Access: r.Access()}
}

func TestHelmChartOfRegistry(t *testing.T) {
	t.Parallel()
	s, r := &harness{system.Prepare(t)}, ociregistry.New(t)
	pushChart(t, r, "app", "1.0.0")
	s.Create(&sourcev1.HelmRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "charts"},
		Spec: sourcev1.HelmRepositorySpec{URL: r.OCI + "/charts", Type: sourcev1.HelmRepositoryTypeOCI,
			Insecure: true},
	})
	s.HelmChart("app", func(c *sourcev1.HelmChartSpec) { c.Version = "1.x" })
	s.HelmChart("exact", func(c *sourcev1.HelmChartSpec) { c.Version = "1.0.0" })
	s.Start() // the charts find their repository: a retry after a failure would be counted below
	s.chartReady("app", "1.0.0", "pulled 'app' chart with version '1.0.0'")
	s.chartReady("exact", "1.0.0", "pulled 'app' chart with version '1.0.0'")
	repository := &sourcev1.HelmRepository{}
	testenv.Eventually(t, "the HelmRepository is Ready", func() error {
		if err := s.Get(repository, "charts"); err != nil {
			return err
		}
		if !reconcile.IsReady(repository) || repository.Status.Artifact != nil ||
			len(repository.Status.Conditions) != 1 {
			return fmt.Errorf("%+v", repository.Status)
		}
		return nil
	})

	for _, name := range []string{"app", "exact"} { // no pass is left that the HelmRepository asked for at the start
		s.Reconcile(&sourcev1.HelmChart{}, name)
	}
	before := r.Stats()
	s.Reconcile(&sourcev1.HelmChart{}, "exact")
	after := r.Stats()
	if after["requests"]-before["requests"] != 1 || after["HEAD manifests"]-before["HEAD manifests"] != 1 {
		t.Errorf("requests for an unchanged chart: %v, before: %v", after, before)
	}

	pushChart(t, r, "app", "1.1.0+build.5")
	s.Reconcile(&sourcev1.HelmChart{}, "app")
	_, files := s.chartReady("app", "1.1.0+build.5", "pulled 'app' chart with version '1.1.0+build.5'")
	if !strings.Contains(files["app/Chart.yaml"], "version: 1.1.0+build.5") {
		t.Errorf("%q", files)
	}
	r.Stop()
	s.RequestReconcile(&sourcev1.HelmChart{}, "app")
	c := &sourcev1.HelmChart{}
	s.NotReady(c, "app", "ChartPullError", "cannot find versions of chart 'app'")
	if !c.Status.Artifact.HasRevision("1.1.0+build.5") {
		t.Errorf("%+v", c.Status)
	}
}

func TestHelmChartVerificationInRegistry(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	s.Create(&sourcev1.HelmRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "charts"},
		Spec: sourcev1.HelmRepositorySpec{URL: r.OCI + "/charts", Type: sourcev1.HelmRepositoryTypeOCI,
			Insecure: true},
	})
	key, stranger, notary := signing.NewKey(t), signing.NewKey(t), signing.NewNotary(t, time.Now().Add(time.Hour))
	s.Secret("cosign", map[string]string{"cosign.pub": string(key.Public)})
	s.Secret("notation", map[string]string{"trustpolicy.json": string(notary.Policy("strict")),
		"ca.crt": string(notary.CA)})
	prov := openPGPProvenance(t, s)

	key.Bundle(pushChart(t, r, "cosigned", "1.0.0"))
	stranger.Bundle(pushChart(t, r, "strange", "1.0.0"))
	notary.Sign(pushChart(t, r, "notarized", "1.0.0"), 0)
	pushChart(t, r, "pgp", "1.0.0", static.NewLayer([]byte(prov), "application/vnd.cncf.helm.chart.provenance.v1.prov"))
	pushChart(t, r, "unsigned", "1.0.0")
	verified := func(name, provider, secret string) {
		s.HelmChart(name+"-"+secret, func(c *sourcev1.HelmChartSpec) {
			c.Chart, c.Verify = name, &sourcev1.Verification{Provider: provider,
				SecretRef: &meta.LocalObjectReference{Name: secret}}
		})
	}
	for _, good := range []struct{ chart, provider, secret, by string }{
		{chart: "cosigned", provider: "cosign", secret: "cosign", by: "key 'cosign.pub'"},
		{chart: "notarized", provider: "notation", secret: "notation", by: "CN="},
		{chart: "pgp", provider: "cosign", secret: "keyring", by: "OpenPGP key"},
	} {
		verified(good.chart, good.provider, good.secret)
		c, _ := s.chartReady(good.chart+"-"+good.secret, "1.0.0", "pulled '"+good.chart+"' chart with version '1.0.0'")
		if v := apimeta.FindStatusCondition(c.Status.Conditions, sourcev1.SourceVerifiedCondition); v == nil ||
			v.Status != metav1.ConditionTrue || !strings.Contains(v.Message, good.by) {
			t.Errorf("%s: %+v", good.chart, v)
		}
	}
	for _, bad := range []struct{ chart, provider, secret, message string }{
		{chart: "strange", provider: "cosign", secret: "cosign", message: "no signature is by a trusted signer"},
		{chart: "unsigned", provider: "cosign", secret: "cosign", message: "it is not signed"},
		{chart: "cosigned", provider: "notation", secret: "notation", message: "notation"},
		{chart: "unsigned", provider: "cosign", secret: "keyring", message: "has no layer of type"},
		{chart: "cosigned", provider: "cosign", secret: "missing",
			message: "Secret '" + s.Namespace + "/missing' not found"},
	} {
		verified(bad.chart, bad.provider, bad.secret)
		c := &sourcev1.HelmChart{}
		s.NotReady(c, bad.chart+"-"+bad.secret, "ChartVerificationError", bad.message)
		if c.Status.Artifact != nil || !apimeta.IsStatusConditionFalse(c.Status.Conditions,
			sourcev1.SourceVerifiedCondition) {
			t.Errorf("%+v: %+v", bad, c.Status)
		}
	}
}

// openPGPProvenance creates a Secret with a new OpenPGP key, and returns the provenance file of a chart signed by it.
func openPGPProvenance(t *testing.T, s *harness) string {
	t.Helper()
	pgp, err := openpgp.NewEntity("team", "", "team@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		t.Fatal(err)
	}
	var public bytes.Buffer
	if err := pgp.Serialize(&public); err != nil {
		t.Fatal(err)
	}
	s.Secret("keyring", map[string]string{"pubring.gpg": public.String()})
	prov, err := (&provenance.Signatory{Entity: pgp}).
		ClearSign(chartrepo.Package(t, chartrepo.NewChart("pgp", "1.0.0")), "pgp-1.0.0.tgz", []byte("name: pgp\n"))
	if err != nil {
		t.Fatal(err)
	}
	return prov
}
