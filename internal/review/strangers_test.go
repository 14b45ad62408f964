package review

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
)

// recorder is a server that notes its requests.
type recorder struct {
	*httptest.Server
	mu    sync.Mutex
	lines []string
}

func newRecorder(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *recorder {
	t.Helper()
	out := &recorder{}
	out.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out.mu.Lock()
		out.lines = append(out.lines, r.Method+" "+r.URL.Path)
		out.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(out.Close)
	return out
}

func (r *recorder) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.lines)
	slices.Sort(out)
	return slices.Compact(out)
}

// inCluster connects a service to a cluster that has a Kustomization and its source, and notes what it reads.
func (s *Service) inCluster(t *testing.T, live, source string) *recorder {
	t.Helper()
	api := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		items, kind, version := "", "List", "v1"
		switch {
		case strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList"):
			kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
		case strings.HasSuffix(r.URL.Path, "/kustomizations"):
			items, kind, version = live, "KustomizationList", kustomizev1.GroupVersion.String()
		case strings.HasSuffix(r.URL.Path, "/gitrepositories"):
			items, kind, version = source, "GitRepositoryList", sourcev1.GroupVersion.String()
		}
		fmt.Fprintf(w, `{"kind":"%s","apiVersion":"%s","items":[%s]}`, kind, version, items)
	})
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind), apimeta.RESTScopeNamespace)
	mapper.Add(helmv2.GroupVersion.WithKind(helmv2.HelmReleaseKind), apimeta.RESTScopeNamespace)
	mapper.Add(sourcev1.GroupVersion.WithKind(sourcev1.GitRepositoryKind), apimeta.RESTScopeNamespace)
	mapper.Add(gatingv1.GroupVersion.WithKind("Gate"), apimeta.RESTScopeNamespace)
	var err error
	s.Kubernetes = ReadOnly(&rest.Config{Host: api.URL})
	s.Client, err = client.New(s.Kubernetes, client.Options{Scheme: kubeclient.Scheme(), Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	target, err := apply.NewCluster(s.Kubernetes, apply.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.cluster = &preview.Cluster{Client: s.Client, Config: s.Kubernetes, Target: target}
	return api
}

// reaching are files of a stranger that would read the cluster, keys and other hosts, if anything in a review did.
func reaching(t *testing.T, trap string) map[string]string {
	t.Helper()
	sops := sopskey.New(t)
	t.Setenv("SOPS_AGE_KEY", sops.PrivateKey)
	t.Setenv("VAULT_ADDR", trap)
	t.Setenv("VAULT_TOKEN", "tok-of-vault")
	encrypted := sops.Encrypt("yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: s\ndata:\n  plain: hunter2\n")
	vault := "sops:\n    hc_vault: [{vault_address: \"" + trap + "\", engine_path: x, key_name: y, enc: z}]"
	applied := func(name, more string) string {
		return strings.Replace(fmt.Sprintf(rootOf, name, "evil/"+name), "prune: true,", "prune: true, "+more, 1)
	}
	const chart = "apiVersion: v2\nname: c\nversion: 1.0.0\n"
	release := func(name, spec string) string {
		return "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: " + name +
			", namespace: flux-system}\nspec: {interval: 1h, " + spec + "}\n"
	}
	inRepository := func(dir string) string {
		return "chart: {spec: {chart: ./" + dir +
			", sourceRef: {kind: GitRepository, name: fleet, namespace: flux-system}}}"
	}
	set := func(name, spec string) string {
		return "---\napiVersion: fluxcd.controlplane.io/v1\nkind: ResourceSet\nmetadata: {name: " + name +
			", namespace: flux-system}\nspec: {" + spec + "}\n"
	}
	return map[string]string{
		"clusters/evil.yaml": applied("base", "") + "---\n" + applied("git", "") + "---\n" +
			applied("encrypted", "decryption: {provider: sops, secretRef: {name: token}},") + "---\n" +
			applied("variables", "postBuild: {substituteFrom: [{kind: Secret, name: token}]},") + "---\n" +
			applied("remote", "kubeConfig: {secretRef: {name: token}},") + "---\n" + applied("charts", "") + "---\n" +
			applied("sets", "") + "---\n" + applied("sources", ""),
		"evil/base/kustomization.yaml": "resources: [\"" + trap + "/base.yaml\"]\n",
		"evil/git/kustomization.yaml":  "resources: [\"git::" + trap + "/org/repo.git//base?ref=main\"]\n",
		"evil/encrypted/s.yaml":        encrypted,
		"evil/encrypted/vault.yaml":    strings.Replace(encrypted, "sops:", vault, 1),
		"evil/variables/c.yaml":        fmt.Sprintf(configOf, "${live:=none}"),
		"evil/remote/c.yaml":           fmt.Sprintf(configOf, "1"),
		"evil/charts/dependency.yaml":  release("dependency", inRepository("dependency")),
		"evil/charts/lookup.yaml": release("lookup", inRepository("lookup")+
			", valuesFrom: [{kind: Secret, name: token}]"),
		"evil/charts/remote.yaml": release("remote", "chart: {spec: {chart: c, sourceRef: {kind: "+
			"HelmRepository, name: evil}}}"),
		"evil/charts/oci.yaml": release("oci", "chartRef: {kind: OCIRepository, name: evil}"),
		"dependency/Chart.yaml": chart + "dependencies: [{name: d, version: 1.0.0, repository: \"" + trap +
			"/charts\"}]\n",
		"lookup/Chart.yaml": chart,
		"lookup/templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: l}\ndata:\n  found: " +
			"{{ lookup \"v1\" \"Secret\" \"flux-system\" \"token\" | toJson | quote }}\n",
		"evil/sets/sets.yaml": set("external", "inputsFrom: [{kind: ResourceSetInputProvider, name: pulls}], "+
			"resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: << inputs.id >>}}]") +
			set("selected", "inputsFrom: [{kind: ResourceSetInputProvider, selector: {matchLabels: {a: b}}}], "+
				"resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: << inputs.id >>}}]") +
			set("copied", "inputs: [{id: \"1\"}], serviceAccountName: admin, resources: [{apiVersion: v1, "+
				"kind: Secret, metadata: {name: copy, "+
				"annotations: {fluxcd.controlplane.io/copyFrom: flux-system/token}}}]") +
			"---\napiVersion: fluxcd.controlplane.io/v1\nkind: ResourceSetInputProvider\nmetadata: {name: pulls, " +
			"namespace: flux-system, labels: {a: b}}\nspec: {type: GitHubPullRequest, url: \"" + trap + "/org/x\", " +
			"secretRef: {name: token}}\n",
		"evil/sources/sources.yaml": "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: " +
			"{name: fleet, namespace: shop}\nspec: {interval: 1m, url: \"" + trap +
			"/org/x\", secretRef: {name: token}}\n---\napiVersion: source.toolkit.fluxcd.io/v1\n" +
			"kind: HelmRepository\nmetadata: {name: evil, namespace: shop}\nspec: {interval: 1m, url: \"" +
			trap + "/charts\", secretRef: {name: token}}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: \"" +
			strings.TrimPrefix(trap, "http://") + "/x:1\"}]}\n",
		".gitmodules": "[submodule \"x\"]\n\tpath = x\n\turl = " + trap + "/x.git\n",
		".lfsconfig":  "[lfs]\n\turl = " + trap + "/lfs\n",
		"evil/base/large.yaml": "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) +
			"\nsize 12\n",
	}
}

// TestStrangersReachNothing has a stranger's pull request name Secrets, keys, clusters and a server of theirs wherever
// a change can: nothing is read but the lists that each look makes, and no other host gets a request or a
// token.
func TestStrangersReachNothing(t *testing.T) {
	h := newGitHost(t)
	h.commit("main", fleet())
	trap := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	h.commit("evil", reaching(t, trap.URL))
	commit := h.open(1, "stranger", "evil", "Evil")
	s := h.service(nil)
	api := s.inCluster(t, "", "")
	all, err := s.Once(t.Context())
	if err != nil || len(all) != 1 || all[0].State != Done || !all[0].Sandboxed || !all[0].Offline {
		t.Fatalf("%+v %v", all, err)
	}
	if got := trap.requests(); len(got) > 0 {
		t.Errorf("another host got %v", got)
	}
	for _, r := range api.requests() {
		if !slices.Contains([]string{
			"GET /apis/kustomize.toolkit.fluxcd.io/v1/kustomizations",
			"GET /apis/helm.toolkit.fluxcd.io/v2/helmreleases",
			"GET /apis/source.toolkit.fluxcd.io/v1/gitrepositories",
			"GET /apis/gating.toolkit.fluxcd.io/v1alpha1/gates",
		}, r) {
			t.Errorf("the cluster was asked %s", r)
		}
	}
	content, _, err := s.Detail("fleet", 1)
	if err != nil {
		t.Fatal(err)
	}
	var d Detail
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(content), h.comment(1), h.status(commit).Description} {
		for _, secret := range []string{"hunter", hostToken, "tok-of-vault", "AGE-SECRET-KEY"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is shown:\n%.2000s", secret, text)
			}
		}
	}
	if !slices.Contains(d.Preview.Notes, "nothing is decrypted: encrypted values are assumed to be unchanged") {
		t.Errorf("notes %q", d.Preview.Notes)
	}
	var named []string // as each of them was tried
	for _, o := range d.Preview.Owners {
		named = append(named, o.Owner.String())
	}
	for _, owner := range []string{"Kustomization/shop/base", "Kustomization/shop/git", "Kustomization/shop/encrypted",
		"Kustomization/shop/variables", "Kustomization/shop/remote", "HelmRelease/shop/dependency",
		"HelmRelease/shop/lookup", "HelmRelease/shop/remote", "HelmRelease/shop/oci", "ResourceSet/shop/external",
		"ResourceSet/shop/copied"} {
		if !slices.Contains(named, owner) {
			t.Errorf("%s is not in %q", owner, named)
		}
	}
}

