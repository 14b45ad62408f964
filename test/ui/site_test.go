package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// siteTimeout bounds the build of the documentation and its browser tests.
const siteTimeout = 8 * time.Minute

// TestBrowserSite builds the documentation as `make docs` does, beside an older version, and tests it in Chromium:
// accessibility of every page in light and dark, search, themes and versions.
func TestBrowserSite(t *testing.T) {
	if *browser == "" {
		t.Skip("needs Chromium and Node: run make test-ui")
	}
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), siteTimeout)
	defer cancel()
	dir := t.TempDir()
	older := filepath.Join(dir, "v1.0.0", "design", "gates.html")
	if err := errors.Join(os.MkdirAll(filepath.Dir(older), 0o755), os.WriteFile(older, []byte("<h1>Older</h1>"),
		0o600)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"npm", "ci", "--no-audit", "--no-fund"}, {"node", "build.mjs", dir, "v1.1.0"},
	} {
		build := exec.CommandContext(ctx, command[0], command[1:]...)
		build.Dir = filepath.Join(root, "hack", "site")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	site, err := json.Marshal(map[string]any{"address": server.URL, "browser": *browser, "pages": pagesBelow(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", "--test-name-pattern="+*only,
		"browser/site.test.mjs")
	cmd.Env = append(os.Environ(), "SLUICE_UI_WORLD="+string(site))
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("browser tests of the site failed: %v", err)
	}
}

// pagesBelow returns the pages of the newest version of a site.
func pagesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"v1.1.0/*.html", "v1.1.0/*/*.html"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			rel, err := filepath.Rel(dir, file)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, filepath.ToSlash(rel))
		}
	}
	const least = 70
	if len(pages) < least {
		t.Fatalf("the site has %d pages", len(pages))
	}
	return pages
}
