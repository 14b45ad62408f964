package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// writesOfADay is how many objects others create between a backup and its restore.
const writesOfADay = 200

// disasterBucket is where the controller of the test keeps artifacts.
const disasterBucket = "artifacts"

// disaster is a cluster of its own with a controller, of which parts are lost. Two Kustomizations apply objects; the
// change of a third one waits at a closed gate.
type disaster struct {
	*tenant
	cluster    *mortalCluster
	controller *controller
	s3         *s3server.Server
	storage    string
	head       string
	wanted     map[string]string // values of ConfigMaps, by name
}

// TestDisasters loses what docs/disaster-recovery.md says can be lost, one after the other: the volume, the bucket, a
// day of etcd while the controller is stopped and while it runs, and the cluster. Afterwards the cluster has what git
// declares, nothing was applied twice, nothing was deleted that git declares, and the gate is closed.
func TestDisasters(t *testing.T) {
	if !*isFull {
		testenv.Full(t)
	}
	d := &disaster{cluster: newMortalCluster(t), s3: s3server.New(t), storage: t.TempDir()}
	d.s3.MakeBucket(disasterBucket)
	d.tenant = &tenant{T: t, git: testenv.NewGit(t), namespace: "tenant", repo: "tenant"}
	d.commitFiles(map[string]string{"a": "1", "old": "1", "b": "1"})
	d.build()
	d.completes("the first commit")

	d.loseVolume()
	d.loseBucket()
	d.restoreYesterday()
	d.restoreBelow()
	d.loseCluster()
}

// commitFiles commits ConfigMaps: those whose names begin with b for one Kustomization, the others for another one.
func (d *disaster) commitFiles(values map[string]string) {
	d.Helper()
	files := map[string]string{"guarded/guarded.yaml": configMap("guarded", fmt.Sprint(values))}
	for name := range d.wanted {
		files[d.path(name)] = testenv.Delete
	}
	for name, value := range values {
		files[d.path(name)] = configMap(name, value)
	}
	d.wanted = values
	d.head = d.git.Commit(d.repo, files)
}

func (d *disaster) path(name string) string {
	if strings.HasPrefix(name, "b") {
		return "second/" + name + ".yaml"
	}
	return "first/" + name + ".yaml"
}

// build installs the definitions into the empty cluster, declares the objects and starts the controller, as a bootstrap
// does.
func (d *disaster) build() {
	d.Helper()
	install(d.T, d.cluster.kubeconfig)
	config, err := clientcmd.BuildConfigFromFlags("", d.cluster.kubeconfig)
	if err != nil {
		d.Fatal(err)
	}
	if d.client, err = client.New(config, client.Options{Scheme: kubeclient.Scheme()}); err != nil {
		d.Fatal(err)
	}
	d.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespace}}, d.source("app"),
		&gatingv1.Gate{ObjectMeta: d.named("release"), Spec: gatingv1.GateSpec{Interval: hour,
			Default: gatingv1.Closed}})
	for _, name := range []string{"first", "second", "guarded"} {
		d.create(d.app(name, func(k *kustomizev1.Kustomization) {
			k.Spec.Path = "./" + name
			if name == "guarded" {
				k.Spec.Gates = []meta.GateReference{{Name: "release"}}
			}
		}))
	}
	if d.controller != nil {
		d.controller.launch()
		return
	}
	d.controller = start(d.T, settings{namespace: d.namespace, kubeconfig: d.cluster.kubeconfig, storage: d.storage,
		flags: []string{"--storage-backend-s3-endpoint", d.s3.URL, "--storage-backend-s3-bucket", disasterBucket},
		env:   []string{"AWS_ACCESS_KEY_ID=" + s3server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3server.SecretKey}})
}

// completes waits until the running process has reconciled all objects at the last commit.
func (d *disaster) completes(what string) {
	d.Helper()
	d.fetch()
	requested := map[string]string{}
	for _, name := range []string{"first", "second", "guarded"} {
		requested[name] = d.request(&kustomizev1.Kustomization{}, name)
	}
	testenv.Eventually(d, what+" is applied", func() error {
		d.controller.mustLive()
		for name, at := range requested {
			k := &kustomizev1.Kustomization{}
			if err := d.client.Get(context.Background(), types.NamespacedName{Namespace: d.namespace, Name: name},
				k); err != nil {
				return err
			}
			has := k.Status.LastAppliedRevision
			if name == "guarded" {
				has = ""
				if p := k.Status.Pending; p != nil && k.Status.LastAppliedRevision == "" {
					has = p.Revision
				}
			}
			if !strings.HasSuffix(has, d.head) || k.Status.LastHandledReconcileAt != at ||
				name != "guarded" && !reconcile.IsReady(k) {
				return fmt.Errorf("%s: %s, %+v", name, has, k.Status.Conditions)
			}
		}
		return d.hasObjects(d.wanted)
	})
}

