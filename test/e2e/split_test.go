package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// Limits of the processes of the test.
const (
	splitCommand = 5 * time.Minute
	splitStop    = time.Minute
)

// split is an installation with a Deployment for each controller.
type split struct {
	*testing.T
	client.Client
	binary, namespace, team string
}

// TestSplitControllers runs each Deployment of `install --split` as a process of its own, with its arguments and the
// rights of its account. A release that a Kustomization behind a gate declares becomes Ready once the gate opens.
func TestSplitControllers(t *testing.T) {
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	s := &split{T: t, Client: c, binary: binary, namespace: testenv.Namespace(t), team: testenv.Namespace(t)}
	s.sluice("install", "--split", "-n", s.namespace)
	deployments := &appsv1.DeploymentList{}
	if err := c.List(t.Context(), deployments, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(deployments.Items) != len(options.AllControllers) {
		t.Fatalf("%d Deployments are installed", len(deployments.Items))
	}
	for i := range deployments.Items {
		s.start(&deployments.Items[i])
	}
	s.declare()
	k := &kustomizev1.Kustomization{}
	key := client.ObjectKey{Namespace: s.team, Name: "app"}
	testenv.Eventually(t, "the gate holds the Kustomization", func() error {
		if err := c.Get(t.Context(), key, k); err != nil || k.Status.Pending == nil {
			return fmt.Errorf("%+v, %w", k.Status.Conditions, err)
		}
		return nil
	})
	if k.Status.LastAppliedRevision != "" {
		t.Errorf("%s was applied although the gate is closed", k.Status.LastAppliedRevision)
	}
	s.sluice("gate", "open", "release", "--for", "1h", "-n", s.team)
	testenv.Eventually(t, "the release is Ready", func() error {
		if err := c.Get(t.Context(), key, k); err != nil || !reconcile.IsReady(k) {
			return fmt.Errorf("Kustomization: %+v, %w", k.Status.Conditions, err)
		}
		r := &helmv2.HelmRelease{}
		if err := c.Get(t.Context(), key, r); err != nil || !reconcile.IsReady(r) {
			return fmt.Errorf("HelmRelease: %+v, %w", r.Status.Conditions, err)
		}
		return c.Get(t.Context(), client.ObjectKey{Namespace: s.team, Name: "from-chart"}, &corev1.ConfigMap{})
	})
}

// sluice runs a command as administrator.
func (s *split) sluice(args ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), splitCommand)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.binary, append(args, "--kubeconfig", testenv.Kubeconfig(s))...).
		CombinedOutput()
	if err != nil {
		s.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// start runs the container of a Deployment until the test ends. Its addresses are on this machine.
func (s *split) start(d *appsv1.Deployment) {
	s.Helper()
	pod := d.Spec.Template.Spec
	args := append(append([]string{}, pod.Containers[0].Args...), "--kubeconfig", s.kubeconfig(pod.ServiceAccountName),
		"--runtime-namespace", s.namespace, "--storage-path", s.TempDir(), "--storage-addr", "127.0.0.1:0",
		"--storage-adv-addr", "", "--metrics-addr", "0", "--health-addr", "0", "--receiverAddr", "0",
		"--events-addr", "0", "--images-addr", "0", "--min-retry-delay", "50ms", "--log-level", "error")
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	cmd := exec.CommandContext(ctx, s.binary, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, splitStop
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the state of the process is reported below
	}()
	s.Cleanup(func() {
		select {
		case <-ended:
			s.Errorf("%s ended by itself", d.Name)
		default:
		}
		cancel()
		<-ended
		if s.Failed() || strings.Contains(log.String(), "panic") {
			s.Errorf("%s: %s\n%s", d.Name, cmd.ProcessState, log.String())
		}
	})
}

// kubeconfig returns a file with the access of an account.
func (s *split) kubeconfig(account string) string {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account}}
	if err := s.SubResource("token").Create(s.Context(), sa, request); err != nil {
		s.Fatal(err)
	}
	all, err := clientcmd.LoadFromFile(testenv.Kubeconfig(s))
	if err != nil {
		s.Fatal(err)
	}
	for name := range all.AuthInfos {
		all.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	file := filepath.Join(s.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*all, file); err != nil {
		s.Fatal(err)
	}
	return file
}

const splitRelease = `apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: app}
spec:
  interval: 1h
  chart: {spec: {chart: ./chart, sourceRef: {kind: GitRepository, name: app}}}
`

// declare creates the source, a closed gate, and a Kustomization behind it.
func (s *split) declare() {
	s.Helper()
	git := testenv.NewGit(s)
	git.Commit("app", map[string]string{"deploy/release.yaml": splitRelease,
		"chart/Chart.yaml":        "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		"chart/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-chart}\n"})
	gate := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.team, Name: "release"},
		Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: time.Minute}, Default: gatingv1.Closed}}
	for _, o := range append(declarations(s.team, git.URL), gate) {
		if k, ok := o.(*kustomizev1.Kustomization); ok {
			k.Spec.Path, k.Spec.Gates = "./deploy", []meta.GateReference{{Name: "release"}}
		}
		if err := s.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}
