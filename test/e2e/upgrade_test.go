package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/static"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// Settings of the upgrade tests; CONTRIBUTING.md explains them.
const (
	upgradeFromEnv   = "SLUICE_UPGRADE_FROM"   // binary of the release before
	upgradeRecordEnv = "SLUICE_UPGRADE_RECORD" // directory to write its state to
)

// upgradeNamespace is the namespace of the objects. It is constant, because it is part of the recorded state.
const upgradeNamespace = "sluice-upgrade"

// upgrade is a namespace with an object of each kind, and the servers that they refer to.
type upgrade struct {
	*testing.T
	client  client.Client
	git     *testenv.Git
	storage string
	objects []*unstructured.Unstructured
}

// upgradeData has the objects, and what the release before wrote.
const upgradeData = "testdata/upgrade"

// withoutStatus are the kinds whose objects report no readiness.
var withoutStatus = []string{"Secret", "Provider", "Alert", "Lease", "ConfigMap"}

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{T: t, client: c, git: testenv.NewGit(t), storage: t.TempDir()}
	registry, bucket, charts := ociregistry.New(t), s3server.New(t), chartrepo.New(t)
	registry.Push("app", "1.0.0", nil, static.NewLayer(archive(t, "cm.yaml", configMap("oci")),
		"application/vnd.cncf.flux.content.v1.tar+gzip"))
	bucket.Put("app", map[string]string{"cm.yaml": configMap("bucket")})
	chart := chartrepo.NewChart("app", "1.0.0")
	chart.Templates[0].Data = []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-chart}\n")
	charts.Publish(chart)
	u.commit("one")
	declared, err := os.ReadFile(filepath.Join(upgradeData, "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	text := strings.NewReplacer("GIT/", u.git.URL+"/", "REGISTRY", registry.Host, "S3HOST", bucket.Endpoint,
		"S3USER", encoded(s3server.AccessKey), "S3PASSWORD", encoded(s3server.SecretKey), "HELMCA",
		encoded(string(charts.CA)), "HELMUSER", encoded(chartrepo.User), "HELMPASSWORD",
		encoded(chartrepo.Password), "url: HELM", "url: "+charts.URL).Replace(string(declared))
	if u.objects, err = manifest.Decode([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return u
}

func configMap(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-git}\ndata: {k: " + value + "}\n"
}

func (u *upgrade) commit(value string) string {
	u.Helper()
	return u.git.Commit("app", map[string]string{"cm.yaml": configMap(value)})
}

// install applies the definitions of a binary.
func (u *upgrade) install(binary string) {
	u.Helper()
	out, err := exec.Command(binary, "install", "--crds-only", "--kubeconfig", testenv.Kubeconfig(u.T)).CombinedOutput()
	if err != nil {
		u.Fatalf("install: %v\n%s", err, out)
	}
}

// create creates the namespace and all objects.
func (u *upgrade) create() {
	u.Helper()
	u.namespace()
	for _, o := range u.objects {
		o.SetNamespace(upgradeNamespace)
		if err := u.client.Create(u.Context(), o.DeepCopy()); err != nil {
			u.Fatalf("%s: %v", nameOf(o), err)
		}
	}
}

// namespace creates the namespace, and deletes it after the test.
func (u *upgrade) namespace() {
	u.Helper()
	namespace := &corev1.Namespace{}
	namespace.Name = upgradeNamespace
	testenv.Eventually(u.T, "the namespace is created", func() error {
		return u.client.Create(context.Background(), namespace.DeepCopy())
	})
	u.Cleanup(func() {
		if err := u.client.Delete(context.Background(), namespace); err != nil {
			u.Error(err)
		}
	})
}

func nameOf(o *unstructured.Unstructured) string { return o.GetKind() + "/" + o.GetName() }

// run runs a binary while use runs. It fails the test if the binary ends by itself or reports a panic.
func (u *upgrade) run(binary string, use func()) {
	u.Helper()
	cmd := exec.Command(binary, "controller", "--kubeconfig", testenv.Kubeconfig(u.T), "-n", upgradeNamespace,
		"--watch-all-namespaces=false", "--storage-path", u.storage, "--storage-addr", "127.0.0.1:0",
		"--metrics-addr", "0", "--health-addr", "0", "--receiverAddr", "0", "--events-addr", "0", "--images-addr", "0",
		"--min-retry-delay", "50ms", "--enable-leader-election", "--log-level", "error")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		u.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have stopped already
	}()
	use()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		u.Errorf("%s ended by itself: %v\n%s", binary, err, log.String())
	}
	if err := cmd.Wait(); err != nil {
		u.Errorf("%s: %v\n%s", binary, err, log.String())
	}
	if strings.Contains(log.String(), "panic") {
		u.Errorf("%s: %s", binary, log.String())
	}
}

