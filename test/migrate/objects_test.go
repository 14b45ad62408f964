package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/fluxlive"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

const (
	appsPerTeam     = 10 // Kustomizations
	releasesPerTeam = 5  // HelmReleases, each with a HelmChart
)

// object is a short form of an unstructured object.
type object = map[string]any

// world is what the objects of Flux refer to.
type world struct {
	*flux
	git      *testenv.Git
	registry *ociregistry.Server
	charts   *chartrepo.Server
	revision string
	server   *httptest.Server // of artifacts
	archives map[string][]byte
	count    int                 // of Flux's objects
	recorded *fluxlive.Recording // nil without SLUICE_REALWORLD

	chartDigest string // of the OCI artifact with the chart
	sops        *sopskey.Key
}

// Kustomizations with more than plain manifests.
const (
	encrypted = "app-8" // generates a Secret from a file that SOPS encrypted
	remote    = "app-9" // has a base in another repository
)

// builtInKinds returns manifests of built-in kinds, in which %s is the namespace.
func builtInKinds(f *flux) string {
	f.Helper()
	root, err := testenv.Root()
	if err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "internal", "cluster", "apply", "testdata", "builtin.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	return string(b)
}

// world starts the servers that objects refer to.
func (f *flux) world() *world {
	f.Helper()
	w := &world{flux: f, git: testenv.NewGit(f), registry: ociregistry.New(f), archives: map[string][]byte{}}
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = rw.Write(w.archives[r.URL.Path]) // the client checks the digest
	}))
	f.Cleanup(w.server.Close)
	w.registry.Push("app", "1.0.0", nil)
	files := map[string]string{
		"charts/app/Chart.yaml":           "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		"clusters/images/deployment.yaml": "image: x\n",
	}
	for name, content := range chartFiles {
		files["charts/app/"+name] = content
	}
	for n := range appsPerTeam {
		files[fmt.Sprintf("apps/app-%d/all.yaml", n)] = manifests(fmt.Sprintf("app-%d", n))
	}
	w.git.Commit("bases", map[string]string{"base/kustomization.yaml": "resources: [all.yaml]\n",
		"base/all.yaml": manifests(remote)})
	delete(files, "apps/"+remote+"/all.yaml")
	files["apps/"+remote+"/kustomization.yaml"] = "resources: ['" + w.git.URL + "/bases.git//base?ref=main']\n"
	w.sops = sopskey.New(f)
	files["apps/"+encrypted+"/kustomization.yaml"] = generatingSecret
	files["apps/"+encrypted+"/login.env"] = w.sops.Encrypt("dotenv", login)
	for _, team := range f.teams {
		files["kinds/"+team+"/all.yaml"] = strings.ReplaceAll(builtInKinds(f), "%s", team)
	}
	if w.recorded = fluxlive.Read(f, testenv.Cluster(f)); w.recorded != nil {
		files["recorded/all.yaml"] = w.recorded.Manifests
	}
	w.revision = "main@sha1:" + w.git.Commit("fleet", files)
	w.archives["/fleet.tar.gz"] = system.Archive(f.T, files)
	w.chartRepositories()
	return w
}

// fill creates the objects of Flux in the namespaces of the teams: 60 for two teams, and two for what was recorded.
func (f *flux) fill() *world {
	f.Helper()
	w := f.world()
	for _, team := range f.teams {
		w.sources(team)
		w.chartSourcesOf(team)
		for n := range appsPerTeam {
			w.app(team, fmt.Sprintf("app-%d", n))
		}
		for n := range releasesPerTeam {
			w.release(team, n)
		}
		w.kinds(team)
		w.images(team)
		w.notifications(team)
	}
	if w.recorded != nil {
		w.applyRecorded()
	}
	if w.runsFlux() {
		w.runFlux()
	}
	return w
}

