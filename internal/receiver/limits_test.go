package receiver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// ofApp creates a Receiver for the GitRepository app, and returns its path.
func (h *hooks) ofApp(name, kind string, change ...func(*notificationv1.ReceiverSpec)) string {
	h.Helper()
	r := h.receiver(name, kind, func(s *notificationv1.ReceiverSpec) {
		s.Resources = []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "app"}}
		for _, c := range change {
			c(s)
		}
	}, "Succeeded")
	// Wait until the server has the Receiver in its cache.
	code, response := h.post(r.Status.WebhookPath, "{", "X-Hub-Signature-256", "sha256=00")
	if kind == "github" && code != http.StatusUnauthorized {
		h.Fatalf("%d %s", code, response)
	}
	return r.Status.WebhookPath
}

// raw sends a request as is, and returns the status of the response.
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
		_, _ = io.Copy(c, body) // the server may close the connection before the end
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

// counted counts the bytes read.
type counted struct {
	io.Reader
	bytes int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

// endless repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func TestWebhookBodySizeLimit(t *testing.T) {
	h := newHooks(t)
	path := h.ofApp("github", "github")
	const size = 100 << 20
	for what, c := range map[string]struct {
		head string
		body io.Reader
		most int64 // bytes that the server and the system's buffers may read before the server rejects the request
	}{
		"with its length": {head: fmt.Sprintf("Content-Length: %d", size),
			body: &endless{text: strings.Repeat("x", 1<<10)},
			most: 8 << 20},
		"without its length": {head: "Transfer-Encoding: chunked",
			body: &endless{text: "400\r\n" + strings.Repeat("x", 1<<10) + "\r\n"}, most: hook.MaxBody + 16<<20},
	} {
		body := &counted{Reader: io.LimitReader(c.body, size)}
		if code := h.raw("POST "+path+" HTTP/1.1\r\nHost: x\r\n"+c.head,
			body); code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", what, code)
		}
		if body.bytes > c.most {
			t.Errorf("%s: %d bytes were read", what, body.bytes)
		}
	}
}

// hold starts a request with almost the largest body. end completes it.
func (h *hooks) hold(path string) (end func() int) {
	h.Helper()
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(h.Context(), http.MethodPost, h.url+path, body)
	if err != nil {
		h.Fatal(err)
	}
	req.ContentLength = hook.MaxBody
	status := make(chan int, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	_, _ = io.Copy(more, strings.NewReader(strings.Repeat(" ", hook.MaxBody-1)))
	return func() int {
		_, _ = more.Write([]byte(" "))
		_ = more.Close()
		return <-status
	}
}

// elsewhere creates a Receiver in a namespace of its own, and returns its path.
func (h *hooks) elsewhere() string {
	h.Helper()
	namespace := testenv.Namespace(h)
	h.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "webhook-token"},
		StringData: map[string]string{"token": webhookToken}})
	r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "github"},
		Spec: notificationv1.ReceiverSpec{Type: "github", SecretRef: &meta.LocalObjectReference{Name: "webhook-token"},
			Resources: []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "app"}}}}
	h.Create(r)
	testenv.Eventually(h, "a path", func() error {
		if err := h.Client.Get(h.Context(), client.ObjectKeyFromObject(r), r); err != nil {
			return err
		}
		if r.Status.WebhookPath == "" {
			return errors.New("no path")
		}
		return nil
	})
	return r.Status.WebhookPath
}

