package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func wantHint(t *testing.T, err error, want string) {
	t.Helper()
	if f := fault.As(err); f == nil || f.Hint != want {
		t.Errorf("got %v, want the hint %q", err, want)
	}
}

func TestHintFitsTheErrorOfTheCluster(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for want, err := range map[string]error{
		"Use an account that may administer the cluster, with --context or --as": apierrors.NewForbidden(secrets, "s",
			errors.New(`User "u" cannot create resource "secrets" in API group ""`)),
		"": apierrors.NewForbidden(secrets, "s", errors.New("exceeded quota: small")),
		"The cluster rejected the credentials: log in again, or choose another " +
			"--context": apierrors.NewUnauthorized("x"),
		"The definitions are not installed: run the command again": &apimeta.NoKindMatchError{
			GroupKind: schema.GroupKind{Kind: "GitRepository"}},
		"Check that the cluster is running, and that --context is correct": &net.OpError{Op: "dial",
			Err: errors.New("refused")},
	} {
		wantHint(t, clusterFault("cannot apply", err), want)
	}
}

func TestHintOfAWaitSaysThatTheCommandContinues(t *testing.T) {
	r, key := &run{}, types.NamespacedName{Namespace: "sluice-system", Name: "sluice-system"}
	for _, c := range []struct {
		last string
		err  error
		want string
	}{
		{last: "no such branch", err: errStalled, want: "Correct this, and run the command again: it continues here"},
		{last: "not ready", err: context.DeadlineExceeded, want: "Correct this and run the command again: it " +
			"continues here. Raise --timeout if it only needs time"},
		{err: context.DeadlineExceeded,
			want: "Look for the cause with kubectl -n sluice-system get pods, and run the " +
				"command again: it continues here"},
	} {
		wantHint(t, r.explainWait("GitRepository", key, c.last, c.err), c.want)
	}
}

// silent is an output whose questions are answered with no.
type silent struct{}

func (silent) Step(string, ...any) {}
func (silent) Done(string, ...any) {}
func (silent) Warn(string, ...any) {}
func (silent) Live(string, ...any) {}
func (silent) Confirm(string) bool { return false }

// cluster is a client of some objects, by type; others do not exist. It accepts all writes.
type cluster struct {
	client.Client
	objects []client.Object
}

func (c cluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range c.objects {
		if reflect.TypeOf(o) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c cluster) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

func (c cluster) Update(context.Context, client.Object, ...client.UpdateOption) error { return nil }

func (c cluster) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

func (c cluster) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

// newRun returns a run for branch main, path clusters/prod and namespace sluice.
func newRun(objects ...client.Object) *run {
	r := &run{}
	r.Namespace, r.Branch, r.Path, r.Interval, r.Output = "sluice", "main", "clusters/prod", time.Minute, silent{}
	r.Client = cluster{objects: objects}
	return r
}

func TestHintsOfOptions(t *testing.T) {
	t.Parallel()
	o := &Options{Branch: "a..b"}
	wantHint(t, o.check(), "Set --branch to the name of a branch, such as main")
	o = &Options{Branch: "main", Path: "../outside"}
	wantHint(t, o.check(), "Use a path in the repository, such as clusters/production")
	h := &Host{SSHHostname: ":22"}
	_, err := h.sshURL("")
	wantHint(t, err, "Set --ssh-hostname to a name or address, and a port if it is not 22")
}

func TestHintsOfTheStateOfTheCluster(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	r := newRun(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}})
	wantHint(t, r.inspect(t.Context()), "Wait until it is gone, and run the command again")
	r = newRun(&kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{Path: "./clusters/other"}})
	wantHint(t, r.inspect(t.Context()), "Set --path=./clusters/other, or --force to move the cluster")
	wantHint(t, r.applySync(t.Context()), "Remove patches of kustomization.yaml that rename or delete them")

	at := metav1.ObjectMeta{Namespace: "sluice", Name: "sluice"}
	r = newRun(&sourcev1.GitRepository{ObjectMeta: at}, &kustomizev1.Kustomization{ObjectMeta: at})
	r.objects = []*unstructured.Unstructured{{Object: map[string]any{"kind": "GitRepository",
		"metadata": map[string]any{"namespace": "sluice", "name": "sluice"}, "spec": map[string]any{"url": ""}}}}
	r.Client = reconciles{r.Client.(cluster)}
	wantHint(t, r.wait(t.Context()), "Make sure that path './clusters/prod' includes directory 'sluice'")
}

