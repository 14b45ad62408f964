package receiver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// ofApp makes a Receiver of the repository app.
func (h *hooks) ofApp(name, kind string, change ...func(*notificationv1.ReceiverSpec)) string {
	h.Helper()
	r := h.receiver(name, kind, func(s *notificationv1.ReceiverSpec) {
		s.Resources = []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "app"}}
		for _, c := range change {
			c(s)
		}
	}, "Succeeded")
	code, answer := h.post(r.Status.WebhookPath, "{", "X-Hub-Signature-256", "sha256=00") // it is in the cache now
	if kind == "github" && code != http.StatusUnauthorized {
		h.Fatalf("%d %s", code, answer)
	}
	return r.Status.WebhookPath
}

// raw sends a request byte by byte as it is, and returns the status of the answer.
func (h *hooks) raw(head string, body io.Reader) int {
	h.Helper()
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(h.url, "http://"), 3*time.Minute)
	if err != nil {
		h.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		h.Fatal(err)
	}
	if _, err := io.WriteString(c, head+"\r\n\r\n"); err != nil {
		h.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(c, body) // the server may close before the end
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	c.Close()
	<-sent
	return resp.StatusCode
}

// counted counts what is read.
type counted struct {
	io.Reader
	bytes int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

// endless is a text again and again.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func TestWebhooksWithBodiesOf100MB(t *testing.T) {
	h := newHooks(t)
	path := h.ofApp("github", "github")
	const size = 100 << 20
	for what, c := range map[string]struct {
		head string
		body io.Reader
		most int64 // bytes that may be sent before the server has had enough; the system's buffers hold some
	}{
		"with its length": {fmt.Sprintf("Content-Length: %d", size), &endless{text: strings.Repeat("x", 1<<10)},
			8 << 20},
		"without its length": {"Transfer-Encoding: chunked",
			&endless{text: "400\r\n" + strings.Repeat("x", 1<<10) + "\r\n"}, hook.MaxBody + 16<<20},
	} {
		body := &counted{Reader: io.LimitReader(c.body, size)}
		if code := h.raw("POST "+path+" HTTP/1.1\r\nHost: x\r\n"+c.head,
			body); code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", what, code)
		}
		if body.bytes > c.most {
			t.Errorf("%s: %d bytes were taken", what, body.bytes)
		}
	}
}

// hold begins a request with the largest body, and returns once the server reads it; end ends it.
func (h *hooks) hold(path string) (end func() int) {
	h.Helper()
	reads := make(chan struct{})
	body, more := io.Pipe()
	ctx := httptrace.WithClientTrace(h.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reads) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, body)
	if err != nil {
		h.Fatal(err)
	}
	req.ContentLength = hook.MaxBody
	req.Header.Set("Expect", "100-continue")
	answered := make(chan int, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Hour}}
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			answered <- 0
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	select {
	case <-reads:
	case code := <-answered:
		h.Fatalf("answered %d before the body", code)
	}
	return func() int {
		_, _ = io.Copy(more, strings.NewReader(strings.Repeat(" ", hook.MaxBody)))
		_ = more.Close()
		return <-answered
	}
}

func TestTooManyWebhooksAtOnce(t *testing.T) {
	h := newHooks(t)
	path := h.ofApp("github", "github")
	var held []func() int
	for range 3 {
		held = append(held, h.hold(path))
	}
	resp, err := http.Post(h.url+path, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d, retry after %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	for _, end := range held {
		if code := end(); code != http.StatusUnauthorized {
			t.Errorf("%d for one that was held", code)
		}
	}
	if code, answer := h.post(path, "{}"); code != http.StatusUnauthorized {
		t.Errorf("%d %s once there is room again", code, answer)
	}
}

func TestWebhooksWithBrokenHeaders(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app")
	path := h.ofApp("github", "github", func(s *notificationv1.ReceiverSpec) { s.Events = []string{"push"} })
	signed := "X-Hub-Signature-256: " + signature(pushed)
	for what, c := range map[string]struct {
		headers string
		codes   string
	}{
		"a signature over two lines": {"X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=\r\n " +
			strings.TrimPrefix(signature(pushed), "sha256="), "400 401"},
		"an event over two lines":        {signed + "\r\nX-GitHub-Event: pu\r\n\tsh", "200 400"},
		"a carriage return in a header":  {signed + "\r\nX-GitHub-Event: star\rX-GitHub-Event: push", "200 400"},
		"a zero byte in a header":        {signed + "\r\nX-GitHub-Event: push\x00", "400"},
		"a line that is no header":       {signed + "\r\npush", "400"},
		"a header without a name":        {signed + "\r\n: push", "400"},
		"two lengths":                    {signed + "\r\nX-GitHub-Event: push\r\nContent-Length: 1", "400"},
		"headers of 100 KB":              {signed + "\r\nX-GitHub-Event: " + strings.Repeat("push", 25<<10), "431"},
		"a signature with a line at end": {"X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=00\\r\\n", "401"},
	} {
		code := h.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s", path, len(pushed),
			c.headers), strings.NewReader(pushed))
		if !strings.Contains(c.codes, fmt.Sprint(code)) {
			t.Errorf("%s: %d", what, code)
		}
	}
	if got := h.asked(); got != "" {
		t.Errorf("%s was woken", got)
	}
}

