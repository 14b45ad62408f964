package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/mcp"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// These tests list the objects of all namespaces.
func init() { testenv.OwnCluster() }

// site is a server in the cluster of the tests.
type site struct {
	*testing.T
	server    *mcp.Server
	client    client.WithWatch // of the administrator
	config    *rest.Config
	namespace string

	mu  sync.Mutex
	log []string
}

var installed sync.Once

// newSite starts a server for one local user, as `sluice mcp` does.
func newSite(t *testing.T, change ...func(*mcp.Options)) *site {
	t.Helper()
	cfg := testenv.Cluster(t)
	installed.Do(func() { definitions.Install(t, cfg) })
	s := &site{T: t, config: rest.CopyConfig(cfg), namespace: testenv.Namespace(t)}
	s.config.UserAgent = ui.MCPAgent
	var err error
	if s.client, err = client.NewWithWatch(s.config, client.Options{Scheme: kubeclient.Scheme()}); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	log := funcr.New(func(_, line string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, line)
	}, funcr.Options{})
	model := view.NewModel()
	model.Watch(t.Context(), s.client, "default")
	o := mcp.Options{Version: "v1", Log: log,
		UI:    &ui.Server{Model: model, Now: time.Now, Log: log, IsMCP: true, Namespace: s.namespace},
		Local: &ui.User{Name: "alice", Client: s.client, Cluster: clients, See: ui.SeeAll}}
	for _, f := range change {
		f(&o)
	}
	s.server = mcp.New(o)
	return s
}

func writes(o *mcp.Options) { o.AllowWrite = true }

func (s *site) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// connect returns a session of the client of the SDK over the pipes that stdio is.
func (s *site) connect() *sdk.ClientSession {
	s.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	guard.Go("MCP server of a test", func() {
		if err := s.server.Run(s.Context(), toServer, fromServer); err != nil {
			s.Errorf("the server ended: %v", err)
		}
	})
	return s.session(&sdk.IOTransport{Reader: toClient, Writer: fromClient})
}

func (s *site) session(t sdk.Transport) *sdk.ClientSession {
	s.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(s.Context(), t, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = session.Close() })
	return session
}

// reply is an answer of a tool.
type reply struct {
	Untrusted map[string]any
	Next      string
	Shortened bool
	Notice    string

	failed bool
	raw    string
}

// call calls a tool. The text of an answer must be the structured answer.
func (s *site) call(c *sdk.ClientSession, tool string, arguments map[string]any) reply {
	s.Helper()
	result, err := c.CallTool(s.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		s.Fatalf("%s: %v", tool, err)
	}
	raw, err := json.Marshal(result.StructuredContent)
	if err != nil {
		s.Fatal(err)
	}
	r := reply{failed: result.IsError, raw: string(raw)}
	if err := json.Unmarshal(raw, &r); err != nil || result.StructuredContent == nil {
		s.Fatalf("%s answered %s: %v", tool, texts(result), err)
	}
	return r
}

func texts(r *sdk.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

// ok calls a tool that must not fail, and returns its data.
func (s *site) ok(c *sdk.ClientSession, tool string, arguments map[string]any) map[string]any {
	s.Helper()
	r := s.call(c, tool, arguments)
	if r.failed {
		s.Fatalf("%s failed: %s", tool, r.raw)
	}
	return r.Untrusted
}

// fails calls a tool that must fail with a text.
func (s *site) fails(c *sdk.ClientSession, want, tool string, arguments map[string]any) {
	s.Helper()
	if r := s.call(c, tool, arguments); !r.failed || !strings.Contains(r.raw, want) {
		s.Errorf("%s answered %s, want a failure with %q", tool, r.raw, want)
	}
}

func (s *site) create(o client.Object) {
	s.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(s.namespace)
	}
	if err := s.client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// kustomization creates a Kustomization with the status that a controller gave it.
func (s *site) kustomization(name, message string) *kustomizev1.Kustomization {
	s.Helper()
	o := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kustomizev1.KustomizationSpec{
		Interval: meta.DurationOf(time.Hour), Prune: true, SourceRef: kustomizev1.SourceReference{
			Kind: "GitRepository", NamespacedName: meta.NamespacedName{Name: "repo"}}}}
	s.create(o)
	o.Status.Conditions = meta.Conditions{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "BuildFailed",
		Message: message, LastTransitionTime: metav1.Now()}}
	if err := s.client.Status().Update(s.Context(), o); err != nil {
		s.Fatal(err)
	}
	return o
}

// awaitObject waits until the server knows an object.
func (s *site) awaitObject(c *sdk.ClientSession, name string) {
	s.Helper()
	testenv.Eventually(s, "the object "+name, func() error {
		if r := s.ok(c, "list_objects", map[string]any{"namespace": s.namespace, "search": name}); r["total"] == 0.0 {
			return fmt.Errorf("total is %v", r["total"])
		}
		return nil
	})
}

// awaitText waits until the answer of a tool has a text: the server knows the status of an object after the object.
func (s *site) awaitText(c *sdk.ClientSession, text, tool string, arguments map[string]any) {
	s.Helper()
	testenv.Eventually(s, tool+" has "+text, func() error {
		if r := s.call(c, tool, arguments); r.failed || !strings.Contains(r.raw, text) {
			return errors.New(r.raw)
		}
		return nil
	})
}