// readyAgain sets the observed generation of a Kustomization whose spec the test changed.
func (w *world) readyAgain(name string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kustomizationKind)
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: w.teams[0], Name: name}, u); err != nil {
		w.Fatal(err)
	}
	before := u.DeepCopy()
	if err := unstructured.SetNestedField(u.Object, u.GetGeneration(), "status", "observedGeneration"); err != nil {
		w.Fatal(err)
	}
	if err := w.Status().Patch(w.Context(), u, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// workload is a Deployment whose Pods must not restart, and a ConfigMap.
const workload = `apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, labels: LABELS}
data: {color: COLOR}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, labels: LABELS}
spec:
  replicas: 1
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1"}]}
`

func manifests(name string) string {
	return strings.NewReplacer("NAME", name, "LABELS", "{}", "COLOR", "blue").Replace(workload)
}

var chartTemplate = strings.NewReplacer("NAME", "{{ .Release.Name }}", "COLOR", "{{ .Values.color }}",
	"LABELS", "{}").Replace(workload)

// put creates an object and its status, with the field managers of a controller of Flux.
func (w *world) put(controller, apiVersion, kind, namespace, name string, spec, status object) {
	w.Helper()
	u := &unstructured.Unstructured{Object: object{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	u.SetNamespace(namespace)
	u.SetName(name)
	if err := w.Create(w.Context(), u, client.FieldOwner("flux-client-side-apply")); err != nil {
		w.Fatalf("cannot create %s %s/%s: %v", kind, namespace, name, err)
	}
	w.count++
	if status == nil {
		return // Flux writes neither status nor finalizer of static kinds
	}
	before := u.DeepCopy()
	u.SetFinalizers([]string{"finalizers.fluxcd.io"})
	if err := w.Patch(w.Context(), u, client.MergeFrom(before), client.FieldOwner(controller)); err != nil {
		w.Fatal(err)
	}
	before = u.DeepCopy()
	u.Object["status"] = status
	if err := w.Status().Patch(w.Context(), u, client.MergeFrom(before),
		client.FieldOwner("gotk-"+controller)); err != nil {
		w.Fatalf("cannot write the status of %s %s/%s: %v", kind, namespace, name, err)
	}
}

// ready returns a status with a Ready condition, and the given fields.
func ready(reason, message string, fields object) object {
	status := object{"observedGeneration": int64(1), "conditions": []any{object{
		"type": "Ready", "status": "True", "reason": reason, "message": message, "observedGeneration": int64(1),
		"lastTransitionTime": "2026-01-02T03:04:05Z"}}}
	for name, value := range fields {
		status[name] = value
	}
	return status
}

func (w *world) artifact(path, revision string) object {
	sum := sha256.Sum256(w.archives[path])
	return object{"path": strings.TrimPrefix(path, "/"), "url": w.server.URL + path, "revision": revision,
		"digest": "sha256:" + hex.EncodeToString(sum[:]), "lastUpdateTime": "2026-01-02T03:04:05Z",
		"size": int64(len(w.archives[path]))}
}

func (w *world) sources(team string) {
	w.put("source-controller", "source.toolkit.fluxcd.io/v1", "GitRepository", team, "fleet",
		object{"url": w.git.URL + "/fleet", "interval": "1h", "ref": object{"branch": "main"}},
		ready("Succeeded", "stored artifact for revision '"+w.revision+"'",
			object{"artifact": w.artifact("/fleet.tar.gz", w.revision)}))
	w.put("source-controller", "source.toolkit.fluxcd.io/v1", "HelmRepository", team, "oci",
		object{"type": "oci", "interval": "1h", "insecure": true, "url": w.registry.OCI + "/charts"}, nil)
}

// app creates a Kustomization, and what it applied.
func (w *world) app(team, name string) {
	w.Helper()
	spec := object{"targetNamespace": team, "wait": true, "timeout": "2m"}
	text := manifests(name)
	if name == encrypted {
		text += "---\n" + w.generatedSecret()
		spec["decryption"] = object{"provider": "sops", "secretRef": object{"name": "sops-keys"}}
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "sops-keys"},
			StringData: map[string]string{"test.agekey": w.sops.PrivateKey}})
	}
	entries := w.applyAsFlux(team, name, team, text)
	w.kustomization(team, name, "./apps/"+name, entries, spec)
}

const (
	login            = "password=s3cret\n"
	generatingSecret = "resources: [all.yaml]\nsecretGenerator: [{name: login, envs: [login.env]}]\n"
)

// generatedSecret returns the Secret that kustomize generates from the plain file.
func (w *world) generatedSecret() string {
	w.Helper()
	files := filesys.MakeFsInMemory()
	for name, content := range map[string]string{"login.env": login, "kustomization.yaml": strings.Replace(
		generatingSecret, "resources: [all.yaml]\n", "", 1)} {
		if err := files.WriteFile(name, []byte(content)); err != nil {
			w.Fatal(err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, ".")
	if err != nil {
		w.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// kinds creates a Kustomization that applied all built-in kinds.
func (w *world) kinds(team string) {
	w.Helper()
	entries := w.applyAsFlux(team, "kinds", "", strings.ReplaceAll(builtInKinds(w.flux), "%s", team))
	w.kustomization(team, "kinds", "./kinds/"+team, entries, nil)
}

// applyRecorded creates the Kustomization of the recorded objects, with these as they were recorded.
func (w *world) applyRecorded() {
	w.Helper()
	w.recorded.Load()
	var entries []any
	for _, o := range w.recorded.Declared {
		entries = append(entries, entry(o))
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fluxlive.Namespace}}
	if err := w.Create(w.Context(), namespace); client.IgnoreAlreadyExists(err) != nil {
		w.Fatal(err)
	}
	w.Cleanup(w.removeRecorded)
	w.sources(fluxlive.Namespace)
	w.kustomization(fluxlive.Namespace, fluxlive.Name, "./recorded", entries, nil)
}

// removeRecorded deletes the objects of Flux in the namespace of the recorded Kustomization, which no test owns.
func (w *world) removeRecorded() {
	ctx := context.Background()
	for _, gvk := range fluxKinds {
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(gvk)
		if err := w.List(ctx, u, client.InNamespace(fluxlive.Namespace)); err != nil {
			w.Error(err)
		}
		for i := range u.Items {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			_ = w.Patch(ctx, &u.Items[i], patch) // the deletion fails if this does
			if err := w.Delete(ctx, &u.Items[i]); client.IgnoreNotFound(err) != nil {
				w.Error(err)
			}
		}
	}
}

// applyAsFlux applies objects as kustomize-controller does, in the form of their types, and returns their inventory.
// They get the namespace if it is not empty.
func (w *world) applyAsFlux(team, owner, namespace, text string) (entries []any) {
	w.Helper()
	for _, doc := range strings.Split(text, "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			w.Fatal(err)
		}
		if namespace != "" {
			u.SetNamespace(namespace)
		}
		u = testenv.TypedForm(w, u)
		u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": owner,
			"kustomize.toolkit.fluxcd.io/namespace": team})
		entries = append(entries, entry(u))
		if !w.runsFlux() {
			if err := w.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership,
				client.FieldOwner("kustomize-controller")); err != nil {
				w.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
			}
		}
		if u.GetNamespace() == "" {
			w.Cleanup(func() { _ = w.Delete(context.Background(), u) }) // a test may have pruned it
		}
	}
	return entries
}

