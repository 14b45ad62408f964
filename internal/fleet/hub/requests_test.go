package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

// TestRequestsThatAreWrong checks that the answers say what to do.
func TestRequestsThatAreWrong(t *testing.T) {
	edge := newIssuer(t)
	s := newTestHub(t, &testClock{now: start}, nil)
	s.Access = failingAccess{}
	other := func(c *jwt.Claims) { c.Subject = "system:serviceaccount:flux-system:other" }
	for name, reads := range map[string]string{"edge-7": "true", "edge-8": "false"} {
		secret := edge.secret(name)
		if secret.Data[fleet.ReadsKey] = []byte(reads); name == "edge-8" {
			secret.Data[fleet.SubjectKey] = []byte("system:serviceaccount:flux-system:other")
		}
		s.register(secret)
	}
	away := edge.secret("edge-9")
	away.Data[fleet.IssuerKey] = []byte("https://127.0.0.1:1")
	delete(away.Data, fleet.KeysKey)
	s.register(away)
	const all = fleet.ClustersPath
	const askAs = "Ask as /fleet/v1/rollout?source=KIND/NAMESPACE/NAME&share=80"
	for path, test := range map[string]struct {
		method, cluster, hint string
		change                func(*jwt.Claims)
		status                int
	}{
		"/other":         {status: 404, hint: "The hub has the paths"},
		all:              {status: 500, hint: "Read the log of the hub"},
		all + "/edge-8":  {cluster: "edge-7", status: 200},
		all + "/unknown": {cluster: "edge-7", status: 404, hint: "List the clusters"},
		all + "/edge-7": {cluster: "edge-8", status: 403, change: other,
			hint: "Set 'reads' to true in its Secret in the hub"},
		all + "/edge-9": {cluster: "edge-9", status: 503,
			hint: "Check that the hub reaches the issuer, or put the issuer's public keys into the Secret of the " +
				"cluster as 'jwks'", change: func(c *jwt.Claims) { c.Issuer = "https://127.0.0.1:1" }},
		all + "?labels=(": {cluster: "edge-7", status: 400,
			hint: "Write a selector such as region=eu,stage!=test"},
		all + "?wait=x": {cluster: "edge-7", status: 400, hint: "Write a duration such as 25s"},
		fleet.RolloutPath + "?labels=a": {cluster: "edge-7", status: 400,
			hint: "Write labels such as region=eu,stage=production"},
		fleet.RolloutPath + "?source=a/b/c&share=101": {cluster: "edge-7", status: 400, hint: askAs},
		fleet.RolloutPath + "?source=a/b/c&share=0":   {cluster: "edge-7", status: 400, hint: askAs},
		fleet.RolloutPath + "?source=a/b/c":           {cluster: "edge-7", status: 400, hint: askAs},
		fleet.RolloutPath + "?source=a/b&share=80":    {cluster: "edge-7", status: 400, hint: askAs},
		fleet.RolloutPath + "?source=a/b/c&share=80":  {cluster: "edge-7", status: 200},
		all + "/edge-7/ui/api":                        {status: 404, hint: "List the clusters"},
		fleet.StreamPath: {method: "POST", cluster: "edge-7", status: 404,
			hint: "Reports work without streams"},
		fleet.ReportsPath: {method: "POST", cluster: "edge-7", status: 415, hint: "Send JSON"},
	} {
		r := httptest.NewRequest(cmp.Or(test.method, "GET"), path, nil)
		if test.cluster != "" {
			r.Header.Set(fleet.ClusterHeader, test.cluster)
			r.Header.Set("Authorization", "Bearer "+edge.token(t, start, test.change))
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		var answer fleet.Error
		err := json.Unmarshal(w.Body.Bytes(), &answer)
		if err != nil || w.Code != test.status || !strings.Contains(answer.Hint, test.hint) {
			t.Errorf("%s: %d %s, %v; want %d %s", path, w.Code, w.Body, err, test.status, test.hint)
		}
	}
}

// failingAccess is an API server that does not answer.
type failingAccess struct{}

func (failingAccess) MayRead(context.Context, Visitor, string) error {
	return errors.New("secret cause")
}

// TestRolloutDoesNotCountWhoAsks asks about the clusters of stage production, which are all, as one of them.
func TestRolloutDoesNotCountWhoAsks(t *testing.T) {
	s := newTestHub(t, &testClock{now: start}, nil)
	since := start.Add(-time.Minute)
	tokens := map[string]string{}
	for name, current := range map[string]int{"edge-7": 0, "edge-8": 2, "edge-9": 1} {
		key := newIssuer(t)
		secret := key.secret(name)
		secret.Data[fleet.ReadsKey] = []byte("true")
		s.register(secret)
		r := testReport(name, 1, start)
		r.Summary.Revisions = []fleet.Revision{{Source: "GitRepository/a/b", Revision: "main@sha1:1", Objects: 2,
			Current: current}}
		if current == 2 {
			r.Summary.Revisions[0].Since = since
		}
		tokens[name] = key.token(t, start, nil)
		if status, answer := s.send(name, tokens[name], body(t, r)); status != 204 {
			t.Fatalf("%s: %d %+v", name, status, answer)
		}
	}
	r := httptest.NewRequest("GET", fleet.RolloutPath+
		"?labels=stage%3Dproduction&source=GitRepository/a/b&share=50", nil)
	r.Header.Set(fleet.ClusterHeader, "edge-7")
	r.Header.Set("Authorization", "Bearer "+tokens["edge-7"])
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	var got fleet.Rollout
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Clusters != 2 || got.Needed != 1 ||
		got.Ready != 1 || got.Revision != "main@sha1:1" || !got.Since.Equal(since) || len(got.Waiting) != 1 ||
		got.Waiting[0] != "cluster 'edge-9' has 1 of 2 objects Ready at revision 'main@sha1:1'" {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
}
