package e2e

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// breakage is a cluster in which something broke.
type breakage struct {
	*testing.T
	client.Client
	sluice, kubeconfig, namespace string
	git                           *testenv.Git
}

// deploy creates a source from a repository, and a Kustomization that applies its files.
func (b *breakage) deploy(name, url string, change func(*sourcev1.GitRepository, *kustomizev1.Kustomization)) {
	b.Helper()
	source := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	source.Spec.URL, source.Spec.Interval = url, meta.DurationOf(time.Second)
	source.Spec.Reference = &sourcev1.GitRepositoryRef{Branch: "main"}
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	k.Spec.Interval, k.Spec.Prune, k.Spec.TargetNamespace = meta.DurationOf(time.Minute), true, b.namespace
	k.Spec.SourceRef = kustomizev1.SourceReference{Kind: sourcev1.GitRepositoryKind,
		NamespacedName: meta.NamespacedName{Name: name}}
	if change != nil {
		change(source, k)
	}
	b.create(source, k)
}

func (b *breakage) create(objects ...client.Object) {
	b.Helper()
	for _, o := range objects {
		if err := b.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

// why runs `sluice why` until its answer contains all texts: the first line is about the blocked step.
func (b *breakage) why(question, step string, texts ...string) {
	b.Helper()
	testenv.Eventually(b, "sluice why "+question, func() error {
		out, err := exec.Command(b.sluice, "why", question, "--kubeconfig", b.kubeconfig, "-n", b.namespace).
			CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		first, rest, _ := strings.Cut(string(out), "\n")
		if !strings.Contains(first, step) {
			return fmt.Errorf("does not begin with %q:\n%s", step, out)
		}
		for _, text := range texts {
			if !strings.Contains(rest, text) {
				return fmt.Errorf("does not contain %q:\n%s", text, out)
			}
		}
		b.Logf("sluice why %s\n%s", question, out)
		return nil
	})
}

const declaredConfig = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {app: %[1]s}}\n"

// TestWhyNamesSevenBreakages lets seven things break that people on call meet. One `sluice why` names each, with its
// cause and the next step, first.
func TestWhyNamesSevenBreakages(t *testing.T) {
	t.Parallel()
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	b := &breakage{T: t, sluice: sluice, kubeconfig: testenv.Kubeconfig(t), namespace: testenv.Namespace(t),
		git: testenv.NewGit(t)}
	if out, err := exec.Command(sluice, "install", "--crds-only", "--kubeconfig", b.kubeconfig).
		CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	if b.Client, err = client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()}); err != nil {
		t.Fatal(err)
	}
	storage := t.TempDir()
	stop := testenv.Supervise(t, func() *exec.Cmd {
		process := exec.Command(sluice, "controller", "--kubeconfig", b.kubeconfig, "-n", b.namespace,
			"--watch-all-namespaces=false", "--storage-path", storage, "--storage-addr", "127.0.0.1:0",
			"--metrics-addr", "0", "--health-addr", "0", "--receiverAddr", "0", "--events-addr", "0",
			"--images-addr", "0", "--log-level", "error", "--enable-leader-election",
			"--leader-election-lease-duration", "4s", "--leader-election-renew-deadline", "3s",
			"--leader-election-retry-period", "1s")
		process.Stderr = os.Stderr
		return process
	})
	t.Cleanup(func() { stop(syscall.SIGKILL) })

	b.gitDown()
	b.badYAML()
	b.missingSecret()
	b.refusedWebhook()
	b.quota()
	b.stuckDeletion()
	stop(syscall.SIGKILL)
	b.why("healthy", "have not renewed Lease", "Kustomization/"+b.namespace+"/healthy is live")
}

func (b *breakage) gitDown() {
	b.git.Commit("healthy", map[string]string{"c.yaml": fmt.Sprintf(declaredConfig, "healthy")})
	b.deploy("healthy", b.git.URL+"/healthy", nil)
	b.why("ks/healthy", "is live", "applied main@sha1:")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	b.deploy("down", closed.URL+"/app", nil)
	b.why("down", "Kustomization/"+b.namespace+"/down is not live: source is blocked", "connection refused",
		"next:    check that the host runs", "look at: GitRepository/"+b.namespace+"/down")
}

func (b *breakage) badYAML() {
	b.git.Commit("bad", map[string]string{"deploy.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [}\n"})
	b.deploy("bad", b.git.URL+"/bad", nil)
	b.why("bad", "is not live: build is blocked", "deploy.yaml", "next:    correct the file", "sluice build")
}