// reconciles is a cluster whose objects are always reconciled.
type reconciles struct{ cluster }

func (c reconciles) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	var change struct {
		Metadata struct{ Annotations map[string]string }
	}
	data, err := patch.Data(o)
	if err == nil {
		err = json.Unmarshal(data, &change)
	}
	for _, o := range c.objects {
		ready := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
		switch o := o.(type) {
		case *sourcev1.GitRepository:
			o.Status.Artifact, o.Status.Conditions = &meta.Artifact{Revision: "main@sha1:1"}, ready
			o.Status.LastHandledReconcileAt = change.Metadata.Annotations[meta.ReconcileRequestAnnotation]
		case *kustomizev1.Kustomization:
			o.Status.LastAppliedRevision, o.Status.Conditions = "main@sha1:1", ready
			o.Status.LastHandledReconcileAt = change.Metadata.Annotations[meta.ReconcileRequestAnnotation]
		}
	}
	return err
}

func TestHintsOfLogins(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "ssh://git@" + listener.Addr().String() + "/app"
	if err := listener.Close(); err != nil { // nothing listens there any more
		t.Fatal(err)
	}
	r := newRun()
	wantHint(t, r.findKnownHosts(t.Context(), address),
		"Correct the host or the port in --url, or check that this machine can reach it")
	r.Repository.Host = &Host{}
	wantHint(t, r.findKnownHosts(t.Context(), address),
		"Set --ssh-hostname to the name and port of the SSH server, or check that this machine can reach it")
	refused := fault.New(meta.AuthenticationFailedReason, "refused").WithHint("Set spec.secretRef")
	wantHint(t, r.explainGit(refused), "Use a token that may write to the repository")

	r = newRun()
	r.Login = Login{Kind: DeployKey, Key: sshkey.Spec{Algorithm: "rsa", Bits: 1}}
	wantHint(t, r.storeLogin(t.Context()), "Correct --ssh-key-algorithm, --ssh-ecdsa-curve or --ssh-rsa-bits")
	r.Login.Key = sshkey.Spec{Algorithm: "ed25519"}
	wantHint(t, r.storeLogin(t.Context()), "Add the public key above to the repository, and run the command again")
}

func TestHintsOfTheBranch(t *testing.T) {
	t.Parallel()
	server := testenv.NewGit(t)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"list": {files: map[string]string{"clusters/prod/sluice/kustomization.yaml": "resources: {a: b}\n"},
			want: "Correct the file in branch 'main', or remove it"},
		"parent": {files: map[string]string{"clusters/prod/kustomization.yaml": "resources: [apps]\n"},
			want: "Add 'sluice' to its resources and push, then run the command again"},
		"directory": {files: map[string]string{"clusters/prod/sluice/kustomization.yaml/a": "x"},
			want: "Replace it by a file and push, then run the command again"},
		"patch": {files: map[string]string{"clusters/prod/sluice/kustomization.yaml": "patches: [{path: none.yaml}]\n"},
			want: "Correct its files and push, then run the command again"},
	} {
		server.Commit(name, c.files)
		r := newRun()
		r.Components = []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: sluice}\n")
		r.Commit.Author = git.Signature{Name: "a", Email: "a@example.com"}
		r.view = git.NewMirrors(t.TempDir()).View(git.WriterPrefix + "bootstrap")
		r.push = git.Remote{URL: server.URL + "/" + name, Egress: &egress.Policy{}}
		wantHint(t, r.commit(t.Context()), c.want)
	}
}

func TestHintsOfGitNameFlagsInsteadOfFields(t *testing.T) {
	r := &run{}
	r.Branch = "main"
	login := func() error {
		return fault.New(meta.AuthenticationFailedReason, "refused").WithHint("Set spec.secretRef")
	}
	wantHint(t, r.explainGit(login()), "Check the username, the password or key, and that it may push to the "+
		"repository")
	wantHint(t, r.explainGit(fault.New("Failed", "declined").WithHint("Check the branch's protection")),
		"Allow this login to push to branch 'main', or bootstrap another branch with --branch and merge it")
	wantHint(t, r.explainGit(fault.New("Failed", "not found").WithHint("Check spec.url")),
		"Check the URL of the repository, and the network")
}
