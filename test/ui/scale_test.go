package ui

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

var objects = flag.Int("objects", 0, "measure the UI with this many objects; 0 skips the measurement")

const (
	scaleNamespaces = 50
	scaleEntries    = 5 // in the inventory of an object
	scaleWriters    = 16
	scaleTimeout    = 25 * time.Minute
)

// TestScale prints what the UI costs with many objects: memory of the server, first paint, and the time from a change
// in the cluster to the screen. It asserts no time: docs/ui.md records the numbers with the load of the machine.
func TestScale(t *testing.T) {
	if *objects == 0 || *browser == "" {
		t.Skip("measures with -objects and -browser")
	}
	ctx, cancel := context.WithTimeout(t.Context(), scaleTimeout)
	defer cancel()
	cfg := testenv.Cluster(t)
	definitions.Install(t, cfg)
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &system.System{T: t, Client: c}
	b := &bench{world: &world{Images: &system.Images{System: s}}, kubeconfig: testenv.Kubeconfig(t)}
	empty := b.measure(ctx, "empty")
	if err := fill(ctx, c, *objects); err != nil {
		t.Fatal(err)
	}
	full := b.measure(ctx, fmt.Sprintf("%d objects", *objects))
	t.Logf("memory above none: %d KiB", full-empty)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("load: %s", load)
}

// measure starts a server, lets a browser measure, and returns the memory of the server in KiB.
func (b *bench) measure(ctx context.Context, name string) (memory int) {
	b.Helper()
	if err := b.startUI(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = b.ui.stop() }()
	where, err := json.Marshal(map[string]string{"control": b.serveTouch(ctx), "address": b.ui.address,
		"browser": *browser})
	if err != nil {
		b.Fatal(err)
	}
	node := exec.CommandContext(ctx, "node", "browser/scale.mjs")
	node.Env = append(os.Environ(), "SLUICE_UI_WORLD="+string(where))
	node.WaitDelay = 10 * time.Second
	out, err := node.CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v\n%s", name, err, out)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.ui.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(rest, &memory); err != nil {
		b.Fatal(err)
	}
	b.Logf("%s: memory of the server %d KiB, browser: %s", name, memory, out)
	return memory
}

// serveTouch lets the browser change an object.
func (b *bench) serveTouch(ctx context.Context) string {
	number := 0
	return serve(b, map[string]func() (string, error){"touch": func() (string, error) {
		number++
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "scale-0"}}
		if err := client.IgnoreAlreadyExists(b.Client.Create(ctx, ns)); err != nil {
			return "", err
		}
		name := fmt.Sprintf("touched-%d-%d", time.Now().Unix(), number)
		return name, b.Client.Create(ctx, scaleObject("scale-0", name))
	}})
}

// fill creates objects with statuses as controllers write them.
func fill(ctx context.Context, c client.Client, count int) error {
	for n := range scaleNamespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("scale-%d", n)}}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, namespace)); err != nil {
			return err
		}
	}
	group, ctx := guard.GroupWithContext(ctx, "objects to measure with")
	group.SetLimit(scaleWriters)
	for n := range count {
		group.Go(func() error {
			o := scaleObject(fmt.Sprintf("scale-%d", n%scaleNamespaces), fmt.Sprintf("app-%d", n))
			status := o.Status
			if err := c.Create(ctx, o); err != nil {
				return err
			}
			o.Status = status
			return c.Status().Update(ctx, o)
		})
	}
	return group.Wait()
}

// scaleObject returns a Kustomization that is suspended, with a status.
func scaleObject(namespace, name string) *kustomizev1.Kustomization {
	o := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: kustomizev1.KustomizationSpec{Suspend: true, Interval: meta.DurationOf(time.Hour), Prune: true,
			Path: "./apps/" + name, SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
				NamespacedName: meta.NamespacedName{Name: "fleet"}}}}
	revision := "main@sha1:0123456789abcdef0123456789abcdef01234567"
	o.Status.LastAppliedRevision = revision
	o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue,
		Reason: "ReconciliationSucceeded", Message: "Applied revision: " + revision, LastTransitionTime: metav1.Now()}}
	now := meta.TimeOf(time.Now())
	o.Status.History = []kustomizev1.Snapshot{{Reconciliation: meta.Reconciliation{
		Digest: "sha256:" + strings.Repeat("a", 64), FirstReconciled: now,
		LastReconciled: now, LastReconciledStatus: "ReconciliationSucceeded", TotalReconciliations: 1,
		Metadata: map[string]string{"revision": revision}}}}
	o.Status.Inventory = &meta.ResourceInventory{}
	for n := range scaleEntries {
		o.Status.Inventory.Entries = append(o.Status.Inventory.Entries, meta.ResourceRef{
			ID: fmt.Sprintf("%s_%s-%d_apps_Deployment", namespace, name, n), Version: "v1"})
	}
	return o
}
