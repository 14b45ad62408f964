package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestAuditLogCountsWhatIsAsked(t *testing.T) {
	cfg, ns := Cluster(t), Namespace(t)
	cfg.UserAgent = "the-test/1"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	log := NewAuditLog(t)
	maps := client.CoreV1().ConfigMaps(ns)
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	if _, err := maps.Create(t.Context(), one, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "none", metav1.GetOptions{}); err == nil {
		t.Fatal("an object that is not there was got")
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for what, c := range map[string]struct {
		filter Request
		want   int
	}{
		"a verb on a resource": {Request{Verb: "create", Resource: "configmaps", Namespace: ns,
			UserAgent: "the-test"}, 2},
		"a dry-run":                     {Request{URI: "dryRun=All", Namespace: ns}, 1},
		"a name and a status":           {Request{Name: "none", Code: 404, Namespace: ns}, 1},
		"a watch that goes on":          {Request{Verb: "watch", Namespace: ns, User: "admin"}, 1},
		"another's requests":            {Request{Namespace: ns, UserAgent: "another"}, 0},
		"the playground's own requests": {Request{UserAgent: "playground-"}, 0},
		"a group that was not asked":    {Request{Group: "apps", Namespace: ns, UserAgent: "the-test"}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			Eventually(t, what, func() error {
				if got := log.Count(t, c.filter); got != c.want {
					return fmt.Errorf("%d requests match, want %d", got, c.want)
				}
				return nil
			})
		})
	}
	if got := NewAuditLog(t).Count(t, Request{UserAgent: "the-test"}); got != 0 {
		t.Errorf("a new log knows %d requests from before", got)
	}
}

func TestGitHelpersMakeWhatTheySay(t *testing.T) {
	g := NewGit(t, "--tls-dir", t.TempDir(), "--username", "me", "--password", "secret")
	first := g.Commit("app", map[string]string{"a file": "1\n", "dir/b": "2", "link": Symlink("dir/b"),
		"run": Executable("#!/bin/sh\n")})
	second := g.Commit("app", map[string]string{"dir/b": Delete, "c": "no newline at its end"})
	pull := g.CommitTo("app", "refs/pull/1/head", map[string]string{"d": "4"})
	g.SetRef("app", "refs/tags/v1", first)
	other := g.ForcePush("app", "refs/heads/other", map[string]string{"e": "5"})
	again := g.ForcePush("app", "refs/heads/other", map[string]string{"e": "6"})

	for what, c := range map[string]struct{ args, want string }{
		"the second commit has a parent":   {"rev-parse " + second + "^", first},
		"main is the second":               {"rev-parse main", second},
		"a tag is set":                     {"rev-parse v1", first},
		"a pull request stands alone":      {"rev-list --count refs/pull/1/head", "1"},
		"its commit is returned":           {"rev-parse refs/pull/1/head", pull},
		"a force push leaves no past":      {"rev-list --count other", "1"},
		"a force push moves the reference": {"rev-parse other", again},
		"a file was deleted":               {"ls-tree -r --name-only main", "a file\nc\nlink\nrun"},
		"a content is kept to the byte":    {"cat-file -s main:c", fmt.Sprint(len("no newline at its end"))},
		"a link leads to its target":       {"cat-file blob main:link", "dir/b"},
	} {
		t.Run(what, func(t *testing.T) {
			if got := g.Run("app", strings.Fields(c.args)...); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if again == other {
		t.Error("the force push made the commit that was there")
	}
	if modes := g.Run("app", "ls-tree", "main"); !strings.Contains(modes, "120000 blob") ||
		!strings.Contains(modes, "100755 blob") {
		t.Errorf("no link or no program:\n%s", modes)
	}
	clone(t, g)
}

// clone goes through the server, with the certificate that it made.
func clone(t *testing.T, g *Git) {
	t.Helper()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, g.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	before := g.Stats()
	cmd := exec.Command("git", "clone", "-q", strings.Replace(g.URL, "://", "://me:secret@", 1)+"/app",
		filepath.Join(dir, "app"))
	cmd.Env = append(os.Environ(), "GIT_SSL_CAINFO="+ca)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after := g.Stats()
	if after["fetches"]-before["fetches"] != 1 || after["bytesSent"] <= before["bytesSent"] {
		t.Errorf("one clone was counted as %v after %v", after, before)
	}
}
