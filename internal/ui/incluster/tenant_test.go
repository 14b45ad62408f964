package incluster

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const commit = "main@sha1:0123456789abcdef0123456789abcdef01234567"

func (s *site) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.client.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}

// grant lets a subject do something with all objects of Sluice in a namespace.
func (s *site) grant(namespace string, subject rbacv1.Subject, verbs ...string) {
	s.Helper()
	name := metav1.ObjectMeta{Namespace: namespace, GenerateName: "ui-"}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{Verbs: verbs, Resources: []string{"*"},
		APIGroups: []string{kustomizev1.GroupVersion.Group, sourcev1.GroupVersion.Group, gatingv1.GroupVersion.Group}}}}
	s.create(role)
	s.create(&rbacv1.RoleBinding{ObjectMeta: name, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}})
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// team makes a source, an application that failed, and a gate where it waits. All names contain that of the namespace.
func (s *site) team(namespace string) {
	s.Helper()
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name + "-of-" + namespace}
	}
	repo := &sourcev1.GitRepository{ObjectMeta: in("repo"), Spec: sourcev1.GitRepositorySpec{
		URL: "https://git.example/" + namespace, Interval: meta.DurationOf(time.Hour)}}
	app := &kustomizev1.Kustomization{ObjectMeta: in("app"), Spec: kustomizev1.KustomizationSpec{
		Interval: meta.DurationOf(time.Hour), Prune: true, SourceRef: kustomizev1.SourceReference{
			Kind: "GitRepository", NamespacedName: meta.NamespacedName{Name: repo.Name}}}}
	gate := &gatingv1.Gate{ObjectMeta: in("gate")}
	s.create(repo, app, gate)
	repo.Status.Artifact = &meta.Artifact{Revision: commit, Digest: "sha256:" + strings.Repeat("a", 64), Path: "a",
		URL: "http://a/b", LastUpdateTime: meta.TimeOf(time.Now()),
		Metadata: map[string]string{meta.CommitSubjectKey: "Change " + namespace}}
	app.Status.LastAppliedRevision = commit
	app.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "BuildFailed",
		Message: "failed in " + namespace, LastTransitionTime: metav1.Now()}}
	app.Status.Pending = &meta.Pending{Revision: commit}
	gate.Status.WaitingCount = 1
	gate.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: namespace, Name: app.Name,
		Revision: commit}}
	for _, o := range []client.Object{repo, app, gate} {
		if err := s.client.Status().Update(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}

// reads are all requests that answer from what the server keeps.
func reads(theirs string) []string {
	root := url.QueryEscape("Kustomization/" + theirs + "/app-of-" + theirs)
	return []string{"/api/v1/me", "/api/v1/overview", "/api/v1/items?limit=1000", "/api/v1/items?q=" + theirs,
		"/api/v1/items?namespace=" + theirs, "/api/v1/graph", "/api/v1/graph?root=" + root, "/api/v1/graph?q=" + theirs,
		"/api/v1/why?q=" + theirs, "/api/v1/why?q=0123456789abcdef", "/api/v1/gates", "/api/v1/changes",
		"/api/v1/changes?q=" + theirs}
}

func TestTenantReceivesNothingThatRBACHides(t *testing.T) {
	s := newSite(t)
	mine, theirs := testenv.Namespace(t), testenv.Namespace(t)
	s.team(mine)
	s.team(theirs)
	s.grant(mine, group("team-"+mine), "get", "list")
	admin := s.as("admin-"+mine, "ops-"+mine)
	s.grant(mine, group("ops-"+mine), "get", "list")
	s.grant(theirs, group("ops-"+mine), "get", "list")
	tenant := s.as("tenant-"+mine, "team-"+mine)
	for _, kind := range []string{"app", "repo", "gate"} {
		admin.awaits("/api/v1/items?limit=1000", kind+"-of-"+theirs)
		tenant.awaits("/api/v1/items?limit=1000", kind+"-of-"+mine)
	}
	for _, path := range []string{"overview", "items?limit=1000", "graph", "why?q=0123456789abcdef", "gates",
		"changes"} {
		for user, namespace := range map[*browser]string{tenant: mine, admin: theirs} {
			user.awaits("/api/v1/"+path, namespace) // the server knows the status of an object after the object
		}
	}
	for _, path := range reads(theirs) {
		r := tenant.get(path)
		if r.status != http.StatusOK || strings.Contains(r.body, theirs) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	tenant.awaits("/api/v1/overview", `"atGates":1`)
	if body := tenant.get("/api/v1/overview").body; !strings.Contains(body, `"total":3,`) {
		t.Errorf("the tenant's counts are %s", body)
	}
	for _, path := range []string{"Kustomization/" + theirs + "/app-of-" + theirs,
		"Kustomization/" + theirs + "/none", "Gate/" + theirs + "/gate-of-" + theirs + "/calendar",
		"Kustomization/" + theirs + "/app-of-" + theirs + "/tree"} {
		if r := tenant.get("/api/v1/objects/" + path); r.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := tenant.get("/api/v1/logs?pod=p&namespace=" + theirs); r.status != http.StatusForbidden {
		t.Errorf("logs: %d %s", r.status, r.body)
	}
}

func TestStreamContainsNothingThatRBACHides(t *testing.T) {
	s := newSite(t)
	mine, theirs := testenv.Namespace(t), testenv.Namespace(t)
	s.team(mine)
	s.grant(mine, group("team-"+mine), "list")
	tenant := s.as("tenant-"+mine, "team-"+mine)
	tenant.awaits("/api/v1/items", mine)
	ctx, cancel := context.WithTimeout(t.Context(), requestLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tenant.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	lines.Scan() // hello
	hidden := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: "hidden"}}
	s.create(hidden)
	if err := s.client.Delete(ctx, hidden); err != nil {
		t.Fatal(err)
	}
	s.create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "seen"}})
	for lines.Scan() {
		if strings.Contains(lines.Text(), theirs) {
			t.Fatalf("the stream contains a hidden object: %s", lines.Text())
		}
		if strings.Contains(lines.Text(), "Gate/"+mine+"/seen") {
			return
		}
	}
	t.Errorf("the stream ended without the visible object: %v", lines.Err())
}

