package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// handoverTime is how long a leader that was asked to stop must serve: the cluster sends requests to it meanwhile.
const handoverTime = 3 * time.Second

// TestCampaignReplicas has three replicas with a bucket. The leader is asked to stop, or killed, in the middle of
// applying, while clients read artifacts from all replicas, and webhooks and events reach those that do not lead.
func TestCampaignReplicas(t *testing.T) {
	const short, full = 2, 60
	e := begin(t, short, full)
	tr := newTrio(t)
	e.each(func(i int, random *rand.Rand) {
		tr.write(i + 1)
		tr.push()
		tr.notify(i)
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		tr.replace(i%2 == 0)
	})
	e.note("%d leaders replaced; handover within %s of SIGTERM, failover within %s of SIGKILL (lease %s); %d reads of "+
		"artifacts; %d writes by others than the leader", e.count, tr.handover.Round(time.Millisecond),
		tr.failover.Round(time.Millisecond), leaseDuration, tr.reads.Load(), tr.wrong)
}

// trio is a tenant with three processes that share a bucket. The first one leads.
type trio struct {
	*leased
	members            []*member
	posted             chan string // messages that the Provider got
	artifact           string      // path of the current artifact
	reads              atomic.Int64
	handover, failover time.Duration
}

// member is a process with addresses.
type member struct {
	*replica
	health, artifacts, webhooks, events, pprof string
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	s3 := s3server.New(t)
	s3.MakeBucket("artifacts")
	tr := &trio{leased: &leased{tenant: newTenant(t, testenv.NewGit(t))}, posted: make(chan string, 1000)}
	tr.flags = []string{"--storage-backend-s3-endpoint", s3.URL, "--storage-backend-s3-bucket", "artifacts",
		"--insecure-events-unauthenticated"}
	tr.env = []string{"AWS_ACCESS_KEY_ID=" + s3server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3server.SecretKey}
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the test waits for the message
		tr.posted <- string(body)
	}))
	t.Cleanup(provider.Close)
	tr.write(0)
	leader := tr.join()
	tr.create(tr.source("app"), tr.app("app"), &corev1.Secret{ObjectMeta: tr.named("token"),
		StringData: map[string]string{"token": "any-token"}},
		&notificationv1.Receiver{ObjectMeta: tr.named("hook"), Spec: notificationv1.ReceiverSpec{
			Type: notificationv1.GenericReceiver, SecretRef: &meta.LocalObjectReference{Name: "token"},
			Resources: []notificationv1.ReceiverResource{{Kind: sourcev1.GitRepositoryKind, Name: "app"}}}},
		&notificationv1.Provider{ObjectMeta: tr.named("provider"), Spec: notificationv1.ProviderSpec{
			Type: "generic", Address: provider.URL}},
		&notificationv1.Alert{ObjectMeta: tr.named("alert"), Spec: notificationv1.AlertSpec{
			ProviderRef:  meta.LocalObjectReference{Name: "provider"},
			EventSources: []notificationv1.EventSource{{Kind: "GitRepository", Name: "*"}}}})
	tr.completes(leader.replica)
	tr.members = []*member{leader, tr.join(), tr.join()}
	for _, m := range tr.members {
		m.isReady()
	}
	return tr
}

// join starts a process with addresses.
func (tr *trio) join() *member {
	tr.Helper()
	free := func() string { return testenv.FreeAddress(tr.T) }
	m := &member{health: free(), artifacts: free(), webhooks: free(), events: free(), pprof: free()}
	m.replica = tr.start("--health-addr", m.health, "--storage-addr", m.artifacts, "--receiverAddr", m.webhooks,
		"--events-addr", m.events, "--pprof-addr", m.pprof)
	return m
}

// isReady waits until a process is ready, whether it leads or not.
func (m *member) isReady() {
	m.Helper()
	testenv.Eventually(m, "/readyz of a replica", func() error {
		_ = m.dead()
		return errors.Join(respond(m.Context(), http.MethodGet, "http://"+m.health+"/readyz", ""),
			respond(m.Context(), http.MethodGet, "http://"+m.pprof+"/debug/pprof/cmdline", ""))
	})
}

// respond returns an error unless the response to a request is a success.
func respond(ctx context.Context, method, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return err
}

