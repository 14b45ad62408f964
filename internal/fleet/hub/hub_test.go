package hub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// TestTokens sends reports with tokens that are not those of the cluster, and checks that the answer says what to do.
func TestTokens(t *testing.T) {
	edge, other := newIssuer(t), newIssuer(t)
	for name, test := range map[string]struct {
		change func(*jwt.Claims)
		by     *issuer
		as     string // the cluster that the header names
		token  string // instead of a signed one
		status int
		says   []string
	}{
		"valid": {status: http.StatusNoContent},
		"of another cluster with the same issuer": {by: other, status: http.StatusUnauthorized,
			says: []string{"not signed by the keys of cluster 'edge-7'",
				"If the signing keys of the cluster were replaced, run sluice cluster join again, or update 'jwks' " +
					"in its Secret"}},
		"in the name of another cluster": {as: "edge-8", status: http.StatusUnauthorized,
			says: []string{"not signed by the keys of cluster 'edge-8'"}},
		"in the name of an unknown cluster": {as: "edge-9", status: http.StatusForbidden,
			says: []string{"does not know cluster 'edge-9'",
				"Run sluice cluster join, or create the Secret of the cluster with the label sluice.dev/cluster"}},
		"in a name that is none": {as: "../etc", status: http.StatusBadRequest, says: []string{"cannot be the name",
			"Send the name of the cluster in the header Sluice-Cluster"}},
		"expired": {change: func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(start.Add(-time.Second)) },
			status: http.StatusUnauthorized, says: []string{"expired at 2026-11-29T11:59:59Z",
				"The controller requests a new one by itself. If this stays, compare the clocks of the cluster and " +
					"of the hub"}},
		"of a cluster whose clock is an hour ahead": {change: func(c *jwt.Claims) {
			c.NotBefore, c.Expiry = jwt.NewNumericDate(start.Add(time.Hour)), jwt.NewNumericDate(start.Add(2*time.Hour))
		}, status: http.StatusUnauthorized, says: []string{"valid from 2026-11-29T13:00:00Z",
			"Synchronize the clocks of the cluster and of the hub"}},
		"for another audience": {change: func(c *jwt.Claims) { c.Audience = jwt.Audience{"https://other.example.com"} },
			status: http.StatusUnauthorized, says: []string{"for audience", "Request a token for audience " +
				testAudience}},
		"of another account": {change: func(c *jwt.Claims) { c.Subject = "system:serviceaccount:team:app" },
			status: http.StatusForbidden, says: []string{"system:serviceaccount:team:app",
				"Correct the subject in the Secret of the cluster, or report as that account"}},
		"of another issuer": {change: func(c *jwt.Claims) { c.Issuer = "https://evil.example.com" },
			status: http.StatusForbidden, says: []string{"https://evil.example.com", testIssuer,
				"Correct the name of the cluster, or the issuer in its Secret"}},
		"without a signature": {token: "eyJhbGciOiJub25lIn0.e30.", status: http.StatusForbidden,
			says: []string{"issuer"}},
		"no token": {token: " ", status: http.StatusUnauthorized, says: []string{"no bearer token",
			"Send the token of the cluster's ServiceAccount"}},
		"garbage": {token: "abc", status: http.StatusUnauthorized, says: []string{"cannot be read",
			"Send the token of the cluster's ServiceAccount for audience"}},
		"huge": {token: strings.Repeat("a", 100_000), status: http.StatusUnauthorized,
			says: []string{"cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, &testClock{now: start}, nil)
			s.register(edge.secret("edge-7"))
			s.register(other.secret("edge-8"))
			by, as, token := edge, "edge-7", test.token
			if test.by != nil {
				by = test.by
			}
			if test.as != "" {
				as = test.as
			}
			if token == "" {
				token = by.token(t, start, test.change)
			}
			status, answer := s.send(as, token, body(t, testReport(as, 1, start)))
			if status != test.status {
				t.Fatalf("status %d, want %d: %+v", status, test.status, answer)
			}
			for _, text := range test.says {
				if !strings.Contains(answer.Error+" "+answer.Hint, text) {
					t.Errorf("%q is not in %+v", text, answer)
				}
			}
			if status != http.StatusNoContent && answer.Hint == "" {
				t.Error("the answer does not say what to do")
			}
			c, err := s.Hub.Get(t.Context(), "edge-7")
			if err != nil || (c.Summary != nil) != (status == http.StatusNoContent) {
				t.Errorf("the hub has %+v, %v", c, err)
			}
			if as == "edge-7" && status != http.StatusNoContent && !strings.Contains(c.Refused, test.says[0]) {
				t.Errorf("the list does not say why: %q", c.Refused)
			}
		})
	}
}