// TestBodiesOfANamespaceAreBounded sends large bodies without their last bytes. They take what a namespace may have,
// and other namespaces do not notice.
func TestBodiesOfANamespaceAreBounded(t *testing.T) {
	h := newHooks(t, func(o *options.Options) { o.WatchAllNamespaces = true })
	path, other := h.ofApp("github", "github"), h.elsewhere()
	var held []func() int
	testenv.Eventually(t, "the limit", func() error {
		held = append(held, h.hold(path)) // several that are read at the same time can all lack memory
		resp, err := http.Post(h.url+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			return fmt.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
		return nil
	})
	if code, response := h.post(other, "{}"); code != http.StatusUnauthorized {
		t.Errorf("%d %s in another namespace", code, response)
	}
	for _, end := range held { // some of them had no memory for their last bytes
		if code := end(); code != http.StatusUnauthorized && code != http.StatusServiceUnavailable {
			t.Errorf("status %d of a held request", code)
		}
	}
	if code, response := h.post(path, "{}"); code != http.StatusUnauthorized {
		t.Errorf("%d %s after the requests completed", code, response)
	}
}

func TestWebhookInvalidHeaders(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app")
	path := h.ofApp("github", "github", func(s *notificationv1.ReceiverSpec) { s.Events = []string{"push"} })
	signed := "X-Hub-Signature-256: " + signature(pushed)
	for what, c := range map[string]struct {
		headers string
		codes   string
	}{
		"a signature over two lines": {headers: "X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=\r\n " +
			strings.TrimPrefix(signature(pushed), "sha256="), codes: "400 401"},
		"an event over two lines": {headers: signed + "\r\nX-GitHub-Event: pu\r\n\tsh", codes: "200 400"},
		"a carriage return in a header": {headers: signed + "\r\nX-GitHub-Event: star\rX-GitHub-Event: push",
			codes: "200 400"},
		"a zero byte in a header": {headers: signed + "\r\nX-GitHub-Event: push\x00", codes: "400"},
		"line without a colon":    {headers: signed + "\r\npush", codes: "400"},
		"a header without a name": {headers: signed + "\r\n: push", codes: "400"},
		"two lengths": {headers: signed + "\r\nX-GitHub-Event: push\r\nContent-Length: 1",
			codes: "400"},
		"headers of 100 KB": {headers: signed + "\r\nX-GitHub-Event: " + strings.Repeat("push", 25<<10),
			codes: "431"},
		"a signature with a line at end": {headers: "X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=00\\r\\n",
			codes: "401"},
	} {
		code := h.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s", path, len(pushed),
			c.headers), strings.NewReader(pushed))
		if !strings.Contains(c.codes, fmt.Sprint(code)) {
			t.Errorf("%s: %d", what, code)
		}
	}
	if got := h.requested(); got != "" {
		t.Errorf("reconciled: %s", got)
	}
}

func TestWebhookFilterErrors(t *testing.T) {
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
		`{"name":{"name":"app"}}`: http.StatusOK, // valid, but not equal
	} {
		if code, response := h.post(path, body); code != want {
			t.Errorf("%.20s: %d %s", body, code, response)
		}
	}
	if got := h.requested(); got != "" {
		t.Errorf("reconciled: %s", got)
	}
}

// TestReplayedWebhook shows what docs/receiver.md documents: a repeated delivery reconciles again, which is harmless.
func TestReplayedWebhook(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app")
	h.GitRepository("other")
	path := h.ofApp("github", "github")
	last := ""
	for range 3 {
		if code, response := h.post(path, pushed, "X-GitHub-Event", "push", "X-Hub-Signature-256", signature(pushed),
			"X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"); code != http.StatusOK {
			t.Fatalf("%d %s", code, response)
		}
		app := &sourcev1.GitRepository{}
		if err := h.Get(app, "app"); err != nil {
			t.Fatal(err)
		}
		asked := app.Annotations[meta.ReconcileRequestAnnotation]
		if asked <= last {
			t.Errorf("requested at %q, then at %q", last, asked)
		}
		last = asked
	}
	if got := h.requested(); got != "app" {
		t.Errorf("reconciled: %q, want app", got)
	}
}

// An Ingress may send a webhook to a replica that is not the leader.
func TestWebhookOnReplicaThatIsNotLeader(t *testing.T) {
	address := testenv.FreeAddress(t)
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
	r.SetWebhookPath(hook.Path(webhookToken, "github", h.Namespace)) // like the leader
	if err := h.Client.Status().Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the replica has the Receivers in its cache", func() error {
		return system.CheckStatus(h.url+"/hook/0", http.StatusNotFound)
	})
	if code, response := h.post(r.Status.WebhookPath, pushed, "X-GitHub-Event", "push", "X-Hub-Signature-256",
		signature(pushed)); code != http.StatusOK {
		t.Fatalf("%d %s", code, response)
	}
	if got := h.requested(); got != "app" {
		t.Errorf("reconciled: %q, want app", got)
	}
	app := &sourcev1.GitRepository{}
	if err := h.Get(app, "app"); err != nil || len(app.Status.Conditions) > 0 {
		t.Errorf("the replica reconciles: %+v (%v)", app.Status, err)
	}
}
