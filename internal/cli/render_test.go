package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// rendererTest is a namespace with what docs/renderers.md creates.
type rendererTest struct {
	client    client.Client
	namespace string
	git       *testenv.Git
	tools     string              // the directory of cue, jsonnet and tk
	config    string              // kubeconfig of the account 'renderer'
	server    string              // of artifacts
	commands  map[string][]string // arguments of sluice, by name of the ExternalArtifact
}

// TestRenderersPage runs docs/renderers.md with examples/renderers: from a push to the applied objects, with the rights
// of the page. The commands of its pods run in this process.
func TestRenderersPage(t *testing.T) {
	testenv.Full(t)
	c, namespace := withControllers(t)
	x := &rendererTest{client: c, namespace: namespace, git: testenv.NewGit(t), tools: buildRenderers(t),
		commands: map[string][]string{}}
	x.git.Commit("web", renderSources(t, "2"))
	x.createPage(t)
	at(t, "create", "source", "git", "web", "--url", x.git.URL+"/web.git", "--branch", "main", "-n", namespace).
		wants(t, exitOK)
	x.login(t)
	x.stays(t)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan result, 1)
	go func() { ended <- runWith(ctx, "", x.commands["web-cue"]...) }()
	x.applied(t, "web-cue", 2)
	for _, name := range []string{"web-jsonnet", "web-tanka"} {
		x.consume(t, name)
		runWith(t.Context(), "", x.commands[name]...).wants(t, exitOK,
			"published ExternalArtifact '"+namespace+"/"+name)
		x.applied(t, name, 2)
	}

	x.git.Commit("web", renderSources(t, "3"))
	at(t, "reconcile", "source", "git", "web", "-n", namespace).wants(t, exitOK)
	x.applied(t, "web-cue", 3)
	x.applied(t, "web-jsonnet", 2) // it was rendered once

	x.git.Commit("web", renderSources(t, "11"))
	at(t, "reconcile", "source", "git", "web", "-n", namespace).wants(t, exitOK)
	x.failed(t)
	runWith(t.Context(), "", x.commands["web-tanka"]...).wants(t, exitOK)
	x.applied(t, "web-tanka", 11)

	x.git.Commit("web", renderSources(t, "4"))
	at(t, "reconcile", "source", "git", "web", "-n", namespace).wants(t, exitOK)
	x.applied(t, "web-cue", 4)
	x.removes(t)
	stop()
	if r := <-ended; r.code != exitOK {
		t.Errorf("sluice render ended with %d: %s", r.code, r.err)
	}
}

// buildRenderers builds the tools of examples/renderers and returns their directory.
func buildRenderers(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "sluice-test-renderers") // kept for the next run
	build := exec.Command("go", "install", "tool")
	build.Dir = "../../examples/renderers"
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=readonly")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the tools of examples/renderers: %v\n%s", err, out)
	}
	return dir
}