func TestRightThatIsRevokedEnds(t *testing.T) {
	s := newSite(t)
	mine := testenv.Namespace(t)
	s.team(mine)
	s.grant(mine, group("team-"+mine), "list")
	tenant := s.as("tenant-"+mine, "team-"+mine)
	tenant.awaits("/api/v1/items", mine)
	if err := s.client.DeleteAllOf(t.Context(), &rbacv1.RoleBinding{}, client.InNamespace(mine)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the tenant sees nothing", func() error {
		s.advance(reviewTTL)
		return absent(tenant.get("/api/v1/items"), mine)
	})
}

func TestWritesAreMadeByTheUser(t *testing.T) {
	s := newSite(t)
	mine := testenv.Namespace(t)
	s.team(mine)
	s.grant(mine, group("readers-"+mine), "get", "list")
	s.grant(mine, group("writers-"+mine), "get", "list", "patch")
	path := "/api/v1/objects/Kustomization/" + mine + "/app-of-" + mine
	reader, writer := s.as("reader-"+mine, "readers-"+mine), s.as("writer-"+mine, "writers-"+mine)
	reader.awaits(path, mine)
	writer.awaits(path, mine)
	body := `{"reason":"incident 7"}`
	if r := reader.do(http.MethodPost, path+"/suspend", body); r.status != http.StatusForbidden ||
		!strings.Contains(r.body, "reader-"+mine) {
		t.Errorf("a reader suspended an object: %d %s", r.status, r.body)
	}
	noSecret := func(r *http.Request) { r.Header.Del("X-Sluice-Csrf") }
	if r := writer.do(http.MethodPost, path+"/suspend", body, noSecret); r.status != http.StatusForbidden {
		t.Errorf("a write without the secret of the session: %d %s", r.status, r.body)
	}
	elsewhere := func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }
	if r := writer.do(http.MethodPost, path+"/suspend", body, elsewhere); r.status != http.StatusForbidden {
		t.Errorf("a write by another origin: %d %s", r.status, r.body)
	}
	if strings.Contains(s.logged(), `"user"="writer-`+mine+`" "action"="suspend"`) {
		t.Error("a refused write has an audit line")
	}
	if r := writer.do(http.MethodPost, path+"/suspend", body); r.status != http.StatusOK {
		t.Fatalf("suspend: %d %s", r.status, r.body)
	}
	if r := writer.get(path); !strings.Contains(r.body, "writer-"+mine+" at ") {
		t.Errorf("the object does not say who suspended it: %s", r.body)
	}
	want := `"user"="writer-` + mine + `" "action"="suspend" "kind"="Kustomization" "namespace"="` + mine +
		`" "name"="app-of-` + mine + `" "reason"="incident 7"`
	if !strings.Contains(s.logged(), want) {
		t.Errorf("the log has no %s:\n%s", want, s.logged())
	}
}

func TestServiceAccountLogsInByToken(t *testing.T) {
	s := newSite(t)
	mine, theirs := testenv.Namespace(t), testenv.Namespace(t)
	s.team(mine)
	s.team(theirs)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "viewer"}}
	s.create(account)
	s.grant(mine, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: mine, Name: "viewer"}, "get", "list")
	request := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	b := s.browser()
	if r := b.do(http.MethodPost, "/login/token", `{"token":"`+request.Status.Token+`\n"}`); r.status != http.StatusOK {
		t.Fatalf("login: %d %s", r.status, r.body)
	}
	user := "system:serviceaccount:" + mine + ":viewer"
	if m := b.me(); m.User != user || !m.Logout {
		t.Errorf("the session is of %+v", m)
	}
	b.awaits("/api/v1/items", "app-of-"+mine)
	if err := absent(b.get("/api/v1/items"), theirs); err != nil {
		t.Error(err)
	}
	b.awaits("/api/v1/objects/Gate/"+mine+"/gate-of-"+mine, mine)
	if r := b.get("/api/v1/objects/Gate/" + theirs + "/gate-of-" + theirs); r.status != http.StatusForbidden ||
		!strings.Contains(r.body, user) {
		t.Errorf("an object of others: %d %s", r.status, r.body)
	}
	if strings.Contains(s.logged(), request.Status.Token) {
		t.Error("the log contains the token")
	}
}

// TestStreamEndsWithTheSession checks that a stream which is open when the session ends does not go on.
func TestStreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	mine := testenv.Namespace(t)
	s.team(mine)
	user := s.as("tenant-"+mine, "team-"+mine)
	const heartbeat = 20 * time.Second // of the stream
	ctx, cancel := context.WithTimeout(t.Context(), requestLimit)
	defer cancel()
	began := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := user.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, lines.Err())
	}
	s.advance(sessionTTL)
	sent := int(time.Since(began) / heartbeat) // before the session ended, on a slow machine
	for pings := 0; lines.Scan(); {
		if !strings.Contains(lines.Text(), "ping") {
			continue
		}
		if pings++; pings > sent {
			t.Errorf("the stream of an ended session sends %s", lines.Text())
		}
	}
	if ctx.Err() != nil { // the end of a stream has no last chunk, as the time to write is over
		t.Errorf("the stream does not end: %v", lines.Err())
	}
}
