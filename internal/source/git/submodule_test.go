package git

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestSubmodulesAreFetchedAtPinnedCommits(t *testing.T) {
	g := testenv.NewGit(t, "--username", "me", "--password", "right")
	leaf := g.Commit("libs/leaf", map[string]string{"leaf.yaml": "leaf", "logo.png": "x"})
	base := g.Commit("base", map[string]string{"base.yaml": "base 1", "deep/leaf": testenv.Submodule(leaf),
		".gitmodules": module("deep/leaf", "./../libs/leaf")})
	g.Commit("base", map[string]string{"base.yaml": "base 2"}) // not the pinned commit
	g.Commit("app", map[string]string{
		"app.yaml": "app", ".gitmodules": module("vendor/base", "../base") + module("docs/unused",
			"https://host.invalid/x"),
		"vendor/base": testenv.Submodule(base), "docs/unused": testenv.Submodule(leaf),
		".sourceignore": "/docs\n*.png\n",
	})
	remote := Remote{URL: g.URL + "/app", Credentials: auth.GitCredentials{Username: "me", Password: "right"}}
	v := open(t)
	rev := updated(t, v, remote, Reference{Branch: "main"})
	without, err := v.Tree(t.Context(), rev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := without.Lstat("vendor"); err == nil {
		t.Error("the tree contains a submodule without the option")
	}
	want := map[string]string{"app.yaml": "app", "vendor/base/base.yaml": "base 1",
		"vendor/base/deep/leaf/leaf.yaml": "leaf"}
	check := func() {
		t.Helper()
		tree, err := v.Tree(t.Context(), rev, Options{Submodules: true})
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range want {
			if b, err := tree.ReadFile(name); err != nil || string(b) != content {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		for _, name := range []string{"docs", "vendor/base/deep/leaf/logo.png", "vendor/base/.gitmodules"} {
			if _, err := tree.Lstat(name); err == nil {
				t.Errorf("%s is in the tree", name)
			}
		}
	}
	check()
	before := g.Stats()
	g.Commit("app", map[string]string{"app.yaml": "app 2"})
	rev, want["app.yaml"] = updated(t, v, remote, Reference{Branch: "main"}), "app 2"
	check()
	if now := g.Stats(); now["fetches"] != before["fetches"]+1 || now["advertisements"] != before["advertisements"]+1 {
		t.Errorf("unchanged submodules needed requests: %v after %v", now, before)
	}
	if n := len(mirrorDirs(t, v.mirrors.dir)); n != 3 {
		t.Errorf("got %d mirrors, want 3", n)
	}
	if _, err := v.Tree(t.Context(), rev, Options{Submodules: true, Ignore: new("/vendor\n")}); err != nil {
		t.Error(err)
	}
	if n := len(mirrorDirs(t, v.mirrors.dir)); n != 1 {
		t.Errorf("got %d mirrors without submodules, want 1", n)
	}
}

// submoduleFailure is a case of TestSubmoduleFailures.
type submoduleFailure struct {
	files   map[string]string
	wantErr string
}

func submoduleFailures(leaf string, chain string, many map[string]string) map[string]submoduleFailure {
	return map[string]submoduleFailure{
		"no .gitmodules": {files: map[string]string{"sub": testenv.Submodule(leaf)}, wantErr: "contains no URL for it"},
		"no URL": {files: map[string]string{"sub": testenv.Submodule(leaf),
			".gitmodules": module("other", "../leaf")}, wantErr: "contains no URL for it"},
		"two URLs": {files: map[string]string{"sub": testenv.Submodule(leaf),
			".gitmodules": module("sub", "../leaf") + strings.Replace(module("sub", "../x"), `"sub"`, `"y"`, 1)},
			wantErr: "two URLs"},
		"file URL": {files: map[string]string{"sub": testenv.Submodule(leaf),
			".gitmodules": module("sub", "file:///etc")}, wantErr: "'file:///etc'"},
		"local path": {files: map[string]string{"sub": testenv.Submodule(leaf), ".gitmodules": module("sub", "/etc")},
			wantErr: "'/etc'. Use http, https, ssh, or a URL relative to that of the repository"},
		"ext URL": {files: map[string]string{"sub": testenv.Submodule(leaf),
			".gitmodules": module("sub", "ext::sh -c id")}, wantErr: "Use http, https, ssh"},
		"out of the host": {files: map[string]string{"sub": testenv.Submodule(leaf),
			".gitmodules": module("sub", "../../x")}, wantErr: "leads out of the host"},
		"no such repository": {files: map[string]string{"sub": testenv.Submodule(leaf),
			".gitmodules": module("sub", "../none")}, wantErr: "not found. Check spec.url. If the repository is " +
			"private, set spec.secretRef"},
		"no such commit": {files: map[string]string{"sub": testenv.Submodule(strings.Repeat("0a", 20)),
			".gitmodules": module("sub", "../leaf")}, wantErr: "not found"},
		"nested too deeply": {files: map[string]string{"sub": testenv.Submodule(chain),
			".gitmodules": module("sub", fmt.Sprintf("../chain-%d", maxNesting%2))}, wantErr: "nested more than"},
		"too many": {files: many, wantErr: "more than 100 submodules"},
		"malformed .gitmodules": {files: map[string]string{"sub": testenv.Submodule(leaf), ".gitmodules": "[submodule"},
			wantErr: "cannot parse .gitmodules"},
	}
}

func TestSubmoduleFailures(t *testing.T) {
	g := testenv.NewGit(t)
	leaf := g.Commit("leaf", map[string]string{"leaf.yaml": "leaf"})
	chain := leaf
	for i := range maxNesting + 1 {
		name := fmt.Sprintf("chain-%d", i%2) // two repositories that contain each other
		below := fmt.Sprintf("chain-%d", (i+1)%2)
		if i == 0 {
			below = "leaf"
		}
		chain = g.Commit(name, map[string]string{".gitmodules": module("sub", "../"+below),
			"sub": testenv.Submodule(chain)})
	}
	many := map[string]string{}
	var list strings.Builder
	for i := range maxFetched + 1 {
		name := fmt.Sprintf("sub-%d", i)
		many[name] = testenv.Submodule(leaf)
		list.WriteString(module(name, "../leaf"))
	}
	many[".gitmodules"] = list.String()
	for name, c := range submoduleFailures(leaf, chain, many) {
		t.Run(name, func(t *testing.T) {
			repository := url.PathEscape(strings.ReplaceAll(name, " ", "-"))
			g.Commit(repository, c.files)
			v := open(t)
			rev := updated(t, v, Remote{URL: g.URL + "/" + repository}, Reference{Branch: "main"})
			if _, err := v.Tree(t.Context(), rev, Options{Submodules: true}); fault.As(err) == nil ||
				!strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
			if _, err := v.Tree(t.Context(), rev, Options{}); err != nil {
				t.Errorf("without submodules: %v", err)
			}
		})
	}
}

func TestSubmoduleURLs(t *testing.T) {
	login := auth.GitCredentials{Username: "me", Password: "secret"}
	for raw, c := range map[string]struct {
		want  string
		login bool
	}{
		"../lib":                         {want: "https://host/team/lib", login: true},
		"../lib.git":                     {want: "https://host/team/lib.git", login: true},
		"./lib":                          {want: "https://host/team/app.git/lib", login: true},
		"../../other/lib":                {want: "https://host/other/lib", login: false},
		"https://host/lib":               {want: "https://host/lib", login: false},
		"https://HOST/lib":               {want: "https://HOST/lib", login: false},
		"https://host:8443/lib":          {want: "https://host:8443/lib", login: false},
		"http://host/lib":                {want: "http://host/lib", login: false},
		"https://elsewhere/lib":          {want: "https://elsewhere/lib", login: false},
		"https://host.elsewhere/lib":     {want: "https://host.elsewhere/lib", login: false},
		"git@host:team/lib.git":          {want: "ssh://git@host/team/lib.git", login: false},
		"ssh://git@host/team/lib.git":    {want: "ssh://git@host/team/lib.git", login: false},
		"../../../lib":                   {want: "", login: false},
		"../..":                          {want: "", login: false},
		"../lib?x":                       {want: "", login: false},
		"lib":                            {want: "", login: false},
		"":                               {want: "", login: false},
		"-u./payload":                    {want: "", login: false},
		"git://host/lib":                 {want: "", login: false},
		"https://host/lib\x00":           {want: "", login: false},
		"https://":                       {want: "", login: false},
		"https://host/\nlib":             {want: "", login: false},
		"file://host/lib":                {want: "", login: false},
		"ext::https://host/lib":          {want: "", login: false},
		"https://me:other@elsewhere/lib": {want: "https://me:other@elsewhere/lib", login: false},
	} {
		remote, err := submoduleRemote(Remote{URL: "https://host/team/app.git", Credentials: login,
			ProxyURL: "http://proxy"}, raw)
		if c.want == "" {
			if err == nil {
				t.Errorf("%q resolves to %s", raw, remote.URL)
			}
			continue
		}
		if err != nil || remote.URL != c.want || (remote.Credentials.Password != "") != c.login ||
			remote.ProxyURL == "" {
			t.Errorf("%q: %+v, %v", raw, remote, err)
		}
	}
}

func TestSparseCheckoutDirectories(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{
		"top.yaml": "x", "deploy/a.yaml": "a", "deploy/prod/b.yaml": "b", "deploy/prod/sub/c.yaml": "c",
		"deployed/d.yaml": "d", "e/f/g.yaml": "g", "e/h.yaml": "h",
	})
	v := open(t)
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	for _, c := range []struct {
		only []string
		want string
	}{
		{only: nil,
			want: "deploy/a.yaml deploy/prod/b.yaml deploy/prod/sub/c.yaml " +
				"deployed/d.yaml e/f/g.yaml e/h.yaml top.yaml"},
		{only: []string{"deploy"}, want: "deploy/a.yaml deploy/prod/b.yaml deploy/prod/sub/c.yaml"},
		{only: []string{"./deploy/prod/", "e/f"}, want: "deploy/prod/b.yaml deploy/prod/sub/c.yaml e/f/g.yaml"},
		{only: []string{"deploy/prod", "deploy"}, want: "deploy/a.yaml deploy/prod/b.yaml deploy/prod/sub/c.yaml"},
		{only: []string{"e", "."},
			want: "deploy/a.yaml deploy/prod/b.yaml deploy/prod/sub/c.yaml deployed/d.yaml e/f/g.yaml " +
				"e/h.yaml top.yaml"},
	} {
		tree, err := v.Tree(t.Context(), rev, Options{Directories: c.only})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(names(t, tree), " "); got != c.want {
			t.Errorf("%v: got %s, want %s", c.only, got, c.want)
		}
	}
	for _, missing := range []string{"none", "top.yaml", "deploy/none"} {
		_, err := v.Tree(t.Context(), rev, Options{Directories: []string{"deploy", missing}})
		if f := fault.As(err); f == nil || f.Terminal || f.Hint != "Correct spec.sparseCheckout, or add the directory "+
			"to the repository" || !strings.Contains(err.Error(), "directory '"+missing+"' of spec.sparseCheckout") {
			t.Errorf("%s: got error %v", missing, err)
		}
	}
	for _, bad := range []string{"..", "../x", "a/../../b", "a//b", "a/./b"} {
		if _, err := v.Tree(t.Context(), rev, Options{Directories: []string{bad}}); fault.As(err) == nil ||
			!fault.As(err).Terminal || fault.As(err).Hint != "Correct spec.sparseCheckout: use paths such as "+
			"deploy/prod" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzParseModules(f *testing.F) {
	f.Add(module("a", "../b"))
	f.Add("[submodule \"x\"]\n\tpath = \"a\\tb\"\n\turl = ;\n")
	f.Fuzz(func(t *testing.T, text string) {
		urls, err := parseModules([]byte(text))
		if err != nil {
			return
		}
		for name := range urls {
			if name != path.Clean(name) {
				t.Errorf("path %q is not clean", name)
			}
		}
	})
}

func FuzzSubmoduleURL(f *testing.F) {
	for _, raw := range []string{"../lib", "git@host:lib", "https://host/lib", "../../..", "./%2e%2e/x"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		remote, err := submoduleRemote(Remote{URL: "https://host/team/app",
			Credentials: auth.GitCredentials{Password: "secret"}}, raw)
		if err != nil {
			return
		}
		u, err := wire.ParseURL(remote.URL)
		if err != nil {
			t.Fatalf("%q resolves to %q: %v", raw, remote.URL, err)
		}
		if remote.Credentials.Password != "" && (u.Scheme != "https" || !strings.EqualFold(u.Host, "host")) {
			t.Errorf("%q sends the credentials to %q", raw, remote.URL)
		}
	})
}

func module(name, url string) string {
	return fmt.Sprintf("[submodule %q]\n\tpath = %s\n\turl = %s\n", name, name, url)
}