// loses runs a loss while the controller is stopped, and completes. It fails the test unless exactly the named objects
// were applied, each once, and exactly those of deleted were deleted.
func (d *disaster) loses(what string, lose func(), applied, deleted []string) {
	d.Helper()
	d.Log(what)
	d.controller.stop(syscall.SIGTERM)
	since := testenv.OpenAuditLog(d, d.cluster.audit)
	lose()
	d.controller.launch()
	d.completes("all of it, after this was lost: " + what)
	count := map[string]int{}
	for _, verb := range []string{"patch", "create", "update", "delete", "deletecollection"} {
		for _, r := range since.Requests(d, testenv.Request{Verb: verb, Resource: "configmaps"}) {
			if r.Name != "kube-root-ca.crt" && r.Code/100 == 2 && !strings.Contains(r.URI, "dryRun=All") {
				count[verb+" "+r.Name]++
			}
		}
	}
	for _, name := range applied {
		count["patch "+name]--
	}
	for _, name := range deleted {
		count["delete "+name]--
	}
	for request, n := range count {
		if n != 0 {
			d.Errorf("%s: %+d × %s", what, n, request)
		}
	}
}

func (d *disaster) loseVolume() {
	d.loses("the volume", d.emptyVolume, nil, nil)
}

func (d *disaster) emptyVolume() {
	entries, err := os.ReadDir(d.storage)
	if err != nil || len(entries) == 0 {
		d.Fatalf("the volume has %d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(d.storage+"/"+e.Name()))
	}
	if err != nil {
		d.Fatal(err)
	}
}

// loseBucket empties the bucket while the controller runs, while it is stopped, and again together with the volume.
func (d *disaster) loseBucket() {
	d.emptyBucket()
	d.commitFiles(map[string]string{"a": "2", "old": "1", "b": "1"})
	d.completes("a commit, after the bucket was emptied")
	d.loses("the bucket", d.emptyBucket, nil, nil)
	d.loses("the bucket and the volume", func() {
		d.emptyBucket() // it has the artifacts again
		d.emptyVolume()
	}, nil, nil)
}

// emptyBucket removes the artifacts, which the controller must have stored.
func (d *disaster) emptyBucket() {
	d.Helper()
	count := 0
	for o := range d.s3.Client.ListObjects(context.Background(), disasterBucket, minio.ListObjectsOptions{
		Recursive: true}) {
		err := o.Err
		if err == nil {
			err = d.s3.Client.RemoveObject(context.Background(), disasterBucket, o.Key, minio.RemoveObjectOptions{})
		}
		if err != nil {
			d.Fatal(err)
		}
		count++
	}
	if count == 0 {
		d.Fatal("the bucket was empty")
	}
}

// backUp copies etcd, and commits what changed, added and removed objects since.
func (d *disaster) backUp(n int) (backup string) {
	d.Helper()
	backup = d.TempDir() + "/backup"
	d.controller.stop(syscall.SIGTERM)
	d.cluster.kill()
	if err := errors.Join(os.RemoveAll(d.cluster.dir+"/etcd/etcd.sock"), // not a file
		os.CopyFS(backup, os.DirFS(d.cluster.dir))); err != nil {
		d.Fatal(err)
	}
	d.cluster.launch()
	d.controller.launch()
	d.commitFiles(map[string]string{"a": fmt.Sprint(n), fmt.Sprint("new-", n): "1", "b": "1",
		fmt.Sprint("b-", n): "1"})
	d.completes("the commit of today")
	for i := range writesOfADay {
		if err := d.client.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: fmt.Sprint("other-", n, "-", i)}}); err != nil {
			d.Fatal(err)
		}
	}
	return backup
}

// restore puts a copy of etcd back, which must have an object that was removed since.
func (d *disaster) restore(backup, removed string) {
	d.Helper()
	d.cluster.kill()
	if err := errors.Join(os.RemoveAll(d.cluster.dir), os.CopyFS(d.cluster.dir, os.DirFS(backup))); err != nil {
		d.Fatal(err)
	}
	d.cluster.launch()
	if v, err := d.value(removed); err != nil || v != "1" {
		d.Fatalf("the copy is not older: %q, %v", v, err)
	}
}

// restoreYesterday puts a copy of etcd back that is older than the last commit, while the controller is stopped.
func (d *disaster) restoreYesterday() {
	const n = 3
	backup := d.backUp(n)
	d.loses("a day of etcd", func() { d.restore(backup, "old") }, []string{"a", "new-3", "b-3"}, []string{"old"})
}

// restoreBelow does the same while the controller runs. It must notice, and end by itself to be started again.
func (d *disaster) restoreBelow() {
	const n = 4
	backup := d.backUp(n)
	d.loses("a day of etcd, below a running controller", func() {
		d.controller.launch()
		d.controller.runs()
		d.completes("the commit of today, by the process that runs during the restore")
		d.restore(backup, "new-3")
		select {
		case <-d.controller.ended:
			d.controller.stopped = true
		case <-time.After(stopTime):
			d.controller.stop(syscall.SIGKILL)
			d.Errorf("the controller runs %s after etcd was restored", stopTime)
		}
		if log := d.controller.tail(30); !strings.Contains(log, "etcd was restored") {
			d.Errorf("the controller does not say why it ended:\n%s", log)
		}
	}, []string{"a", "new-4", "b-4"}, []string{"new-3", "b-3"})
}

// loseCluster makes a new cluster from the declarations. The volume and the bucket are from the one that is lost.
func (d *disaster) loseCluster() {
	d.Log("the cluster")
	d.controller.stop(syscall.SIGTERM)
	d.cluster.kill()
	if err := os.RemoveAll(d.cluster.dir); err != nil {
		d.Fatal(err)
	}
	d.cluster.launch()
	d.build()
	d.completes("everything, in a new cluster")
}
