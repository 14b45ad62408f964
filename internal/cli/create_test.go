package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCreateExport prints an object of every kind, with all its flags.
// signatureFlags are the flags of signed sources.
const signatureFlags = " --verify-provider cosign --verify-secret-ref keys --verify-issuer ^https://example.com$ " +
	"--verify-subject ^ci$"

// createLines are the arguments of create, by golden file.
var createLines = map[string]string{
	"git": "source git app --url https://example.com/app --branch main --label " +
		"team=a,tier=web --interval 5m",
	"git-options": "source git app --url https://example.com/app --tag-semver 1.x --provider azure " +
		"--service-account puller --secret-ref login --proxy-secret-ref proxy --recurse-submodules " +
		"--ignore-paths *.md,docs/ --sparse-checkout-paths deploy,lib",
	"git-login": "source git app --url https://example.com/app --commit " +
		"363a6a8fe6a7f13e05d34c163b0ef02a777da20a --username me --password secret",
	"oci": "source oci app --url oci://registry.example.com/app",
	"oci-options": "source oci app --url oci://registry.example.com/app --tag-semver 1.x " +
		"--provider aws --secret-ref login --service-account puller --cert-ref certs --proxy-secret-ref proxy " +
		"--insecure --ignore-paths *.md --layer-selector " +
		"application/vnd.cncf.helm.chart.content.v1.tar+gzip:copy" + signatureFlags,
	"helm": "source helm charts --url https://charts.example.com --pass-credentials " +
		"--username me --password secret",
	"helm-oci": "source helm charts --url oci://registry.example.com/charts --oci-provider gcp " +
		"--username me --password secret",
	"chart": "source chart app --source HelmRepository/charts --chart app --chart-version " +
		"1.x --reconcile-strategy Revision" + signatureFlags,
	"bucket": "source bucket app --bucket-name deploy --endpoint s3.example.com --region eu " +
		"--prefix app/ --access-key AKIA --secret-key secret --insecure --ignore-paths *.md",
	"alert": "alert ops --provider-ref slack --event-source Kustomization/* --event-source " +
		"gitrepo/app.apps --event-severity error --event-metadata summary=production",
	"provider": "alert-provider slack --type slack --channel ops --address " +
		"https://slack.com/api/chat.postMessage --username sluice --secret-ref slack",
	"helmrelease": "helmrelease app --source HelmRepository/charts --chart app",
	"helmrelease-options": "helmrelease app --source HelmRepository/charts.sources --chart app " +
		"--chart-version 1.x --chart-interval 10m --reconcile-strategy Revision " +
		"--release-name shop --target-namespace web --create-target-namespace " +
		"--storage-namespace helm " +
		"--crds CreateReplace --values-from ConfigMap/base,Secret/login --depends-on db,infra/dns " +
		"--service-account deployer --kubeconfig-secret-ref remote --interval 5m",
	"helmrelease-ref": "hr app --chart-ref OCIRepository/app.sources",
	"receiver": "receiver app --type github --event ping,push --secret-ref token --resource " +
		"GitRepository/app --resource OCIRepository/*.apps",
	"resourceset": "resourceset apps --template-file testdata/template.txt --input {\"tenant\":\"a\",\"replicas\":2} " +
		"--inputs-from previews,cip/fleet --permute --service-account deployer --wait-for-objects --interval 5m",
	"input-provider": "input-provider previews --type GitHubPullRequest --url https://github.com/org/app " +
		"--secret-ref github --cert-ref certs --filter-label preview --limit 20 --include-branch ^feat/ " +
		"--skip-label !tested --default-values chart=app --interval 1m",
	"input-provider-artifacts": "rsip apps --type ExternalArtifact --artifact a,b.apps --service-account reader",
	"cluster-input-provider":   "cip fleet --selector fleet=production --default-values tier=standard --interval 5m",
	"gate":                     "gate release",
	"image-repository":         "image repository app --image ghcr.io/org/app",
	"image-repository-options": "images repository app --image registry.example.com:5000/org/app --secret-ref " +
		"login --cert-ref certs --proxy-secret-ref proxy --service-account puller --provider aws --scan-timeout " +
		"30s --exclusion-list ^dev-,.sig$ --insecure --interval 10m",
	"image-policy": "image policy app --image-ref app --select-semver >=1.0.0",
	"image-policy-options": "image policy app --image-ref app --select-numeric asc --filter-regex " +
		"^main-(?P<ts>[0-9]+)$ --filter-extract $ts --reflect-digest Always --interval 10m",
	"image-policy-cel": "image policy app --image-ref app --select-cel created --filter-cel tag!='latest'",
	"image-update":     "image update app --git-repo-ref app --author-email sluice@example.com",
	"image-update-options": "image update app --git-repo-ref app --git-repo-namespace sources --git-repo-path " +
		"./deploy --checkout-branch main --push-branch images --commit-template Update " +
		"--author-name Sluice --author-email sluice@example.com --signing-key-secret signer --signing-key-type " +
		"ssh --interval 30m --pull-request gitea --pull-request-secret gitea",
	"kustomization": "kustomization app --source app",
	"kustomization-options": "kustomization app --source OCIRepository/app.sources --path ./deploy --prune " +
		"--wait --interval 10m --retry-interval 30s --label team=a --target-namespace apps " +
		"--health-check Deployment/app.apps,HelmRelease/db.1.apps --health-check-timeout 3m --depends-on " +
		"base,infra/crds --service-account deployer " +
		"--kubeconfig-secret-ref other --decryption-provider sops --decryption-secret keys",
}

func TestCreateExport(t *testing.T) {
	for file, line := range createLines {

		t.Run(file, func(t *testing.T) {
			r := run(t, append(strings.Fields("create "+line), "--export")...).wants(t, exitOK)
			golden(t, "create-"+file+".yaml", r.out)
			if r.err != "" {
				t.Errorf("unexpected output to standard error:\n%s", r.err)
			}
		})
	}
}

// certificate creates a self-signed certificate, and returns its file and that of its key.
func certificate(t *testing.T, addresses ...net.IP) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: addresses}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "cert.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		file(t, "cert.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
