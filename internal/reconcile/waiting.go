package reconcile

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/gate/decision"
)

const (
	waitingAt   = "; waiting at gate " // separates what an object is from what it waits for, in the message of Ready
	shortDigest = 8                    // characters of a digest in this message
	maxRevision = 80                   // bytes
)

// describeWaiting adds to the message of Ready which change waits at which gates, or removes it if none waits. Ready
// keeps everything else: the object is still what it was.
func describeWaiting(obj Object, held []decision.Decision, pending *meta.Pending) {
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	if c == nil || c.Status == metav1.ConditionUnknown {
		return
	}
	c.Message = withoutWaiting(c.Message)
	if pending == nil || pending.Revision == "" || len(held) == 0 {
		return
	}
	var gates []string
	for _, d := range held[:min(len(held), maxClosed)] {
		name := "'" + d.Gate.String() + "'"
		if d.Gate.Namespace == obj.GetNamespace() {
			name = "'" + d.Gate.Name + "'"
		}
		if d.Code == decision.NotFound {
			name += " (not found)"
		}
		gates = append(gates, name)
	}
	if more := len(held) - maxClosed; more > 0 {
		gates = append(gates, fmt.Sprintf("and %d more", more))
	}
	text := waitingAt + strings.Join(gates, ", ") + " for " + shortRevision(pending.Revision)
	switch n := pending.Created + pending.Configured + pending.Deleted; n {
	case 0:
	case 1:
		text += " (1 change)"
	default:
		text += fmt.Sprintf(" (%d changes)", n)
	}
	c.Message = excerpt.Bytes(c.Message, maxMessage-len(text)) + text
}

// withoutWaiting returns the message of Ready without what [describeWaiting] added.
func withoutWaiting(message string) string {
	before, _, _ := strings.Cut(message, waitingAt)
	return before
}

// shortRevision shortens the digest at the end of a revision, such as that of main@sha1:<hex>.
func shortRevision(revision string) string {
	revision, _, _ = strings.Cut(revision, "\n")
	i := strings.LastIndexByte(revision, ':') + 1
	if digest := revision[i:]; len(digest) > 2*shortDigest && strings.Trim(digest, "0123456789abcdef") == "" {
		revision = revision[:i+shortDigest]
	}
	return excerpt.Bytes(revision, maxRevision)
}