// pass requests a reconciliation of all objects and waits until it is done and all are ready. It returns the objects.
func (u *upgrade) pass(what string) map[string]*unstructured.Unstructured {
	u.Helper()
	request := time.Now().Format(time.RFC3339Nano)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, request)
	found := map[string]*unstructured.Unstructured{}
	for _, o := range u.objects {
		if err := u.client.Patch(u.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType,
			[]byte(patch))); err != nil {
			u.Fatal(err)
		}
	}
	testenv.Eventually(u.T, what, func() error {
		for _, o := range u.objects {
			got := o.DeepCopy()
			if err := u.client.Get(context.Background(), client.ObjectKeyFromObject(o), got); err != nil {
				return err
			}
			if err := isDone(got, request); err != nil {
				return err
			}
			found[nameOf(o)] = got
		}
		return nil
	})
	return found
}

// isDone returns an error unless an object is ready, and handled the request if its kind does.
func isDone(o *unstructured.Unstructured, request string) error {
	if slices.Contains(withoutStatus, o.GetKind()) {
		return nil
	}
	handled, _, err := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
	if err != nil || handled != request && o.GetKind() != "ImagePolicy" && o.GetKind() != "Gate" {
		return errors.Join(err, fmt.Errorf("%s handled %q, want %q", nameOf(o), handled, request))
	}
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if c["type"] == "Ready" && c["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready: %v", nameOf(o), conditions)
}

// keeps reports whether a value of a status has the same content as before. Objects may gain fields in a newer version.
func keeps(before, after any) bool {
	switch b := before.(type) {
	case map[string]any:
		a, _ := after.(map[string]any)
		for key, value := range b {
			if !keeps(value, a[key]) {
				return false
			}
		}
		return a != nil
	case []any:
		a, ok := after.([]any)
		for i := range min(len(a), len(b)) {
			ok = ok && keeps(b[i], a[i])
		}
		return ok && len(a) == len(b)
	}
	return fmt.Sprint(before) == fmt.Sprint(after)
}

// sameState checks that objects have the same artifacts, revisions and inventories.
func (u *upgrade) sameState(what string, before, after map[string]*unstructured.Unstructured) {
	u.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		for _, path := range [][]string{{"status", "artifact", "digest"}, {"status", "artifact", "revision"},
			{"status", "lastAppliedRevision"}, {"status", "inventory"}, {"status", "latestRef"},
			{"status", "history"}, {"status", "webhookPath"}} {
			a, _, _ := unstructured.NestedFieldNoCopy(before[name].Object, path...) // absent is a value
			b, _, _ := unstructured.NestedFieldNoCopy(after[name].Object, path...)
			if path[1] == "history" && before[name].GetKind() != "HelmRelease" {
				continue
			}
			if !keeps(a, b) {
				u.Errorf("%s: %s of %s was %v, is %v", what, strings.Join(path, "."), name, a, b)
			}
		}
	}
}

