package reconcile

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	thenWaits   = "; " // between what an object is and what it waits for, in the message of Ready
	waitingAt   = "waiting at gate "
	shortDigest = 8  // characters of a digest in this message
	maxRevision = 80 // bytes
)

// describeWaiting adds to the message of Ready which change waits at which gates, or removes it if none waits. Ready
// keeps everything else: the object is still what it was.
func describeWaiting(obj Object, h *meta.Held) {
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	if c == nil || c.Status == metav1.ConditionUnknown {
		return
	}
	c.Message = withoutWaiting(c.Message)
	if text := WaitingAt(obj.GetNamespace(), h); text != "" {
		text = thenWaits + text
		c.Message = excerpt.Bytes(c.Message, maxMessage-len(text)) + text
	}
}

// WaitingAt says which change of an object in a namespace waits at which gates; empty if none waits.
func WaitingAt(namespace string, h *meta.Held) string {
	if h.Pending == nil || h.Pending.Revision == "" || len(h.HeldBy) == 0 {
		return ""
	}
	var gates []string
	for _, by := range h.HeldBy[:min(len(h.HeldBy), maxClosed)] {
		name := "'" + strings.TrimPrefix(by.Gate, namespace+"/") + "'"
		if by.Code == decision.NotFound.Name {
			name += " (not found)"
		}
		gates = append(gates, name)
	}
	if more := len(h.HeldBy) - maxClosed; more > 0 {
		gates = append(gates, fmt.Sprintf("and %d more", more))
	}
	text := waitingAt + strings.Join(gates, ", ") + " for " + shortRevision(h.Pending.Revision)
	switch n := h.Pending.Created + h.Pending.Configured + h.Pending.Deleted; n {
	case 0:
	case 1:
		text += " (1 change)"
	default:
		text += fmt.Sprintf(" (%d changes)", n)
	}
	return text
}

// withoutWaiting returns the message of Ready without what [describeWaiting] added.
func withoutWaiting(message string) string {
	before, _, _ := strings.Cut(message, thenWaits+waitingAt)
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