func TestWebhooksWhoseBodyAFilterCannotRead(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app")
	path := h.ofApp("generic", "generic", func(s *notificationv1.ReceiverSpec) {
		s.ResourceFilter = "req.name == res.metadata.name"
	})
	for body, want := range map[string]int{
		`{"name":`:                   http.StatusBadRequest,
		"\xff\xfe":                   http.StatusBadRequest,
		`{"name":"app"}{}`:           http.StatusBadRequest,
		strings.Repeat("[", 100_000): http.StatusBadRequest,
		"[" + strings.Repeat("{},", 3<<20) + "0]": http.StatusRequestEntityTooLarge,
		`[]`:                      http.StatusUnprocessableEntity,
		`{"name":{"name":"app"}}`: http.StatusOK, // and not equal
	} {
		if code, answer := h.post(path, body); code != want {
			t.Errorf("%.20s: %d %s", body, code, answer)
		}
	}
	if got := h.asked(); got != "" {
		t.Errorf("%s was woken", got)
	}
}

// TestReplayedWebhook shows what docs/receiver.md says: a delivery that comes again wakes again, which does no harm.
func TestReplayedWebhook(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app")
	h.GitRepository("other")
	path := h.ofApp("github", "github")
	last := ""
	for range 3 {
		if code, answer := h.post(path, pushed, "X-GitHub-Event", "push", "X-Hub-Signature-256", signature(pushed),
			"X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"); code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		app := &sourcev1.GitRepository{}
		if err := h.Get(app, "app"); err != nil {
			t.Fatal(err)
		}
		asked := app.Annotations[meta.ReconcileRequestAnnotation]
		if asked <= last {
			t.Errorf("asked at %q, then at %q", last, asked)
		}
		last = asked
	}
	if got := h.asked(); got != "app" {
		t.Errorf("%q was woken, want app", got)
	}
}

// TestWebhookOnReplicaThatDoesNotLead wakes an object by way of a replica that waits for the lease, as an
// Ingress chooses any of them.
func TestWebhookOnReplicaThatDoesNotLead(t *testing.T) {
	address := system.FreeAddress(t)
	s := system.Prepare(t, func(o *options.Options) {
		o.ReceiverAddr, o.LeaderElection = address, true
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = time.Hour, time.Minute, time.Second
	})
	s.Create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "sluice-leader-election"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](3600),
		RenewTime: ptr.To(metav1.NowMicro()), AcquireTime: ptr.To(metav1.NowMicro()),
	}})
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "webhook-token"},
		StringData: map[string]string{"token": webhookToken}})
	s.Start()
	h := &hooks{s, "http://" + address}
	h.GitRepository("app")
	r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "github"},
		Spec: notificationv1.ReceiverSpec{
			Type: "github", SecretRef: &meta.LocalObjectReference{Name: "webhook-token"},
			Resources: []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "app"}},
		}}
	h.Create(r)
	before := r.DeepCopy()
	r.SetWebhookPath(hook.Path(webhookToken, "github", h.Namespace)) // as the leader does
	if err := h.Client.Status().Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the replica knows the Receivers", func() error {
		return system.CheckStatus(h.url+"/hook/0", http.StatusNotFound)
	})
	if code, answer := h.post(r.Status.WebhookPath, pushed, "X-GitHub-Event", "push", "X-Hub-Signature-256",
		signature(pushed)); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	if got := h.asked(); got != "app" {
		t.Errorf("%q was woken, want app", got)
	}
	app := &sourcev1.GitRepository{}
	if err := h.Get(app, "app"); err != nil || len(app.Status.Conditions) > 0 {
		t.Errorf("the replica reconciles: %+v (%v)", app.Status, err)
	}
}
