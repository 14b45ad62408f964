package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// imageStory is a registry, a git repository with Deployments of its images, and a team that gets notifications.
type imageStory struct {
	*testing.T
	client            client.Client
	git               *testenv.Git
	registry          *ociregistry.Server
	sluice, namespace string
	author            *openpgp.Entity
	inbox             inbox
}

// inbox records the events of a Provider.
type inbox struct {
	mu     sync.Mutex
	events []event.Event
}

func (h *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e event.Event
	if json.NewDecoder(r.Body).Decode(&e) == nil {
		h.mu.Lock()
		h.events = append(h.events, e)
		h.mu.Unlock()
	}
}

// of returns the events about a commit.
func (h *inbox) of(commit string) []event.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.events),
		func(e event.Event) bool { return !strings.HasSuffix(e.Metadata[event.Revision], commit) })
}

func newImageStory(t *testing.T) *imageStory {
	t.Helper()
	definitions.Install(t, testenv.Cluster(t))
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &imageStory{T: t, client: c, git: testenv.NewGit(t), registry: ociregistry.New(t),
		namespace: testenv.Namespace(t)}
	if s.sluice, err = testenv.Binary("sluice"); err != nil {
		t.Fatal(err)
	}
	if s.author, err = openpgp.NewEntity("Robot", "", "robot@example.com", nil); err != nil {
		t.Fatal(err)
	}
	team := httptest.NewServer(&s.inbox)
	t.Cleanup(team.Close)
	s.push("app", "1.0.0")
	s.push("worker", "1.0.0")
	s.git.Commit("fleet", map[string]string{
		"app.yaml":    s.deployment("app", `# {"$imagepolicy": "`+s.namespace+`:app"}`),
		"worker.yaml": s.deployment("worker", "# no policy"),
	})
	s.declare(team.URL)
	process := controller(t, s.sluice, testenv.Kubeconfig(t), s.namespace, t.TempDir())
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	return s
}

func (s *imageStory) image(name, tag string) string { return s.registry.Host + "/" + name + ":" + tag }

func (s *imageStory) push(name, tag string) {
	s.Helper()
	s.registry.Push(name, tag, map[string]string{"version": tag})
}

