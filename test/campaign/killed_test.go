package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// robot is the author of image commits.
const robot = "robot@example.com"

// declareImages creates the policy of the image, and the automation that commits it.
func (n *tenant) declareImages() {
	n.Helper()
	n.create(n.source("images", func(g *sourcev1.GitRepository) { g.Spec.URL += "-images" }),
		&imagev1.ImagePolicy{ObjectMeta: n.named("image"), Spec: imagev1.ImagePolicySpec{
			ImageRepositoryRef: meta.NamespacedName{Name: "image"},
			Policy:             imagev1.ImagePolicyChoice{SemVer: &imagev1.SemVerPolicy{Range: ">=1.0.0"}}}},
		&imagev1.ImageUpdateAutomation{ObjectMeta: n.named("images"), Spec: imagev1.ImageUpdateAutomationSpec{
			Interval:  hour,
			SourceRef: imagev1.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: "images"},
			GitSpec: &imagev1.GitSpec{Commit: imagev1.CommitSpec{
				Author: imagev1.CommitUser{Name: "Robot", Email: robot}}}}})
}

// hasImage returns an error unless the last image is committed.
func (k *killed) hasImage() error {
	content := k.git.Run(k.images(), "show", "main:app.yaml")
	if want := fmt.Sprintf("%s:1.0.%d ", k.image(), k.tags-1); !strings.Contains(content, want) {
		return fmt.Errorf("the repository has %s, want %s: %s", content, want, k.imageStatus())
	}
	return nil
}

// imageStatus returns the status of the objects that update images.
func (k *killed) imageStatus() string {
	repository, policy := &imagev1.ImageRepository{}, &imagev1.ImagePolicy{}
	automation := &imagev1.ImageUpdateAutomation{}
	image := client.ObjectKey{Namespace: k.namespace, Name: "image"}
	err := errors.Join(k.client.Get(context.Background(), image, repository),
		k.client.Get(context.Background(), image, policy),
		k.client.Get(context.Background(), client.ObjectKey{Namespace: k.namespace, Name: "images"}, automation))
	return fmt.Sprintf("scanned %v, chose %v, automation %v, error %v", repository.Status.Conditions,
		policy.Status.LatestRef, automation.Status.Conditions, err)
}

// notified returns an error unless all acknowledged events were delivered.
func (k *killed) notified() error {
	received := map[string]bool{}
	for _, n := range k.inbox.all() {
		received[n.event.Message] = true
	}
	var lost []string
	for message := range k.posted {
		if !received[message] {
			lost = append(lost, message)
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("%d of %d acknowledged events are not delivered, such as '%s'", len(lost), len(k.posted),
			lost[0])
	}
	return nil
}

// mustReport fails the test if a commit that was applied when everything was as declared has no notification. The last
// one may still be on its way.
func (k *killed) mustReport() {
	k.Helper()
	reported := map[string]bool{}
	for _, n := range k.inbox.all() {
		if _, commit, ok := strings.Cut(n.event.Metadata[event.Revision], "sha1:"); ok &&
			n.event.Reason == "ReconciliationSucceeded" {
			reported[commit] = true
		}
	}
	for _, head := range k.settled[:len(k.settled)-1] {
		if !reported[head] {
			k.Errorf("commit %s was applied without a notification", head)
		}
	}
}

// mustNotRepeat fails the test if a notification was sent twice, other than those in flight at a kill.
func (k *killed) mustNotRepeat() {
	k.Helper()
	first, repeated := map[string]time.Time{}, 0
	for _, n := range k.inbox.all() {
		e := n.event
		if !strings.HasPrefix(e.Message, "posted ") && e.Reason != "ReconciliationSucceeded" {
			continue // failures may repeat
		}
		key := e.InvolvedObject.Kind + e.InvolvedObject.Name + e.Message + e.Metadata[event.Revision]
		before, ok := first[key]
		first[key] = n.at
		if !ok {
			continue
		}
		repeated++
		wasInFlight := false
		for _, at := range k.kills {
			wasInFlight = wasInFlight || at.After(before.Add(-inFlight)) && at.Before(n.at) && at.Sub(before) < inFlight
		}
		if !wasInFlight {
			k.Errorf("sent twice, at %s and %s: %s", before.Format(time.StampMilli), n.at.Format(time.StampMilli), key)
		}
	}
	k.repeated = repeated
}

// notification is an event that an inbox received.
type notification struct {
	at    time.Time
	event event.Event
}

// all returns the events in the order of their arrival.
func (i *inbox) all() []notification {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]notification(nil), i.received...)
}

// receive keeps the event of a request.
func (i *inbox) receive(_ http.ResponseWriter, r *http.Request) {
	var e event.Event
	if json.NewDecoder(r.Body).Decode(&e) != nil {
		return // the sender ended
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.received = append(i.received, notification{at: time.Now(), event: e})
}