// TestReports sends bodies that a reporter does not send.
func TestReports(t *testing.T) {
	edge := newIssuer(t)
	for name, test := range map[string]struct {
		change func(*fleet.Report)
		body   string
		status int
		says   string
		hint   string
	}{
		"valid": {status: http.StatusNoContent},
		"for another cluster": {change: func(r *fleet.Report) { r.Cluster = "edge-8" }, status: http.StatusForbidden,
			says: "cannot report for cluster 'edge-8'",
			hint: "Set --report-as to the name that the hub knows the cluster by"},
		"of the future": {change: func(r *fleet.Report) { r.Summary.Time = start.Add(time.Hour) },
			status: http.StatusUnprocessableEntity, says: "1h0m0s ahead of the hub: synchronize the clocks"},
		"of 10 MB": {body: `{"cluster":"` + strings.Repeat("x", 10<<20) + `"}`,
			status: http.StatusRequestEntityTooLarge, says: "larger than 65536 bytes",
			hint: "Run the same version in the hub and in the cluster"},
		"of many labels": {change: func(r *fleet.Report) {
			for _, c := range "abcdefghijklmnopqrstuvwxyz" {
				r.Summary.Labels[string(c)] = "x"
			}
		}, status: http.StatusUnprocessableEntity, says: "20 are allowed"},
		"with a label that is none": {change: func(r *fleet.Report) { r.Summary.Labels["<b>"] = "x" },
			status: http.StatusUnprocessableEntity, says: "cannot be a label"},
		"of many problems": {change: func(r *fleet.Report) {
			r.Summary.Problems = make([]fleet.Problem, 11)
		}, status: http.StatusUnprocessableEntity, says: "11 problems, at most 10"},
		"with an unknown state": {change: func(r *fleet.Report) { r.Summary.Counts["<b>"] = 1 },
			status: http.StatusUnprocessableEntity, says: "is not a state"},
		"with negative numbers": {change: func(r *fleet.Report) { r.Summary.Counts["ready"] = -1 },
			status: http.StatusUnprocessableEntity, says: "not valid"},
		"with a terminal sequence": {change: func(r *fleet.Report) { r.Summary.Problems[0].Message = "\x1b[2J" },
			status: http.StatusUnprocessableEntity, says: "control characters"},
		"with a long text": {change: func(r *fleet.Report) {
			r.Summary.Problems[0].Message = strings.Repeat("x",
				5000)
		},
			status: http.StatusUnprocessableEntity, says: "at most 400"},
		"not JSON": {body: "<html>", status: http.StatusUnprocessableEntity, says: "invalid character",
			hint: "Unless that says what to do, run the same version in the hub and in the cluster"},
		"empty": {body: "{}", status: http.StatusUnprocessableEntity, says: "cannot be the name"},
		"null":  {body: "null", status: http.StatusUnprocessableEntity, says: "cannot be the name"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, &testClock{now: start}, nil)
			s.register(edge.secret("edge-7"))
			s.register(newIssuer(t).secret("edge-8"))
			r := testReport("edge-7", 1, start)
			if test.change != nil {
				test.change(&r)
			}
			sent := test.body
			if sent == "" {
				sent = body(t, r)
			}
			status, answer := s.send("edge-7", edge.token(t, start, nil), sent)
			if status != test.status || !strings.Contains(answer.Error, test.says) ||
				!strings.Contains(answer.Hint, test.hint) {
				t.Errorf("status %d, want %d: %+v", status, test.status, answer)
			}
			if c, err := s.Hub.Get(t.Context(), "edge-8"); err != nil || c.Status != fleet.Expected {
				t.Errorf("the other cluster is %+v, %v", c, err)
			}
		})
	}
}