// TestStrangersSeeNoVariables takes the Kustomizations of a cluster for a repository that declares none: a stranger,
// who declares what is built, must not see their variables and patches.
func TestStrangersSeeNoVariables(t *testing.T) {
	t.Parallel()
	h := newGitHost(t)
	h.commit("main", map[string]string{"web/app.yaml": fmt.Sprintf(configOf, "1")})
	h.commit("evil", map[string]string{"web/app.yaml": fmt.Sprintf(configOf, "${live:=none}")})
	h.open(1, "stranger", "evil", "Evil")
	s := h.service(nil)
	s.inCluster(t, `{"metadata":{"name":"web","namespace":"flux-system"},"spec":{
		"path":"web","prune":true,"interval":"1h",
		"sourceRef":{"kind":"GitRepository","name":"fleet"},"postBuild":{"substitute":{"live":"hunter2"}},
		"patches":[{"patch":"hunter3"}]}}`, `{"metadata":{"name":"fleet","namespace":"flux-system"},
		"spec":{"url":"`+h.URL+`"}}`)
	if all, err := s.Once(t.Context()); err != nil || len(all) != 1 || all[0].State != Done {
		t.Fatalf("%+v %v", all, err)
	}
	content, _, err := s.Detail("fleet", 1)
	if err != nil || !strings.Contains(string(content), "${live:=none}") ||
		strings.Contains(string(content), "hunter") {
		t.Errorf("%v\n%s", err, content)
	}
}

