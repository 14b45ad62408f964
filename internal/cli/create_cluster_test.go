package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// setReady sets all objects of a namespace Ready, in place of the controllers, until the test ends.
func setReady(t *testing.T, namespace string) {
	t.Helper()
	c, err := client.NewWithWatch(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	for _, k := range kind.All() {
		if objectKinds[k.Name()] == nil {
			continue
		}
		watching.Go(func() {
			err := cluster.Watch(ctx, c, k, client.ListOptions{Namespace: namespace},
				func(event watch.EventType, o reconcile.Object) (bool, error) {
					if event == watch.Deleted || cluster.IsSettled(o) {
						return false, nil
					}
					before := o.DeepCopyObject().(client.Object)
					s := o.CommonStatus()
					s.ObservedGeneration, s.LastHandledReconcileAt = o.GetGeneration(), cluster.ReconcileRequest(o)
					apimeta.SetStatusCondition((*[]metav1.Condition)(&s.Conditions),
						metav1.Condition{Type: reconcile.TypeReady, Status: metav1.ConditionTrue,
							Reason: meta.SucceededReason})
					err := c.Status().Patch(ctx, o, client.MergeFrom(before))
					return false, client.IgnoreNotFound(err)
				})
			if ctx.Err() == nil {
				t.Errorf("%s: %v", k.Name(), err)
			}
		})
	}
}

// TestCreateMatchesExport checks for every kind that `create` stores what `create --export` prints, and that `export`
// prints it again.
func TestCreateMatchesExport(t *testing.T) {
	_, namespace := withDefinitions(t)
	setReady(t, namespace)
	for _, line := range []string{
		"source git app --url https://example.com/app --branch main --username me --password secret --label team=a",
		"source oci app --url oci://registry.example.com/app --tag 1.0.0",
		"source helm app --url https://charts.example.com --username me --password secret",
		"source chart app --source HelmRepository/app --chart app",
		"source bucket app --bucket-name deploy --endpoint s3.example.com --access-key AKIA --secret-key secret",
		"kustomization app --source app --path ./deploy --prune --wait --depends-on base --label team=a",
		"receiver app --type github --event push --secret-ref token --resource GitRepository/app",
		"alert-provider app --type generic --address https://events.example.com",
		"alert app --provider-ref app --event-source Kustomization/*",
	} {
		words := append(strings.Fields(line), "-n", namespace)
		t.Run(words[1], func(t *testing.T) {
			printed := run(t, append([]string{"create", "--export"}, words...)...).wants(t, exitOK).out
			r := at(t, append([]string{"create"}, words...)...).wants(t, exitOK, "/app' created", "/app' is ready")
			if strings.Contains(r.out+r.err, "secret") {
				t.Errorf("the password is printed:\n%s%s", r.out, r.err)
			}
			want, err := manifest.Decode([]byte(printed))
			if err != nil {
				t.Fatal(err)
			}
			kindWords := words[:slices.Index(words, "app")]
			back := at(t, slices.Concat([]string{"export"}, kindWords, []string{"app", "-n", namespace})...).
				wants(t, exitOK).out
			got, err := manifest.Decode([]byte(back))
			if err != nil {
				t.Fatal(err)
			}
			if missing := lacks(got[0].Object, want[len(want)-1].Object, ""); missing != "" {
				t.Errorf("the export lacks %s:\n%s", missing, back)
			}
			for _, tooMuch := range []string{"status:", "uid:", "resourceVersion:", "managedFields:", "requestedAt"} {
				if strings.Contains(back, tooMuch) {
					t.Errorf("the export contains %s:\n%s", tooMuch, back)
				}
			}
			all := at(t, slices.Concat([]string{"export"}, kindWords, []string{"--all", "-n", namespace})...).
				wants(t, exitOK).out
			if all != back {
				t.Errorf("--all prints\n%s\nwant\n%s", all, back)
			}
		})
	}
	at(t, "export", "source", "git", "app", "none", "-n", namespace).wants(t, exitFailed, "none' not found")
	at(t, "export", "source", "external", "--all", "-n", namespace).
		wants(t, exitOK, "no ExternalArtifact found in namespace")
}

// lacks returns the path of the first field of want that is missing or different in have, or "".
func lacks(have, want any, path string) string {
	if w, ok := want.(map[string]any); ok {
		h, _ := have.(map[string]any)
		for key, value := range w {
			if missing := lacks(h[key], value, path+"."+key); missing != "" {
				return missing
			}
		}
		return ""
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		return path
	}
	return ""
}

// TestCreateUpdates checks that a second run replaces the spec, and keeps annotations and labels of others.
func TestCreateUpdates(t *testing.T) {
	c, namespace := withDefinitions(t)
	setReady(t, namespace)
	create := func(flags string) result {
		t.Helper()
		line := "create source git app --url https://example.com/app -n " + namespace + " " + flags
		return at(t, strings.Fields(line)...)
	}
	create("--branch main --label team=a").wants(t, exitOK, "app' created")
	app := &sourcev1.GitRepository{}
	app.Name, app.Namespace = "app", namespace
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(app), app); err != nil {
		t.Fatal(err)
	}
	before := app.DeepCopy()
	app.Annotations, app.Labels["owner"] = map[string]string{"example.com/note": "kept"}, "b"
	if err := c.Patch(t.Context(), app, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	create("--tag v1 --label tier=web --username me --password x").
		wants(t, exitOK, "Secret '"+namespace+"/app' created", "app' configured")
	create("--tag v1 --label tier=web --username me --password x").
		wants(t, exitOK, "Secret '"+namespace+"/app' unchanged", "app' unchanged")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(app), app); err != nil {
		t.Fatal(err)
	}
	if ref := app.Spec.Reference; ref == nil || ref.Tag != "v1" || ref.Branch != "" {
		t.Errorf("the reference is %+v, want only the tag", ref)
	}
	if app.Annotations["example.com/note"] != "kept" || app.Labels["owner"] != "b" || app.Labels["team"] != "a" ||
		app.Labels["tier"] != "web" {
		t.Errorf("labels are %v, annotations %v", app.Labels, app.Annotations)
	}
	if cluster.ReconcileRequest(app) == "" {
		t.Error("the update did not request a reconcile, so an earlier failure would be reported")
	}

	at(t, "create", "secret", "git", "app", "--url", "https://example.com/app", "--bearer-token", "t", "-n", namespace).
		wants(t, exitOK, "Secret '"+namespace+"/app' configured")
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(app), s); err != nil {
		t.Fatal(err)
	}
	if len(s.Data) != 1 || string(s.Data["bearerToken"]) != "t" {
		t.Errorf("the Secret has %d keys, want only the token", len(s.Data))
	}

	create("--provider azure --service-account a --interval 500ms").wants(t, exitOK)
	at(t, "create", "source", "git", "app", "--url", "https://example.com/app", "--service-account", "a", "-n",
		namespace).
		wants(t, exitFailed, "the cluster rejected GitRepository", "provider is 'azure' or 'aws'")
	at(t, "create", "source", "git", "app", "--url", "https://example.com/app", "-n", "nowhere").
		wants(t, exitFailed, "namespace 'nowhere' not found")
	at(t, "create", "secret", "oci", "app", "--url", "example.com", "--username", "me", "--password", "x", "-n",
		namespace).
		wants(t, exitFailed, "the cluster rejected Secret", "type")
}

