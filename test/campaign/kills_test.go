package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

const (
	killsUntilSettled = 10                      // after so many, everything must be as declared
	inFlight          = 1500 * time.Millisecond // how long before a kill a notification may be sent that is sent again
)

// TestCampaignKills kills the process at random times while objects are applied and pruned, a gate opens and closes,
// images are committed and events are delivered. Nothing may be lost or happen twice.
func TestCampaignKills(t *testing.T) {
	const short, full = 4, 1000
	e := begin(t, short, full)
	k := newKilled(t, e, t.TempDir())
	e.each(func(i int, random *rand.Rand) {
		k.change(random)
		k.work(time.Duration(random.IntN(1500))*time.Millisecond, random.IntN(2) == 0)
		k.controller.restart()
		k.kills = append(k.kills, time.Now())
		k.mustHold()
		if i%killsUntilSettled == killsUntilSettled-1 {
			k.settle()
		}
	})
	k.settle()
	k.mustReport()
	e.note("%d kills, %d commits, %d image commits, %d gate requests; %d posted events acknowledged, %d sent twice "+
		"as they were in flight; slowest recovery %s", len(k.kills), k.commits, k.robotCommits(), k.toggles,
		len(k.posted), k.repeated, k.slowest.Round(time.Second))
}

// killed is a tenant whose controllers are killed.
type killed struct {
	*tenant
	controller *controller
	registry   *ociregistry.Server
	inbox      *inbox
	events     string // address

	wanted  map[string]string // values of the ConfigMaps, by name
	commits int
	head    string // the last commit
	held    int    // the last commit that may be applied while the gate is closed, -1: the gate is open
	toggles int
	tags    int
	posted  map[string]bool // messages of acknowledged events
	posts   int

	kills    []time.Time
	settled  []string // commits after which everything was as declared
	repeated int      // notifications that were sent twice
	slowest  time.Duration
}

func newKilled(t *testing.T, e *experiment, storage string) *killed {
	t.Helper()
	k := &killed{tenant: newTenant(t, testenv.NewGit(t)), registry: ociregistry.New(t), inbox: newInbox(t),
		events: testenv.FreeAddress(t), wanted: map[string]string{}, posted: map[string]bool{}, held: -1}
	k.commit(e.random(-1))
	k.push()
	k.git.Commit(k.images(), map[string]string{"app.yaml": fmt.Sprintf(
		"image: %s:1.0.0 # {\"$imagepolicy\": \"%s:image\"}\n", k.image(), k.namespace)})
	k.declareAll(k.registry, k.inbox.URL)
	k.declareImages()
	k.controller = start(t, settings{storage: storage, namespace: k.namespace, isAlone: true, flags: []string{
		"--events-addr", k.events, "--insecure-events-unauthenticated"}})
	k.settle()
	return k
}

func (k *killed) images() string { return k.repo + "-images" }

func (k *killed) image() string { return k.registry.Host + "/" + k.repo }

// commit changes some ConfigMaps. The one with the name app has the number of the commit.
func (k *killed) commit(random *rand.Rand) {
	k.Helper()
	files := map[string]string{}
	set := func(name, value string) {
		k.wanted[name] = value
		files[name+".yaml"] = configMap(name, value)
	}
	for range 1 + random.IntN(6) {
		name := fmt.Sprint("cm-", random.IntN(20))
		if _, ok := k.wanted[name]; ok && random.IntN(3) == 0 {
			delete(k.wanted, name)
			files[name+".yaml"] = testenv.Delete
		} else {
			set(name, fmt.Sprint(random.Uint32()))
		}
	}
	k.commits++
	set("app", fmt.Sprint(k.commits))
	k.head = k.git.Commit(k.repo, files)
}

// push pushes the next version of the image.
func (k *killed) push() {
	k.Helper()
	k.registry.Push(k.repo, fmt.Sprintf("1.0.%d", k.tags), map[string]string{"n": fmt.Sprint(k.tags)})
	k.tags++
}

// change commits, and sometimes pushes an image or opens or closes the gate.
func (k *killed) change(random *rand.Rand) {
	k.Helper()
	if random.IntN(5) == 0 {
		k.toggle()
	}
	k.commit(random)
	k.fetch()
	if random.IntN(3) == 0 {
		k.push()
		k.tenant.request(&imagev1.ImageRepository{}, "image")
	}
}