// push sends a webhook to a replica that does not lead, which must cause a fetch: the interval is an hour.
func (tr *trio) push() {
	tr.Helper()
	hook := &notificationv1.Receiver{}
	testenv.Eventually(tr, "a standby accepts a webhook", func() error {
		key := types.NamespacedName{Namespace: tr.namespace, Name: "hook"}
		if err := tr.client.Get(tr.Context(), key, hook); err != nil {
			return err
		}
		if hook.Status.WebhookPath == "" {
			return errors.New("the receiver has no path")
		}
		return respond(tr.Context(), http.MethodPost, "http://"+tr.members[1].webhooks+hook.Status.WebhookPath, "")
	})
	g := &sourcev1.GitRepository{}
	testenv.Eventually(tr, "the commit is fetched", func() error {
		_ = tr.members[0].dead()
		key := types.NamespacedName{Namespace: tr.namespace, Name: "app"}
		if err := tr.client.Get(tr.Context(), key, g); err != nil {
			return err
		}
		if a := g.Status.Artifact; a == nil || !strings.HasSuffix(a.Revision, tr.head) {
			return errors.New("it is not in the status")
		}
		return nil
	})
	tr.artifact = g.Status.Artifact.Path
}

// notify posts an event to a replica that does not lead, which must deliver it.
func (tr *trio) notify(i int) {
	tr.Helper()
	message := fmt.Sprint("message ", i, ".")
	event := fmt.Sprintf(`{"involvedObject":{"kind":"GitRepository","namespace":%q,"name":"app",`+
		`"apiVersion":"source.toolkit.fluxcd.io/v1"},"severity":"info","timestamp":%q,"message":%q,"reason":"Test",`+
		`"reportingController":"test"}`, tr.namespace, time.Now().UTC().Format(time.RFC3339), message)
	if err := respond(tr.Context(), http.MethodPost, "http://"+tr.members[2].events, event); err != nil {
		tr.Fatal(err)
	}
	testenv.Eventually(tr, "the event is delivered", func() error {
		for {
			select {
			case got := <-tr.posted:
				if strings.Contains(got, message) {
					return nil
				}
			default:
				return errors.New("the provider did not get it")
			}
		}
	})
}

// replace ends the leader until another one has completed its work, and starts it again.
func (tr *trio) replace(byTerm bool) {
	tr.Helper()
	old, first, second := tr.members[0], tr.members[1], tr.members[2]
	audit, before := first.audit, testenv.NewAuditLog(tr)
	reading, stop := context.WithCancel(tr.Context())
	defer stop()
	failures := make(chan error, 3)
	go func() { failures <- tr.read(reading, first, 0) }()
	go func() { failures <- tr.read(reading, second, 0) }()
	began := time.Now()
	if byTerm {
		go func() { failures <- tr.read(reading, old, handoverTime) }()
		tr.signal(old.replica, syscall.SIGTERM)
	} else {
		failures <- nil
		tr.signal(old.replica, syscall.SIGKILL)
	}
	took := tr.takeover(before, first.replica, second.replica)
	if byTerm {
		tr.handover = max(tr.handover, took.Received.Sub(began))
		tr.wasReleased(before, old, took)
	} else {
		tr.failover = max(tr.failover, took.Received.Sub(began))
	}
	if strings.HasPrefix(took.UserAgent, *second.name.Load()) {
		first, second = second, first
	}
	tr.completes(first.replica)
	tr.ends(old.replica)
	stop()
	for range cap(failures) {
		if err := <-failures; err != nil {
			tr.Error(err)
		}
	}
	for _, m := range []*member{old, second} {
		tr.mustNotWrite(audit, *m.name.Load(), took)
	}
	tr.members = []*member{first, second, old}
	tr.rename(old.replica)
	first.audit = testenv.NewAuditLog(tr)
	second.audit = first.audit
	old.launch()
	old.isReady()
}

// wasReleased fails the test if a standby waited for the end of the lease of a leader that was asked to stop.
func (tr *trio) wasReleased(audit *testenv.AuditLog, old *member, took testenv.Request) {
	tr.Helper()
	updates := audit.Requests(tr, testenv.Request{Verb: "update", Resource: "leases", Namespace: tr.namespace,
		UserAgent: *old.name.Load()})
	if len(updates) == 0 {
		tr.Error("the leader did not release its lease")
		return
	}
	if waited := took.Received.Sub(updates[len(updates)-1].Received); waited >= leaseDuration {
		tr.Errorf("the lease was acquired %s after its release", waited)
	}
}

// read reads the current artifact from a process until ctx ends, or for some time. All must succeed.
func (tr *trio) read(ctx context.Context, m *member, atMost time.Duration) error {
	url := "http://" + m.artifacts + "/" + tr.artifact
	for began := time.Now(); ctx.Err() == nil && (atMost == 0 || time.Since(began) < atMost); {
		if err := respond(context.WithoutCancel(ctx), http.MethodGet, url, ""); err != nil {
			return fmt.Errorf("%s after the leader was ended: %w", time.Since(began), err)
		}
		tr.reads.Add(1)
		<-time.After(20 * time.Millisecond)
	}
	return nil
}