// TestSequence checks heartbeats, replays, restarts of a cluster, and two processes that report as one cluster.
func TestSequence(t *testing.T) {
	edge := newIssuer(t)
	clock := &testClock{now: start}
	s := newTestHub(t, clock, nil)
	s.register(edge.secret("edge-7"))
	token := edge.token(t, start, nil)
	for i, step := range []struct {
		instance    string
		sequence    int64
		isHeartbeat bool
		status      int
		hint        string
	}{
		{instance: "a", sequence: 1, isHeartbeat: true, status: 409, hint: "Send the summary"}, // the hub was restarted
		{instance: "a", sequence: 1, status: 204},
		{instance: "a", sequence: 1, isHeartbeat: true, status: 204},
		{instance: "a", sequence: 2, status: 204},
		{instance: "a", sequence: 2, status: 204}, // the answer was lost
		{instance: "a", sequence: 1, status: 409, hint: "A newer one was accepted already; this one is not needed"},

		{instance: "a", sequence: 1, isHeartbeat: true, status: 409},
		{instance: "b", sequence: 1, isHeartbeat: true, status: 409},
		{instance: "b", sequence: 1, status: 204}, // the controller was restarted
		{instance: "a", sequence: 3, status: 409, hint: "Run one controller that reports as 'edge-7'"},
		{instance: "c", sequence: 9, status: 204},
	} {
		clock.add(time.Second)
		r := testReport("edge-7", step.sequence, start)
		if r.Instance = step.instance; step.isHeartbeat {
			r.Summary = nil
		}
		if status, answer := s.send("edge-7", token, body(t, r)); status != step.status ||
			!strings.Contains(answer.Hint, step.hint) {
			t.Errorf("step %d: status %d, want %d: %+v", i, status, step.status, answer)
		}
	}
	c, err := s.Hub.Get(t.Context(), "edge-7")
	if err != nil || c.Status != fleet.Reporting || c.Refused != "" {
		t.Errorf("the cluster is %+v, %v", c, err)
	}
	if c.Labels["stage"] != "production" || c.Labels["region"] != "eu" {
		t.Errorf("the labels are %v: those of the Secret take precedence", c.Labels)
	}
}

func TestClusterThatReportsTooOften(t *testing.T) {
	edge := newIssuer(t)
	s := newTestHub(t, &testClock{now: start}, nil)
	s.register(edge.secret("edge-7"))
	other := newIssuer(t)
	s.register(other.secret("edge-8"))
	token, last, answer := edge.token(t, start, nil), 0, fleet.Error{}

	for i := range int64(50) {
		last, answer = s.send("edge-7", token, body(t, testReport("edge-7", i+1, start)))
	}
	if last != http.StatusTooManyRequests || answer.Hint != "Run one controller that reports as this cluster" {
		t.Errorf("status %d: %+v", last, answer)
	}
	if status, answer := s.send("edge-8", other.token(t, start, nil), body(t, testReport("edge-8", 1,
		start))); status != http.StatusNoContent {
		t.Errorf("the other cluster gets %d: %+v", status, answer)
	}
}

// TestClocksThatDiffer has clusters, and then a hub, whose clock is wrong by an hour. A cluster that reports is heard.
func TestClocksThatDiffer(t *testing.T) {
	edge, clock := newIssuer(t), &testClock{now: start}
	s := newTestHub(t, clock, nil)
	s.register(edge.secret("edge-7"))
	sequence := int64(0)
	report := func(at time.Time) *fleet.Cluster {
		t.Helper()
		sequence++
		token := edge.token(t, clock.Now(), nil)
		if status, answer := s.send("edge-7", token, body(t, testReport("edge-7", sequence, at))); status !=
			http.StatusNoContent {
			t.Fatalf("status %d: %+v", status, answer)
		}
		c, err := s.Hub.Get(t.Context(), "edge-7")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := report(start.Add(-time.Hour)); c.Status != fleet.Reporting || c.Skew != -3600 {
		t.Errorf("an hour behind: %s, %d seconds", c.Status, c.Skew)
	}
	if c := report(start); c.Status != fleet.Reporting || c.Skew != 0 {
		t.Errorf("after its clock was set: %s, %d seconds", c.Status, c.Skew)
	}
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		clock.add(by)
		if c, err := s.Hub.Get(t.Context(), "edge-7"); err != nil || c.Status != fleet.Silent {
			t.Errorf("the hub's clock jumped by %s: %s, %v", by, c.Status, err)
		}
		if c := report(clock.Now()); c.Status != fleet.Reporting || c.Skew != 0 || !c.Received.Equal(clock.Now()) {
			t.Errorf("the next report after %s: %s, %d seconds, %s", by, c.Status, c.Skew, c.Received)
		}
	}
}

// acceptedStreams counts the streams that clusters open.
type acceptedStreams map[string]int