// toggle opens or closes the gate, and waits until it is closed.
func (k *killed) toggle() {
	k.Helper()
	annotation, isOpen := gatingv1.CloseRequestedAtAnnotation, "False"
	if k.held >= 0 {
		annotation, isOpen, k.held = gatingv1.OpenRequestedAtAnnotation, "True", -1
	}
	k.toggles++
	at := time.Now().UTC().Truncate(time.Second)
	<-time.After(time.Until(at.Add(time.Second))) // requests have seconds: the next one is later than this one
	k.patchSpec(&gatingv1.Gate{}, "gate", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation,
		at.Add(time.Second).Format(time.RFC3339)))
	testenv.Eventually(k, "the gate has Opened="+isOpen, func() error {
		_ = k.controller.dead()
		gate, key := &gatingv1.Gate{}, types.NamespacedName{Namespace: k.namespace, Name: "gate"}
		if err := k.client.Get(context.Background(), key, gate); err != nil {
			return err
		}
		for _, c := range gate.Status.Conditions {
			if c.Type == gatingv1.OpenedCondition && string(c.Status) == isOpen {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", gate.Status.Conditions)
	})
	if isOpen == "False" {
		k.held = k.commits
	}
}

// work posts events for a time, or until the last commit is applied.
func (k *killed) work(d time.Duration, untilApplied bool) {
	k.Helper()
	const interval = 50 * time.Millisecond
	if untilApplied && k.held < 0 {
		d = time.Minute
	}
	for end := time.Now().Add(d); time.Now().Before(end) && (d < time.Minute || k.applied("app", k.head) != nil); {
		k.post()
		<-time.After(interval)
	}
}

// post posts an event as another program does, and records whether it was acknowledged.
func (k *killed) post() {
	k.Helper()
	k.posts++
	message := fmt.Sprint("posted ", k.posts)
	body := fmt.Sprintf(`{"involvedObject":{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization",`+
		`"namespace":%q,"name":"posted"},"severity":"info","reason":"Posted","message":%q,`+
		`"reportingController":"campaign"}`, k.namespace, message)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+k.events+"/", bytes.NewBufferString(body))
	if err != nil {
		k.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return // it is starting
	}
	defer resp.Body.Close() // it is empty
	if resp.StatusCode == http.StatusAccepted {
		k.posted[message] = true
	}
}

// mustHold fails the test if a commit passed the closed gate.
func (k *killed) mustHold() {
	k.Helper()
	number := 0
	value, err := k.value("app")
	if err == nil {
		_, err = fmt.Sscan(value, &number)
	}
	if err != nil {
		k.Fatal(err)
	}
	if k.held >= 0 && number > k.held {
		k.Fatalf("commit %d passed the gate, which was closed after commit %d", number, k.held)
	}
}

// settle opens the gate and waits until everything is as declared, committed and notified.
func (k *killed) settle() {
	k.Helper()
	begin := time.Now()
	if k.held >= 0 {
		k.toggle()
	}
	testenv.Eventually(k, "everything is as declared", func() error {
		_ = k.controller.dead()
		return errors.Join(k.applied("app", k.head), k.hasObjects(k.wanted), k.hasImage(), k.notified())
	})
	k.slowest, k.settled = max(k.slowest, time.Since(begin)), append(k.settled, k.head)
	k.mustNotRepeat()
	if commits := k.robotCommits(); commits > k.tags-1 {
		k.Fatalf("%d commits for %d images:\n%s", commits, k.tags-1, k.git.Run(k.images(), "log", "-p"))
	}
}

// robotCommits returns how many commits the automation has pushed, and fails the test if two are of one image.
func (k *killed) robotCommits() int {
	k.Helper()
	seen := map[string]bool{}
	log := k.git.Run(k.images(), "log", "--author", robot, "--format=%H")
	for _, hash := range strings.Fields(log) {
		content := k.git.Run(k.images(), "show", hash+":app.yaml")
		if seen[content] {
			k.Fatalf("two commits of %s", content)
		}
		seen[content] = true
	}
	return len(seen)
}