// TestNamesDoNoHarm has names of files and objects, a title and a branch with Markdown, HTML and characters that steer
// terminals.
func TestNamesDoNoHarm(t *testing.T) {
	t.Parallel()
	h := newGitHost(t)
	h.commit("main", fleet())
	const evil = "<img src=x onerror=alert(1)>`|[a](javascript:alert(1))\x1b[31m\u202e@all"
	const branch = "`<b>|(evil.example)\u202e@all"
	h.commit(branch, map[string]string{"web/" + evil + ".yaml": fmt.Sprintf(configOf, "1"),
		"web/a\nb.yaml": strings.Replace(fmt.Sprintf(configOf, "2"), "name: app", "name: \"a`<script>\\u202e@all\"", 1),
		"clusters/evil.yaml": strings.Replace(fmt.Sprintf(rootOf, "x", "web"), "name: x",
			"name: \"x`<script>|@all\\e\"", 1)})
	commit := h.open(1, "stranger", branch, evil)
	s := h.service(nil)
	all, err := s.Once(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	content, _, err := s.Detail("fleet", 1)
	if err != nil {
		t.Fatal(err)
	}
	var d Detail
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	outside := codeOf.ReplaceAllString(h.comment(1), "")
	for _, bad := range []string{"<img", "<script", "<b>", "](javascript", "@all", "evil.example"} {
		if strings.Contains(outside, bad) {
			t.Errorf("the comment has %q:\n%s", bad, h.comment(1))
		}
	}
	steers := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	for what, text := range map[string]string{"comment": h.comment(1), "status": h.status(commit).Description,
		"title": d.Title, "branch": d.Branch, "revision": d.Preview.To} {
		if strings.ContainsFunc(text, steers) || what != "comment" && strings.Contains(text, "\n") {
			t.Errorf("the %s has characters that are not printable: %q", what, text)
		}
	}
	for name, address := range d.Pages {
		if !strings.HasPrefix(address, h.URL+"/src/commit/"+commit+"/") ||
			strings.ContainsAny(address, "<>`|\"' \n\x1b") {
			t.Errorf("%q links to %q", name, address)
		}
	}
	if target := h.status(commit).TargetURL; target != "https://sluice.example.com/reviews/fleet/1" {
		t.Errorf("the status links to %q", target)
	}
}