func entry(u *unstructured.Unstructured) object {
	gvk := u.GroupVersionKind()
	return object{"id": u.GetNamespace() + "_" + u.GetName() + "_" + gvk.Group + "_" + gvk.Kind, "v": gvk.Version}
}

// kustomization creates a Kustomization that is Ready.
func (w *world) kustomization(team, name, path string, entries []any, more object) {
	w.Helper()
	spec := object{"interval": "1h", "path": path, "prune": true,
		"sourceRef": object{"kind": "GitRepository", "name": "fleet"}}
	maps.Copy(spec, more)
	status := ready("ReconciliationSucceeded", "Applied revision: "+w.revision, object{
		"lastAppliedRevision": w.revision, "lastAttemptedRevision": w.revision,
		"inventory": object{"entries": entries}})
	if w.runsFlux() {
		status = nil
	}
	w.put("kustomize-controller", "kustomize.toolkit.fluxcd.io/v1", "Kustomization", team, name, spec, status)
}

func (w *world) images(team string) {
	image := w.registry.Host + "/app"
	w.put("image-reflector-controller", "image.toolkit.fluxcd.io/v1", "ImageRepository", team, "app",
		object{"image": image, "interval": "1h", "insecure": true},
		ready("Succeeded", "successful scan: found 1 tags with checksum 1", object{"canonicalImageName": image,
			"lastScanResult": object{"scanTime": "2026-01-02T03:04:05Z", "tagCount": int64(1)}}))
	w.put("image-reflector-controller", "image.toolkit.fluxcd.io/v1", "ImagePolicy", team, "app",
		object{"imageRepositoryRef": object{"name": "app"}, "policy": object{"semver": object{"range": "1.x"}}},
		ready("Succeeded", "Latest image tag for "+image+" resolved to 1.0.0",
			object{"latestRef": object{"name": image, "tag": "1.0.0"}}))
	w.put("image-automation-controller", "image.toolkit.fluxcd.io/v1", "ImageUpdateAutomation", team, "fleet",
		object{"interval": "1h", "sourceRef": object{"kind": "GitRepository", "name": "fleet"},
			"git": object{"checkout": object{"ref": object{"branch": "main"}},
				"commit": object{"author": object{"email": "bot@example.com"}}},
			"update": object{"path": "./clusters/images", "strategy": "Setters"}},
		ready("Succeeded", "repository up-to-date", object{"lastAutomationRunTime": "2026-01-02T03:04:05Z"}))
}

func (w *world) notifications(team string) {
	const group = "notification.toolkit.fluxcd.io/"
	w.put("notification-controller", group+"v1beta3", "Provider", team, "chat",
		object{"type": "generic", "address": "https://chat.example.com/hook"}, nil)
	for _, kind := range []string{"Kustomization", "HelmRelease"} {
		w.put("notification-controller", group+"v1beta3", "Alert", team, strings.ToLower(kind),
			object{"providerRef": object{"name": "chat"}, "eventSeverity": "error",
				"eventSources": []any{object{"kind": kind, "name": "*"}}}, nil)
	}
	w.secret(team)
	sum := sha256.Sum256([]byte("token" + "push" + team))
	path := "/hook/" + hex.EncodeToString(sum[:])
	w.put("notification-controller", group+"v1", "Receiver", team, "push",
		object{"type": "generic", "secretRef": object{"name": "hook"},
			"resources": []any{object{"kind": "GitRepository", "name": "fleet"}}},
		ready("Succeeded", "Receiver initialized for path: "+path, object{"webhookPath": path}))
}

func (w *world) secret(team string) {
	u := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Secret",
		"stringData": object{"token": "token"}}}
	u.SetNamespace(team)
	u.SetName("hook")
	w.create(u)
}
