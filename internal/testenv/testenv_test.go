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

func TestAuditLogCountsRequests(t *testing.T) {
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
		t.Fatal("Get of an object that does not exist succeeded")
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for name, c := range map[string]struct {
		filter Request
		want   int
	}{
		"verb and resource": {filter: Request{Verb: "create", Resource: "configmaps", Namespace: ns,
			UserAgent: "the-test"}, want: 2},
		"dry-run":                    {filter: Request{URI: "dryRun=All", Namespace: ns}, want: 1},
		"name and status":            {filter: Request{Name: "none", Code: 404, Namespace: ns}, want: 1},
		"running watch":              {filter: Request{Verb: "watch", Namespace: ns, User: "admin"}, want: 1},
		"other user agent":           {filter: Request{Namespace: ns, UserAgent: "another"}, want: 0},
		"requests of the playground": {filter: Request{UserAgent: "playground-"}, want: 0},
		"group without requests":     {filter: Request{Group: "apps", Namespace: ns, UserAgent: "the-test"}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			Eventually(t, name, func() error {
				if got := log.Count(t, c.filter); got != c.want {
					return fmt.Errorf("%d requests match, want %d", got, c.want)
				}
				return nil
			})
		})
	}
	if got := NewAuditLog(t).Count(t, Request{UserAgent: "the-test"}); got != 0 {
		t.Errorf("a new log has %d earlier requests", got)
	}
}

func TestGit(t *testing.T) {
	g := NewGit(t, "--tls-dir", t.TempDir(), "--username", "me", "--password", "secret")
	first := g.Commit("app", map[string]string{"a file": "1\n", "dir/b": "2", "link": Symlink("dir/b"),
		"run": Executable("#!/bin/sh\n")})
	second := g.Commit("app", map[string]string{"dir/b": Delete, "c": "no newline at its end"})
	pull := g.CommitTo("app", "refs/pull/1/head", map[string]string{"d": "4"})
	g.SetRef("app", "refs/tags/v1", first)
	other := g.ForcePush("app", "refs/heads/other", map[string]string{"e": "5"})
	again := g.ForcePush("app", "refs/heads/other", map[string]string{"e": "6"})

	for name, c := range map[string]struct{ args, want string }{
		"second commit has a parent":           {args: "rev-parse " + second + "^", want: first},
		"main is the second commit":            {args: "rev-parse main", want: second},
		"tag":                                  {args: "rev-parse v1", want: first},
		"pull request has one commit":          {args: "rev-list --count refs/pull/1/head", want: "1"},
		"commit of a pull request is returned": {args: "rev-parse refs/pull/1/head", want: pull},
		"force push has no parents":            {args: "rev-list --count other", want: "1"},
		"force push sets the reference":        {args: "rev-parse other", want: again},
		"deleted file":                         {args: "ls-tree -r --name-only main", want: "a file\nc\nlink\nrun"},
		"content without a newline": {args: "cat-file -s main:c",
			want: fmt.Sprint(len("no newline at its end"))},
		"symbolic link": {args: "cat-file blob main:link", want: "dir/b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := g.Run("app", strings.Fields(c.args)...); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if again == other {
		t.Error("the force push returned the previous commit")
	}
	if modes := g.Run("app", "ls-tree", "main"); !strings.Contains(modes, "120000 blob") ||
		!strings.Contains(modes, "100755 blob") {
		t.Errorf("no symbolic link or no executable file:\n%s", modes)
	}
	clone(t, g)
}

// clone clones from the server, trusting its certificate authority.
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
		t.Errorf("stats after one clone: %v, before: %v", after, before)
	}
}
