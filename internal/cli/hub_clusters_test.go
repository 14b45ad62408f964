package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

const webCommit = "main@sha1:3f2a9c1d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"

// fleetOf are five clusters: live, moving, waiting, without the commit, and silent.
func fleetOf(now time.Time) fleet.List {
	at := func(revision string, current int) *fleet.Summary {
		r := fleet.Revision{Source: "GitRepository/flux-system/fleet", Revision: revision, Subject: "Raise <web>",
			Objects: 5, Current: current, Fetched: now.Add(-time.Hour)}
		if current == 5 {
			r.Since = now.Add(-time.Hour)
		}
		return &fleet.Summary{Counts: fleet.Counts{"ready": current, "progressing": 5 - current},
			Revisions: []fleet.Revision{r}}
	}
	waiting := at(webCommit, 0)
	waiting.Changes = []fleet.Change{{Gate: "Gate/flux-system/night", Object: "Kustomization/flux-system/apps",
		Revision: webCommit, Since: now.Add(-2 * time.Hour), Message: "opens at 22:00", Required: 2, Approved: 1}}
	eu := map[string]string{"region": "eu"}
	return fleet.List{Time: now, Clusters: []fleet.Cluster{
		{Name: "edge-1", Labels: eu, Status: fleet.Reporting, Summary: at(webCommit, 5)},
		{Name: "edge-2", Labels: eu, Status: fleet.Reporting, Summary: at(webCommit, 3)},
		{Name: "edge-3", Status: fleet.Reporting, Summary: waiting},
		{Name: "edge-4", Status: fleet.Reporting, Summary: at("main@sha1:0000000000000000000000000000000000000000", 5)},
		{Name: "edge-5", Status: fleet.Silent, Received: now.Add(-time.Hour), Summary: at(webCommit, 5)},
	}}
}

func TestClustersOfAHub(t *testing.T) {
	list := fleetOf(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer reader" || r.URL.Path != fleet.ClustersPath {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(fleet.Error{Error: "who are you", Hint: "send a token"})
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(hub.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("reader\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := []string{"--clusters", "--hub", hub.URL, "--hub-token-file", file}
	shows := func(args []string, code int, texts ...string) string {
		t.Helper()
		r := run(t, append(args, asked...)...).wants(t, code)
		for _, text := range texts {
			if !strings.Contains(r.out+r.err, text) {
				t.Errorf("%v lacks %q:\n%s%s", args, text, r.out, r.err)
			}
		}
		return r.out
	}
	out := shows([]string{"get", "all"}, exitOK, "silent since 2026-11-29 11:00 UTC", "main@sha1:3f2a9c1d")
	if lines := strings.Split(out, "\n"); !strings.HasPrefix(lines[1], "edge-5 ") {
		t.Errorf("the worst is not first: %s", out)
	}
	shows([]string{"get", "all", "--by", "region"}, exitOK, "REGION", "eu", "none")
	shows([]string{"get", "all", "-o", "json"}, exitOK, `"silent": 1`)
	shows([]string{"why", "3f2a9c1"}, exitOK,
		"3f2a9c1 Raise <web>: live in 1 of 5 clusters, silent 1, waiting 1, moving 1, absent 1",
		"3 of 5 objects of GitRepository/flux-system/fleet are Ready at it",
		"Kustomization/flux-system/apps at Gate/flux-system/night: opens at 22:00")
	shows([]string{"why", "3f2a9c1", "-o", "json"}, exitOK, `"state": "waiting"`)
	shows([]string{"why", "ffffff"}, exitFailed, "no cluster of the hub has a revision")
	shows([]string{"gate", "status"}, exitOK, "flux-system/night", "1/2", "2h0m", "cluster 'edge-5' is silent")
	shows([]string{"gate", "status", "-o", "json"}, exitOK, `"approved": 1`)
	run(t, "gate", "status", "--clusters").wants(t, exitUsage, "--clusters needs --hub")
	if err := os.WriteFile(file, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	shows([]string{"get", "all"}, exitFailed, "who are you. send a token")
}

func TestCommitsOfRevisions(t *testing.T) {
	for commit, want := range map[string]bool{"3f2a9c1": true, webCommit: true, "main": true, "": false, "3f2": false,
		"sha1:3f2a9c1d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b": true, "2a9c1": false} {
		if hasCommit(webCommit, commit) != want {
			t.Errorf("%q: want %t", commit, want)
		}
	}
}