// applied returns the ConfigMaps that were applied, by name, as uid and resource version.
func (u *upgrade) applied(want string) map[string]string {
	u.Helper()
	versions := map[string]string{}
	testenv.Eventually(u.T, "the value "+want+" is applied", func() error {
		for _, name := range []string{"from-git", "from-chart"} {
			var cm corev1.ConfigMap
			key := types.NamespacedName{Namespace: upgradeNamespace, Name: name}
			if err := u.client.Get(context.Background(), key, &cm); err != nil {
				return err
			}
			if name == "from-git" && cm.Data["k"] != want {
				return fmt.Errorf("it is %q", cm.Data["k"])
			}
			versions[name] = string(cm.UID) + " " + cm.ResourceVersion
		}
		return nil
	})
	return versions
}

// TestUpgradeAndDowngrade runs the release before, this build, and the release before again, on the same objects and
// the same directory. Nothing that was applied may change, and each must apply new commits.
func TestUpgradeAndDowngrade(t *testing.T) {
	old := os.Getenv(upgradeFromEnv)
	if old == "" {
		t.Skip("set " + upgradeFromEnv + " to the binary of the release before, see CONTRIBUTING.md")
	}
	binary, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	u := newUpgrade(t)
	u.install(old)
	u.create()
	var state map[string]*unstructured.Unstructured
	var applied map[string]string
	u.run(old, func() {
		state = u.pass("all objects are ready with the release before")
		applied = u.applied("one")
	})
	if dir := os.Getenv(upgradeRecordEnv); dir != "" {
		u.record(dir, state)
	}
	for i, step := range []struct{ what, binary, value string }{
		{what: "after the upgrade", binary: binary, value: "two"},
		{what: "after the downgrade", binary: old, value: "three"},
		{what: "after the second upgrade", binary: binary, value: "four"},
	} {
		if i == 0 {
			u.install(binary) // the definitions stay when the binary goes back
		}
		u.run(step.binary, func() {
			now := u.pass("all objects are ready " + step.what)
			u.sameState(step.what, state, now)
			if before := applied; !maps.Equal(before, u.applied(last(i))) {
				t.Errorf("%s, applied objects were written", step.what)
			}
			u.commit(step.value)
			state = u.pass("all objects are ready after a commit")
			applied = u.applied(step.value)
			state = u.pass("all objects are ready")
		})
	}
}

// last returns the value that was applied before a step.
func last(step int) string { return []string{"one", "two", "three"}[step] }

// record writes the state of the release before: the directory, and the objects with their status.
func (u *upgrade) record(dir string, state map[string]*unstructured.Unstructured) {
	u.Helper()
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if err := manifest.Encode(&out, state[name]); err != nil {
			u.Fatal(err)
		}
	}
	if err := manifest.Encode(&out, u.written()...); err != nil {
		u.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		u.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), out.Bytes(), 0o600); err != nil {
		u.Fatal(err)
	}
	archive, err := filepath.Abs(filepath.Join(dir, "storage.tar.gz"))
	if err != nil {
		u.Fatal(err)
	}
	if text, err := exec.Command("tar", "-czf", archive, "-C", u.storage, ".").CombinedOutput(); err != nil {
		u.Fatalf("tar: %v\n%s", err, text)
	}
}

// written returns what the controllers wrote in addition to statuses: releases of Helm with what they installed, the
// key of seals, and the lease. What a Kustomization applied is left out, so that it must be applied again.
func (u *upgrade) written() []*unstructured.Unstructured {
	u.Helper()
	var all []*unstructured.Unstructured
	for _, kind := range []string{"v1 Secret", "v1 ConfigMap", "coordination.k8s.io/v1 Lease"} {
		list := &unstructured.UnstructuredList{}
		version, name, _ := strings.Cut(kind, " ")
		list.SetAPIVersion(version)
		list.SetKind(name + "List")
		if err := u.client.List(u.Context(), list, client.InNamespace(upgradeNamespace)); err != nil {
			u.Fatal(err)
		}
		for _, o := range list.Items {
			if !slices.Contains([]string{"keys", "from-git", "kube-root-ca.crt"}, o.GetName()) {
				all = append(all, &o)
			}
		}
	}
	return all
}