func (s *imageStory) deployment(name, comment string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers:
      - name: %[1]s
        image: %[2]s %[3]s
`, name, s.image(name, "1.0.0"), comment)
}

// declare creates the objects, like a user with kubectl.
func (s *imageStory) declare(team string) {
	s.Helper()
	var key bytes.Buffer
	w, err := armor.Encode(&key, openpgp.PrivateKeyType, nil)
	if err == nil {
		err = errors.Join(s.author.SerializePrivate(w, nil), w.Close())
	}
	if err != nil {
		s.Fatal(err)
	}
	quoted, err := json.Marshal(key.String())
	if err != nil {
		s.Fatal(err)
	}
	for _, manifest := range []string{
		`{apiVersion: v1, kind: Secret, metadata: {name: signing}, stringData: {git.asc: ` + string(quoted) + `}}`,
		`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: fleet},
  spec: {url: "` + s.git.URL + `/fleet", interval: 1h, ref: {branch: main}}}`,
		`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: fleet},
  spec: {interval: 1h, prune: true, wait: true, targetNamespace: ` + s.namespace +
			`, sourceRef: {kind: GitRepository, name: fleet}}}`,
		`{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImageRepository, metadata: {name: app},
  spec: {image: "` + s.registry.Host + `/app", insecure: true, interval: 1s}}`,
		`{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImagePolicy, metadata: {name: app},
  spec: {imageRepositoryRef: {name: app}, policy: {semver: {range: ">=1.0.0"}}}}`,
		`{apiVersion: gating.toolkit.fluxcd.io/v1alpha1, kind: Gate, metadata: {name: release},
  spec: {default: opened, interval: 30s}}`,
		`{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImageUpdateAutomation, metadata: {name: fleet},
  spec: {interval: 1h, sourceRef: {kind: GitRepository, name: fleet}, gates: [{name: release}],
    git: {commit: {author: {name: Robot, email: robot@example.com}, signingKey: {secretRef: {name: signing}}}}}}`,
		`{apiVersion: notification.toolkit.fluxcd.io/v1, kind: Provider, metadata: {name: team},
  spec: {type: generic, address: "` + team + `"}}`,
		`{apiVersion: notification.toolkit.fluxcd.io/v1, kind: Alert, metadata: {name: team},
  spec: {providerRef: {name: team}, eventSources: [{kind: Kustomization, name: "*"}],
    inclusionList: ["^Applied revision"]}}`,
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
			s.Fatalf("%v in %s", err, manifest)
		}
		o.SetNamespace(s.namespace)
		if err := s.client.Create(s.Context(), o, client.FieldValidation("Strict")); err != nil {
			s.Fatal(err)
		}
	}
}

// runs waits until the rollout of an image is complete.
func (s *imageStory) runs(name, tag string) {
	s.Helper()
	testenv.Eventually(s, name+" runs "+tag, func() error {
		d := &appsv1.Deployment{}
		if err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, d); err != nil {
			return err
		}
		if image := d.Spec.Template.Spec.Containers[0].Image; image != s.image(name, tag) ||
			d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 1 {
			return fmt.Errorf("image %s, automation: %s", image, s.automation())
		}
		return nil
	})
}

// automation returns the conditions of the automation as text.
func (s *imageStory) automation() string {
	a := &imagev1.ImageUpdateAutomation{}
	if err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "fleet"}, a); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%+v", a.Status.Conditions)
}

func (s *imageStory) head() string { return s.git.Run("fleet", "rev-parse", "main") }

// committed checks that the head of the branch is a commit by the robot, signed by its key, with a note that names the
// image. It returns the hash.
func (s *imageStory) committed(image string) string {
	s.Helper()
	head := s.head()
	repository, err := gogit.PlainOpen(s.git.Root + "/fleet.git")
	if err != nil {
		s.Fatal(err)
	}
	commit, err := repository.CommitObject(plumbing.NewHash(head))
	if err != nil {
		s.Fatal(err)
	}
	var public bytes.Buffer
	w, err := armor.Encode(&public, openpgp.PublicKeyType, nil)
	if err == nil {
		err = errors.Join(s.author.Serialize(w), w.Close())
	}
	if err != nil {
		s.Fatal(err)
	}
	if _, err := commit.Verify(public.String()); err != nil || commit.Author.Email != "robot@example.com" {
		s.Errorf("commit by %s: %v", commit.Author, err)
	}
	if note := s.git.Run("fleet", "notes", "--ref", "refs/notes/sluice", "show", head); !strings.Contains(note, image) {
		s.Errorf("the note lacks %s:\n%s", image, note)
	}
	return head
}

// notifiedOnce waits for the notification about a commit with its note, and checks that there is only one.
func (s *imageStory) notifiedOnce(commit, image string) {
	s.Helper()
	testenv.Eventually(s, "the team is notified of "+image, func() error {
		if events := s.inbox.of(commit); len(events) == 0 {
			return errors.New("no notification")
		}
		return nil
	})
	events := s.inbox.of(commit)
	if len(events) != 1 || !strings.Contains(events[0].Metadata[event.Note], image) {
		s.Errorf("%d notifications: %+v", len(events), events)
	}
}

func TestNewTagIsDeployed(t *testing.T) {
	s := newImageStory(t)
	s.runs("app", "1.0.0")
	s.runs("worker", "1.0.0")

	s.push("app", "1.1.0")
	s.runs("app", "1.1.0")
	s.notifiedOnce(s.committed(s.image("app", "1.1.0")), s.image("app", "1.1.0"))

	// An image without a policy is released by command.
	s.push("worker", "2.0.0")
	s.cli("image", "release", "Deployment/worker", "--image", s.image("worker", "2.0.0"), "--reason",
		"the queue is long", "--author", "Ada <ada@example.com>")
	s.runs("worker", "2.0.0")
	released := s.head()
	if note := s.git.Run("fleet", "notes", "--ref", "refs/notes/sluice", "show", released); !strings.Contains(note,
		"the queue is long") || !strings.Contains(note, "Ada") {
		t.Errorf("the note lacks author or reason:\n%s", note)
	}
	s.notifiedOnce(released, s.image("worker", "2.0.0"))

	// A closed gate holds the commit, not the scan of the registry.
	s.cli("gate", "close", "release", "--reason", "freeze")
	s.untilGate(metav1.ConditionFalse)
	s.push("app", "1.2.0")
	testenv.Eventually(t, "the policy has 1.2.0", func() error {
		p := &imagev1.ImagePolicy{}
		if err := s.client.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: "app"}, p); err != nil {
			return err
		}
		if p.Status.LatestRef == nil || p.Status.LatestRef.Tag != "1.2.0" {
			return fmt.Errorf("%+v", p.Status.LatestRef)
		}
		return nil
	})
	s.untilGate(metav1.ConditionFalse)
	if head := s.head(); head != released {
		t.Errorf("commit %s was pushed behind a closed gate", head)
	}
	s.cli("gate", "open", "release", "--reason", "thaw")
	s.runs("app", "1.2.0")
	s.notifiedOnce(s.committed(s.image("app", "1.2.0")), s.image("app", "1.2.0"))
}

// untilGate waits until the condition Approved of the automation has a status.
func (s *imageStory) untilGate(approved metav1.ConditionStatus) {
	s.Helper()
	testenv.Eventually(s, "the automation has observed the gate", func() error {
		a := &imagev1.ImageUpdateAutomation{}
		if err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "fleet"},
			a); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(a.Status.Conditions, "Approved"); c == nil || c.Status != approved {
			return fmt.Errorf("%+v", a.Status.Conditions)
		}
		return nil
	})
}

// cli runs a command of sluice.
func (s *imageStory) cli(args ...string) {
	s.Helper()
	args = append(args, "--kubeconfig", testenv.Kubeconfig(s), "-n", s.namespace)
	if out, err := exec.CommandContext(context.WithoutCancel(s.Context()), s.sluice, args...).
		CombinedOutput(); err != nil {
		s.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
