package bench

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const webhookToken = "s3cr3t-of-the-webhook"

// pushes is a repository whose host sends a webhook for each push.
type pushes struct {
	b         *testing.B
	client    client.WithWatch
	git       *testenv.Git
	namespace string
	url       string // of the webhook
	controls  *process
}

func newPushes(b *testing.B) *pushes {
	b.Helper()
	define(b)
	c, err := client.NewWithWatch(testenv.Cluster(b), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	p := &pushes{b: b, client: c, git: testenv.NewGit(b), namespace: testenv.Namespace(b)}
	address := testenv.FreeAddress(b)
	p.url = "http://" + address + hook.Path(webhookToken, "push", p.namespace)
	first := p.commit("0")
	name := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: p.namespace, Name: name} }
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: name("webhook-token"), StringData: map[string]string{"token": webhookToken}},
		&sourcev1.GitRepository{ObjectMeta: name("app"), Spec: sourcev1.GitRepositorySpec{
			URL: p.git.URL + "/app", Interval: meta.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
		}},
		&notificationv1.Receiver{ObjectMeta: name("push"), Spec: notificationv1.ReceiverSpec{
			Type: notificationv1.GitHubReceiver, Events: []string{"push"},
			SecretRef: &meta.LocalObjectReference{Name: "webhook-token"},
			Resources: []notificationv1.ReceiverResource{{Kind: sourcev1.GitRepositoryKind, Name: "app"}},
		}},
	} {
		if err := c.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	p.controls = startController(b, p.namespace, "--receiverAddr", address)
	p.fetched(first)()
	testenv.Eventually(b, "the webhook is taken", func() error {
		if code := p.tell(); code != http.StatusOK {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	return p
}

func (p *pushes) commit(version string) string {
	return p.git.Commit("app", map[string]string{"app.yaml": "version: " + version})
}

// tell posts what GitHub does after a push, and returns the status of the answer.
func (p *pushes) tell() int {
	p.b.Helper()
	body := `{"ref":"refs/heads/main","repository":{"full_name":"shop/app"}}`
	mac := hmac.New(sha256.New, []byte(webhookToken))
	mac.Write([]byte(body))
	req, err := http.NewRequestWithContext(p.b.Context(), http.MethodPost, p.url, strings.NewReader(body))
	if err != nil {
		p.b.Fatal(err)
	}
	req.Header.Set("X-GitHub-Event", "push")
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// fetched begins to watch; what it returns waits until the artifact of a commit is in the status of its source.
func (p *pushes) fetched(commit string) (wait func()) {
	p.b.Helper()
	var list sourcev1.GitRepositoryList
	if err := p.client.List(p.b.Context(), &list, client.InNamespace(p.namespace)); err != nil {
		p.b.Fatal(err)
	}
	at := func(g *sourcev1.GitRepository) bool {
		return g.Status.Artifact != nil && strings.HasSuffix(g.Status.Artifact.Revision, commit)
	}
	if slices.ContainsFunc(list.Items, func(g sourcev1.GitRepository) bool { return at(&g) }) {
		return func() {}
	}
	w, err := p.client.Watch(p.b.Context(), &sourcev1.GitRepositoryList{}, client.InNamespace(p.namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		p.b.Fatal(err)
	}
	return func() {
		p.b.Helper()
		defer w.Stop()
		for deadline := time.After(*patient); ; {
			select {
			case e, ok := <-w.ResultChan():
				if !ok {
					p.b.Fatal("the watch ended")
				}
				if g, ok := e.Object.(*sourcev1.GitRepository); ok && at(g) {
					return
				}
			case <-deadline:
				p.b.Fatalf("%s was not fetched within %s", commit, *patient)
			}
		}
	}
}

// BenchmarkWebhook measures, twenty times, from a webhook of a push to the artifact in the status of its
// source. The fetch is the pass of the source, with the remote asked, the archive written and the status
// patched; the webhook must add less than 100 ms to it.
func BenchmarkWebhook(b *testing.B) {
	p := newPushes(b)
	quiet(b)
	var all, fetch []time.Duration
	for b.Loop() {
		for range 20 {
			commit := p.commit(fmt.Sprint(len(all) + 1))
			wait := p.fetched(commit)
			took, count := p.passes()
			began := time.Now()
			if code := p.tell(); code != http.StatusOK {
				b.Fatalf("the webhook was answered %d", code)
			}
			wait()
			all = append(all, time.Since(began))
			fetch = append(fetch, p.passed(took, count))
		}
	}
	added := make([]time.Duration, len(all))
	for i := range all {
		added[i] = all[i] - fetch[i]
	}
	t := newTable(fmt.Sprintf("From the webhook of a push to the source fetched, %d times (ms)", len(all)), "",
		"median", "worst")
	for _, row := range []struct {
		name  string
		times []time.Duration
	}{{name: "webhook to artifact", times: all}, {name: "of that the fetch", times: fetch},
		{name: "what the webhook adds", times: added}} {
		slices.Sort(row.times)
		t.row(row.name, ms(row.times[len(row.times)/2]), ms(row.times[len(row.times)-1]))
	}
	b.ReportMetric(ms(added[len(added)/2]), "added-ms/op")
}

// passes is the time that the passes of the source took so far, and how many there were.
func (p *pushes) passes() (time.Duration, float64) {
	p.b.Helper()
	m, err := p.controls.scrape()
	if err != nil {
		p.b.Fatal(err)
	}
	labels := fmt.Sprintf(`{kind=%q,name="app",namespace=%q}`, sourcev1.GitRepositoryKind, p.namespace)
	return time.Duration(m["gotk_reconcile_duration_seconds_sum"+labels] * float64(time.Second)),
		m["gotk_reconcile_duration_seconds_count"+labels]
}

// passed waits for the next pass to be counted, which is after its status is written, and returns what it took.
func (p *pushes) passed(took time.Duration, count float64) (last time.Duration) {
	p.b.Helper()
	testenv.Eventually(p.b, "the pass is counted", func() error {
		now, n := p.passes()
		if last = now - took; n == count {
			return errors.New("it is not")
		}
		return nil
	})
	return last
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