// renderSources returns the files of examples/renderers with a number of replicas.
func renderSources(t *testing.T, replicas string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"cue/web.cue", "jsonnet/main.jsonnet", "jsonnet/app.libsonnet",
		"tanka/jsonnetfile.json", "tanka/lib/app.libsonnet",
		"tanka/environments/web/main.jsonnet", "tanka/environments/web/spec.json"} {
		b, err := os.ReadFile(filepath.Join("../../examples/renderers", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = strings.NewReplacer("replicas: 2", "replicas: "+replicas, "replicas=2", "replicas="+replicas).
			Replace(string(b))
	}
	return files
}

// createPage creates the objects of the page in the namespace, and keeps the commands of its pods.
func (x *rendererTest) createPage(t *testing.T) {
	t.Helper()
	blocks := append(testenv.Blocks(t, "renderers.md", "yaml"), testenv.Blocks(t, "renderers.md", "yml")...)
	for _, text := range blocks {
		o := &unstructured.Unstructured{}
		text = strings.NewReplacer("namespace: apps", "namespace: "+x.namespace, "targetNamespace: apps",
			"targetNamespace: "+x.namespace, "$(params.source)", "web").Replace(text)
		if err := yaml.Unmarshal([]byte(text), o); err != nil {
			t.Fatal(err)
		}
		switch o.GetKind() {
		case "Deployment", "Job":
			template, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			x.keep(t, template["containers"])
		case "Task":
			x.keep(t, o.Object["spec"].(map[string]any)["steps"])
		case "NetworkPolicy": // is in the namespace of the controllers
		default:
			if err := x.client.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(x.commands) != 3 {
		t.Fatalf("the page has the commands %v", x.commands)
	}
}

// keep keeps the command of the first container.
func (x *rendererTest) keep(t *testing.T, containers any) {
	t.Helper()
	container := containers.([]any)[0].(map[string]any)
	var words []string
	for _, part := range []string{"command", "args"} {
		list, _ := container[part].([]any)
		for _, word := range list {
			words = append(words, word.(string))
		}
	}
	next := func(flag string) *string { return &words[slices.Index(words, flag)+1] }
	*next("--exec") = "export PATH=" + x.tools + ":$PATH; " + *next("--exec")
	x.commands[*next("--as")] = append(words[1:], "-n", x.namespace)
}

// login lets the commands use the token of the account of the page, and the address of the artifact server.
func (x *rendererTest) login(t *testing.T) {
	t.Helper()
	x.server = x.artifactServer(t)
	x.config = accountKubeconfig(t, x.namespace, "renderer")
	testenv.AwaitRight(t, authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + x.namespace + ":renderer",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: x.namespace, Verb: "create",
			Group: sourcev1.GroupVersion.Group, Resource: "externalartifacts"}}, true)
	for name, words := range x.commands {
		x.commands[name] = append(words, "--kubeconfig", x.config, "--artifact-server", x.server)
	}
}

func (x *rendererTest) artifactServer(t *testing.T) string {
	t.Helper()
	server := ""
	testenv.Eventually(t, "the source has an artifact", func() error {
		source := &sourcev1.GitRepository{}
		err := x.client.Get(t.Context(), client.ObjectKey{Namespace: x.namespace, Name: "web"}, source)
		if err != nil || source.Status.Artifact == nil {
			return errors.Join(err, errors.New("no artifact"))
		}
		u, err := url.Parse(source.Status.Artifact.URL)
		server = "http://" + u.Host
		return err
	})
	return server
}

// accountKubeconfig returns a file with a token of an account.
func accountKubeconfig(t *testing.T, namespace, account string) string {
	t.Helper()
	admin := testenv.Cluster(t)
	clients, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	request, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(admin)
	ca := anonymous.CAData
	if anonymous.CAFile != "" {
		if ca, err = os.ReadFile(anonymous.CAFile); err != nil {
			t.Fatal(err)
		}
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: anonymous.Host, CertificateAuthorityData: ca}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// stays runs commands that publish nothing: without the rights of the page, and over what another one publishes.
func (x *rendererTest) stays(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "stranger"}},
		&sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "theirs",
			Labels: map[string]string{"source.extensions.fluxcd.io/generator": "x"}}},
	} {
		if err := x.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	base := []string{"render", "web", "-n", x.namespace, "--once", "--exec", "cat jsonnet/main.jsonnet",
		"--artifact-server", x.server}
	stranger := accountKubeconfig(t, x.namespace, "stranger")
	runWith(t.Context(), "", append(base, "--as", "theirs", "--kubeconfig", stranger)...).
		wants(t, exitFailed, "cannot watch GitRepository", "forbidden")
	runWith(t.Context(), "", append(base, "--as", "theirs", "--kubeconfig", x.config)...).
		wants(t, exitFailed, "belongs to an ArtifactGenerator")
	// The rights to read and to create are not enough.
	x.refused(t, "", http.StatusUnauthorized)
	x.refused(t, x.token(t, stranger), http.StatusForbidden)
}

func (x *rendererTest) token(t *testing.T, file string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.AuthInfos["u"].Token
}

