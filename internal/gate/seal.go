package gate

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// sealedStatus is the part of a status that decides whether a gate is open, now and after a restart.
type sealedStatus struct {
	Opened   bool                   `json:"opened"`
	Next     *gatingv1.Transition   `json:"next,omitempty"`
	Approved []string               `json:"approved,omitempty"`
	Checks   []gatingv1.CheckResult `json:"checks,omitempty"`

	Changes    []gatingv1.ApprovedChange `json:"changes,omitempty"`
	Overridden bool                      `json:"overridden,omitempty"`
	Failures   []gatingv1.FailedChange   `json:"failures,omitempty"`
	Failed     bool                      `json:"failed,omitempty"`
	Waves      []gatingv1.WaveProgress   `json:"waves,omitempty"`
	Refusal    string                    `json:"refusal,omitempty"`
	From       int64                     `json:"from,omitempty"` // Unix time since when it holds; 0: unknown
}

// sealedParts returns what the seal of a gate covers, from a time on, for a generation that its status is about.
func sealedParts(g *gatingv1.Gate, from, generation, sequence int64) []string {
	status, err := json.Marshal(sealedStatus{
		Opened: apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition),
		Next:   g.Status.NextTransition, Approved: g.Status.ApprovedRevisions, Checks: g.Status.Checks,
		Changes: g.Status.ApprovedChanges, Overridden: decision.IsOverridden(g),
		Failures: g.Status.Failures, Failed: decision.IsFailureHold(g), Waves: g.Status.Waves,
		Refusal: g.Status.HandledRefusal, From: from,
	})
	if err != nil {
		return nil // cannot happen: the types have no other form
	}
	return []string{"gate", g.Namespace, g.Name, string(g.UID), strconv.FormatInt(generation, 10),
		strconv.FormatInt(sequence, 10), string(status)}
}

// isSealed reports whether a controller wrote the state of a gate.
func isSealed(key *seal.Key, g *gatingv1.Gate) bool {
	s := g.Status.Seal
	if s == nil {
		return false
	}
	code, from := decision.SplitSeal(s.Value)
	return key.Verify(code, sealedParts(g, from, g.Status.ObservedGeneration, s.Sequence)...)
}

// sealer seals the status of gates. A new state has a higher sequence number than all states before, so that an
// earlier status that is written back is not accepted. It is safe for concurrent use.
type sealer struct {
	mu   sync.Mutex
	last map[types.UID]int64 // the last sequence number
}

// verify reports whether the status of a gate is sealed. If it is not, its checks must run again.
func (s *sealer) verify(key *seal.Key, g *gatingv1.Gate) bool {
	if !isSealed(key, g) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.Status.Seal.Sequence < s.last[g.UID] {
		return false
	}
	s.set(g.UID, g.Status.Seal.Sequence)
	return true
}

// seal seals the status of a gate for its current generation. It keeps a seal that is valid still: the state, with its
// next transition, holds from the time of the seal on.
func (s *sealer) seal(key *seal.Key, g *gatingv1.Gate, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[g.UID]
	if current := g.Status.Seal; current != nil && current.Sequence == last && !decision.IsSealedLater(g, now) {
		code, from := decision.SplitSeal(current.Value)
		if from > 0 && key.Verify(code, sealedParts(g, from, g.Generation, last)...) {
			return
		}
	}
	next := max(last+1, now.UnixMilli()) // the first one of a process follows those of earlier processes
	code := key.Seal(sealedParts(g, now.Unix(), g.Generation, next)...)
	g.Status.Seal = &gatingv1.Seal{Sequence: next,
		Value: code + decision.SealSeparator + strconv.FormatInt(now.Unix(), 10)}
	s.set(g.UID, next)
}

func (s *sealer) set(gate types.UID, sequence int64) {
	if s.last == nil {
		s.last = map[types.UID]int64{}
	}
	s.last[gate] = sequence
}

func (s *sealer) forget(gate types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, gate)
}