func (a acceptedStreams) Accept(_ http.ResponseWriter, _ *http.Request, cluster string) { a[cluster]++ }
func (a acceptedStreams) Forward(http.ResponseWriter, *http.Request, string)            {}
func (a acceptedStreams) IsLinked(string) bool                                          { return false }

// TestClusterThatOpensManyStreams opens 1,000 streams at once, and one after the cluster was removed and registered
// again: nothing is kept of it.
func TestClusterThatOpensManyStreams(t *testing.T) {
	edge, other := newIssuer(t), newIssuer(t)
	s, accepted := newTestHub(t, &testClock{now: start}, nil), acceptedStreams{}
	s.Hub.Streams = accepted
	s.register(edge.secret("edge-7"))
	s.register(other.secret("edge-8"))
	open := func(cluster, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", fleet.StreamPath, nil)
		r.Header.Set(fleet.ClusterHeader, cluster)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	var last *httptest.ResponseRecorder
	for range 1000 {
		last = open("edge-7", edge.token(t, start, nil))
	}
	if accepted["edge-7"] != reportBurst || last.Code != http.StatusTooManyRequests ||
		!strings.Contains(last.Body.String(), "Run one controller that reports as this cluster") {
		t.Errorf("%d streams were opened; the last answer is %d %s", accepted["edge-7"], last.Code, last.Body)
	}
	if w := open("edge-8", other.token(t, start, nil)); accepted["edge-8"] != 1 {
		t.Errorf("another cluster: %d %s", w.Code, w.Body)
	}
	for name, token := range map[string]string{
		"expired":         other.token(t, start.Add(-2*time.Hour), nil),
		"another cluster": edge.token(t, start, nil),
		"none":            "",
	} {
		if w := open("edge-8", token); accepted["edge-8"] != 1 || w.Code != http.StatusUnauthorized {
			t.Errorf("a token that is wrong (%s): %d %s", name, w.Code, w.Body)
		}
	}
	s.Hub.Registry.Delete("cluster-edge-7")
	if w := open("edge-7", edge.token(t, start, nil)); w.Code != http.StatusForbidden {
		t.Errorf("a cluster that was removed: %d %s", w.Code, w.Body)
	}
	s.register(edge.secret("edge-7"))
	if w := open("edge-7", edge.token(t, start, nil)); accepted["edge-7"] != reportBurst+1 {
		t.Errorf("after it was registered again: %d %s", w.Code, w.Body)
	}
}

// TestSecrets registers clusters by Secrets that are not right.
func TestSecrets(t *testing.T) {
	edge := newIssuer(t)
	for name, test := range map[string]struct {
		change func(*corev1.Secret)
		says   string
	}{
		"no issuer": {change: func(s *corev1.Secret) { delete(s.Data, fleet.IssuerKey) }, says: "it has no issuer"},
		"keys not JSON": {change: func(s *corev1.Secret) { s.Data[fleet.KeysKey] = []byte("x") },
			says: "kubectl get --raw"},
		"no keys": {change: func(s *corev1.Secret) { s.Data[fleet.KeysKey] = []byte(`{"keys":[]}`) }, says: "has no " +
			"keys"},
		"a symmetric key": {change: func(s *corev1.Secret) {
			s.Data[fleet.KeysKey] = []byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`)
		}, says: "only public keys"},
		"an issuer by http": {change: func(s *corev1.Secret) {
			delete(s.Data, fleet.KeysKey)
			s.Data[fleet.IssuerKey] = []byte("http://issuer.example.com")
		}, says: "starts with https://"},
		"labels that are none": {change: func(s *corev1.Secret) { s.Data[fleet.LabelsKey] = []byte("eu") },
			says: "key=value"},
		"the account of another cluster": {change: func(s *corev1.Secret) { s.Name = "z" },
			says: "one account cannot report for two clusters"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, &testClock{now: start}, nil)
			if name == "the account of another cluster" {
				s.register(edge.secret("edge-1"))
			}
			secret := edge.secret("edge-7")
			test.change(secret)
			s.register(secret)
			status, answer := s.send("edge-7", edge.token(t, start, nil), body(t, testReport("edge-7", 1, start)))
			c, err := s.Hub.Get(t.Context(), "edge-7")
			if status != http.StatusForbidden || !strings.Contains(answer.Error, test.says) || err != nil ||
				answer.Hint != "Repair the Secret in the hub" ||
				!strings.Contains(c.Refused, test.says) {
				t.Errorf("status %d: %+v; the list says %+v, %v", status, answer, c, err)
			}
			s.register(edge.secret("edge-7")) // repaired
			if name == "the account of another cluster" {
				s.Hub.Registry.Delete("cluster-edge-1")
				s.Hub.Registry.Delete("z")
			}
			if status, answer = s.send("edge-7", edge.token(t, start, nil), body(t, testReport("edge-7", 1,
				start))); status != http.StatusNoContent {
				t.Errorf("after the repair: status %d: %+v", status, answer)
			}
		})
	}
}

// TestListSinceAVersion reads what changed.
func TestListSinceAVersion(t *testing.T) {
	edge, other := newIssuer(t), newIssuer(t)
	clock := &testClock{now: start}
	s := newTestHub(t, clock, nil)
	s.register(edge.secret("edge-7"))
	s.register(other.secret("edge-8"))
	read := func(since string) *fleet.List {
		t.Helper()
		list, err := s.Hub.List(t.Context(), since, 0)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	all := read("")
	if len(all.Clusters) != 2 || all.Partial || all.Clusters[0].Status != fleet.Expected {
		t.Fatalf("the list is %+v", all)
	}
	if same := read(all.Version); !same.Partial || len(same.Clusters) != 0 || same.Version != all.Version {
		t.Errorf("nothing changed, and the list is %+v", same)
	}
	token := edge.token(t, start, nil)
	s.send("edge-7", token, body(t, testReport("edge-7", 1, start)))
	changed := read(all.Version)
	if len(changed.Clusters) != 1 || changed.Clusters[0].Name != "edge-7" ||
		len(changed.Clusters[0].Summary.Problems) != 1 {
		t.Errorf("the list is %+v", changed)
	}
	r := testReport("edge-7", 1, start)
	r.Summary = nil
	s.send("edge-7", token, body(t, r))
	if same := read(changed.Version); len(same.Clusters) != 0 {
		t.Errorf("a heartbeat is a change: %+v", same)
	}
	clock.add(fleet.SilentAfter + time.Second)
	s.Hub.refresh()
	if silent := read(changed.Version); len(silent.Clusters) != 1 || silent.Clusters[0].Status != fleet.Silent {
		t.Errorf("the list is %+v", silent)
	}
	before := read("").Version
	s.Hub.Registry.Delete("cluster-edge-8")
	s.Hub.refresh()
	if removed := read(before); len(removed.Removed) != 1 || removed.Removed[0] != "edge-8" {
		t.Errorf("the list is %+v", removed)
	}
	if restarted := read("other.1"); restarted.Partial || len(restarted.Clusters) != 1 {
		t.Errorf("the list of another process is %+v", restarted)
	}
}

// TestClusterReadsOthers checks what a cluster may read.
func TestClusterReadsOthers(t *testing.T) {
	edge, other := newIssuer(t), newIssuer(t)
	s := newTestHub(t, &testClock{now: start}, nil)
	mayRead := edge.secret("edge-7")
	mayRead.Data[fleet.ReadsKey] = []byte("true")
	s.register(mayRead)
	s.register(other.secret("edge-8"))
	for cluster, by := range map[string]*issuer{"edge-7": edge, "edge-8": other} {
		s.send(cluster, by.token(t, start, nil), body(t, testReport(cluster, 1, start)))
	}
	get := func(cluster string, by *issuer, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set(fleet.ClusterHeader, cluster)
		r.Header.Set("Authorization", "Bearer "+by.token(t, start, nil))
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	var list fleet.List
	w := get("edge-7", edge, fleet.ClustersPath+"?labels=region%3Deu")
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Clusters) != 2 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if own, of := list.Clusters[0].Summary, list.Clusters[1].Summary; len(own.Changes) != 1 || len(of.Changes) != 0 ||
		len(of.Problems) != 0 || of.Counts["ready"] != 3 {
		t.Errorf("it reads %+v of itself and %+v of the other", own, of)
	}
	if strings.Contains(w.Body.String(), "<b>") {
		t.Error("HTML is not escaped")
	}
	for path, want := range map[string]int{fleet.ClustersPath: 403, fleet.ClustersPath + "/edge-7": 403,
		fleet.ClustersPath + "/edge-8": 200} {
		if w := get("edge-8", other, path); w.Code != want {
			t.Errorf("%s: %d, want %d: %s", path, w.Code, want, w.Body)
		}
	}
	if w := get("edge-7", edge, fleet.ClustersPath+"/edge-9"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown cluster: %d", w.Code)
	}
}