// refused uploads with a token that must not be accepted.
func (x *rendererTest) refused(t *testing.T, token string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		x.server+"/externalartifact/"+x.namespace+"/theirs?revision=x", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != status {
		t.Errorf("an upload was answered with %d (%v), expected %d", resp.StatusCode, err, status)
	}
}

// consume creates a Kustomization of an ExternalArtifact, as the one of the page.
func (x *rendererTest) consume(t *testing.T, name string) {
	t.Helper()
	at(t, "create", "kustomization", name, "--source", "ExternalArtifact/"+name, "--prune", "--target-namespace",
		x.namespace, "-n", x.namespace).wants(t, exitFailed)
}

// applied waits until a Deployment that was rendered has a number of replicas.
func (x *rendererTest) applied(t *testing.T, name string, replicas int32) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("Deployment '%s' with %d replicas", name, replicas), func() error {
		d := &appsv1.Deployment{}
		if err := x.client.Get(t.Context(), client.ObjectKey{Namespace: x.namespace, Name: name}, d); err != nil {
			return err
		}
		if *d.Spec.Replicas != replicas {
			return fmt.Errorf("it has %d", *d.Spec.Replicas)
		}
		return nil
	})
	source, rendered := x.revisions(t, name)
	if name == "web-cue" && source != rendered {
		t.Errorf("the ExternalArtifact has the revision %s, its source %s", rendered, source)
	}
}

func (x *rendererTest) revisions(t *testing.T, name string) (source, rendered string) {
	t.Helper()
	from, to := &sourcev1.GitRepository{}, &sourcev1.ExternalArtifact{}
	err := errors.Join(x.client.Get(t.Context(), client.ObjectKey{Namespace: x.namespace, Name: "web"}, from),
		x.client.Get(t.Context(), client.ObjectKey{Namespace: x.namespace, Name: name}, to))
	if err != nil || to.Status.Artifact == nil {
		t.Fatal(err, to.Status)
	}
	return from.Status.Artifact.Revision, to.Status.Artifact.Revision
}

// failed waits for the failure of cue, which leaves what is applied.
func (x *rendererTest) failed(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the failure of cue is in the status", func() error {
		o := &sourcev1.ExternalArtifact{}
		err := x.client.Get(t.Context(), client.ObjectKey{Namespace: x.namespace, Name: "web-cue"}, o)
		if err != nil {
			return err
		}
		ready := apimeta.FindStatusCondition(o.Status.Conditions, reconcile.TypeReady)
		if ready == nil || ready.Reason != meta.RenderFailedReason || !strings.Contains(ready.Message, "replicas") {
			return fmt.Errorf("condition %+v", ready)
		}
		return nil
	})
	x.deployed(t, "web-cue", 3)
}

// deployed fails if a Deployment does not have a number of replicas now.
func (x *rendererTest) deployed(t *testing.T, name string, replicas int32) {
	t.Helper()
	d := &appsv1.Deployment{}
	err := x.client.Get(t.Context(), client.ObjectKey{Namespace: x.namespace, Name: name}, d)
	if err != nil || *d.Spec.Replicas != replicas {
		t.Errorf("Deployment '%s': %v, %v", name, d.Spec.Replicas, err)
	}
}

// removes deletes an ExternalArtifact, whose file is then gone.
func (x *rendererTest) removes(t *testing.T) {
	t.Helper()
	o := &sourcev1.ExternalArtifact{}
	key := client.ObjectKey{Namespace: x.namespace, Name: "web-tanka"}
	if err := x.client.Get(t.Context(), key, o); err != nil {
		t.Fatal(err)
	}
	if err := x.client.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the artifact of a deleted object is gone", func() error {
		resp, err := http.Get(o.Status.Artifact.URL)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNotFound {
			return fmt.Errorf("status %d (%w)", resp.StatusCode, err)
		}
		if err := x.client.Get(t.Context(), key, o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the object: %w", err)
		}
		return nil
	})
}