func (b *breakage) missingSecret() {
	b.deploy("login", b.git.URL+"/healthy", func(s *sourcev1.GitRepository, _ *kustomizev1.Kustomization) {
		s.Spec.SecretRef = &meta.LocalObjectReference{Name: "git-login"}
	})
	b.why("login", "is not live: source is blocked", "git-login", "next:    create")
}

func (b *breakage) refusedWebhook() {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(body), `"uid":"`)
		uid, _, _ := strings.Cut(rest, `"`)
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,`+
			`"allowed":false,"status":{"message":"ConfigMaps need an owner"}}}`, uid)
	}))
	b.Cleanup(server.Close)
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
	hook.Webhooks = []admissionv1.ValidatingWebhook{{Name: "owners.example.com", SideEffects: ptr.To(admissionv1.
		SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "refused"}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			corev1.LabelMetadataName: b.namespace}},
		ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{"configmaps"}}}}}}
	b.create(hook)
	b.Cleanup(func() {
		if err := b.Delete(context.Background(), hook); err != nil {
			b.Error(err)
		}
	})
	b.git.Commit("refused", map[string]string{"c.yaml": fmt.Sprintf(declaredConfig, "refused")})
	b.deploy("refused", b.git.URL+"/refused", nil)
	b.why("refused", "is not live: apply is blocked", "owners.example.com", "ConfigMaps need an owner",
		"next:    change the object in git")
}

// quota checks that the cause is known while the rollout progresses, long before its timeout, and that the message
// which names it is written a few times only.
func (b *breakage) quota() {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "no-pods"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	b.create(quota)
	b.git.Commit("large", map[string]string{"d.yaml": "apiVersion: apps/v1\nkind: Deployment\n" +
		"metadata: {name: large}\nspec: {selector: {matchLabels: {a: large}}, " +
		"template: {metadata: {labels: {a: large}}, spec: {containers: [{name: c, image: web:1}]}}}\n"})
	b.deploy("large", b.git.URL+"/large", func(_ *sourcev1.GitRepository, k *kustomizev1.Kustomization) {
		k.Spec.Wait, k.Spec.Timeout = true, ptr.To(meta.DurationOf(time.Hour))
	})
	key := client.ObjectKey{Namespace: b.namespace, Name: "large"}
	var created time.Time
	testenv.Eventually(b, "the Deployment", func() error {
		d := &appsv1.Deployment{}
		err := b.Get(b.Context(), key, d)
		created = d.CreationTimestamp.Time
		return err
	})
	testenv.Eventually(b, "the cause in Ready", func() error {
		k := &kustomizev1.Kustomization{}
		if err := b.Get(b.Context(), key, k); err != nil {
			return err
		}
		for _, c := range k.Status.Conditions {
			if c.Type == "Ready" && c.Status == metav1.ConditionUnknown &&
				strings.Contains(c.Message, "exceeded quota") {
				return nil
			}
		}
		return errors.New(fmt.Sprint(k.Status.Conditions))
	})
	b.Logf("the cause was in Ready %s after the Deployment was created", time.Since(created).Round(time.Second))
	b.why("large", "is not live: health is", "exceeded quota: no-pods", "next:    raise the ResourceQuota")
	b.why("Deployment/"+b.namespace+"/large", "is blocked", "exceeded quota: no-pods")
}

func (b *breakage) stuckDeletion() {
	b.git.Commit("stuck", map[string]string{"c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stuck, " +
		"finalizers: [example.com/backup]}\n"})
	b.deploy("stuck", b.git.URL+"/stuck", func(_ *sourcev1.GitRepository, k *kustomizev1.Kustomization) {
		k.Spec.DeletionPolicy = kustomizev1.DeletionPolicyWaitForTermination
	})
	b.why("stuck", "is live")
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "stuck"}}
	if err := b.Delete(b.Context(), k); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "stuck"}}
		err := b.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`)))
		if err != nil {
			b.Error(err)
		}
	})
	b.why("ks/stuck", "is not live: deletion is blocked", "ConfigMap/"+b.namespace+"/stuck", "next:")
	b.why("ConfigMap/"+b.namespace+"/stuck", "deletion requested", "finalizer 'example.com/backup'",
		"kubectl -n "+b.namespace+" edit configmap stuck")
}