// TestCreateWaits runs with real controllers: over HTTP, over SSH with host keys from the server, and for a
// bucket with a secret key from standard input.
func TestCreateWaits(t *testing.T) {
	c, namespace := withControllers(t)
	git, identity := sshServer(t)
	commit := git.Commit("app", map[string]string{"a": "1"})
	create := func(in, flags string) result {
		t.Helper()
		return runWith(t.Context(), in, strings.Fields("create source git "+flags+" --branch main -n "+namespace+
			" --kubeconfig "+testenv.Kubeconfig(t))...)
	}
	create("", "web --url "+git.URL+"/app.git").wants(t, exitOK, "web' created", "web' is ready", commit[:8])
	create("", "web --url "+git.URL+"/none.git").wants(t, exitFailed, "web' configured", "web' is not ready")
	create("", "web --url "+git.URL+"/app.git").wants(t, exitOK, "web' configured", "web' is ready")

	shell := "shell --url " + git.SSHURL + "/app.git"
	r := create("", shell+" --private-key-file "+identity).
		wants(t, exitOK, "which will be trusted", "Secret '"+namespace+"/shell' created", "shell' is ready", commit[:8])
	if !strings.HasPrefix(r.out, "ssh-ed25519 ") || strings.Contains(r.out+r.err, "PRIVATE") {
		t.Errorf("the output is %q, want only the public key", r.out)
	}
	create("", shell).wants(t, exitOK, "using the key in Secret 'shell'", "shell' is ready")

	made := "made --url " + git.SSHURL + "/app.git"
	r = create("n\n", made).wants(t, exitFailed, "made' was not created. Add the public key", "[y/N]")
	if !strings.HasPrefix(r.out, "ecdsa-sha2-nistp384 ") {
		t.Errorf("the output is %q, want the public key", r.out)
	}
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "made"}, s); err != nil ||
		string(s.Data["identity.pub"]) != r.out {
		t.Errorf("the printed key is not the one in the Secret (%v)", err)
	}
	// the server does not accept this key
	again := create("", made).wants(t, exitFailed, "using the key in Secret 'made'", "made' is not ready")
	secret := at(t, "create", "secret", "git", "made", "--url", git.SSHURL+"/app.git", "-n", namespace).
		wants(t, exitOK, "using the key in Secret 'made'")
	if again.out != r.out || secret.out != r.out {
		t.Errorf("later runs print %q and %q, want the same public key", again.out, secret.out)
	}

	s3 := s3server.New(t)
	s3.Put("deploy", map[string]string{"app.yaml": configMap + `"1"`})
	objects := strings.Fields("create source bucket objects --bucket-name deploy --insecure --secret-key - -n " +
		namespace + " --kubeconfig " + testenv.Kubeconfig(t))
	objects = append(objects, "--endpoint", s3.Endpoint, "--access-key", s3server.AccessKey)
	runWith(t.Context(), s3server.SecretKey+"\n", objects...).
		wants(t, exitOK, "Secret '"+namespace+"/objects' created", "objects' is ready")

	args := []string{"delete", "source", "git", "web", "-n", namespace, "--kubeconfig", testenv.Kubeconfig(t)}
	runWith(t.Context(), "n\n", args...).wants(t, exitFailed, "GitRepository '"+namespace+"/web' and its artifact",
		"cancelled: nothing was deleted")
	runWith(t.Context(), "y\n", args...).wants(t, exitOK, "web' deleted")
	runWith(t.Context(), "", args...).wants(t, exitFailed, "web' not found")
	at(t, "delete", "source", "bucket", "objects", "--silent", "-n", namespace).wants(t, exitOK, "objects' deleted")
	for _, name := range []string{"shell", "made"} {
		at(t, "delete", "source", "git", name, "--silent", "-n", namespace).wants(t, exitOK, name+"' deleted")
	}
}

func TestDeleteWithoutControllers(t *testing.T) {
	c, namespace := withDefinitions(t)
	app := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"url": "https://example.com",
		"interval": "1m"}}}
	app.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.GitRepositoryKind))
	app.SetName("app")
	app.SetNamespace(namespace)
	app.SetFinalizers([]string{"example.com/hold"})
	if err := c.Create(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	expires(t, []string{"delete", "source", "git", "app", "--silent", "-n", namespace}, "still exists after ",
		"Check that the controllers are running")
	before := app.DeepCopy()
	app.SetFinalizers(nil)
	if err := c.Patch(t.Context(), app, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
