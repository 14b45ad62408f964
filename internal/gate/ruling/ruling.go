// Package ruling decides about a change by the rules of a gate, which are CEL expressions over the content of the
// change. It is stateless and sends no requests.
package ruling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxTime    = 10 * time.Second // of all rules of a gate for one change
	maxMessage = 300              // characters
)

// variables are those of the expressions.
var variables = []string{"change", "object"}

// Rules are the compiled rules of a gate. They are safe for concurrent use.
type Rules struct{ rules []rule }

type rule struct {
	gatingv1.Rule
	condition *expression.Expression
}

// Compile compiles the rules of a gate. The error is a terminal fault.
func Compile(spec []gatingv1.Rule) (*Rules, error) {
	out := &Rules{}
	for _, r := range spec {
		condition, err := expression.Compile(r.Expression, variables...)
		if err == nil && (r.Outcome == gatingv1.OutcomeApprovals) != (r.Approvals != nil) {
			err = errors.New("approvals must be set if the outcome is approvals, and only then")
		}
		if err != nil {
			return nil, fault.New(gatingv1.InvalidRuleReason, "rule '%s' is invalid", r.Name).Because(err).
				WithHint("Correct it in spec.rules; no change passes until then").Final()
		}
		out.rules = append(out.rules, rule{Rule: r, condition: condition})
	}
	return out, nil
}

// Bounds of what a [Cache] keeps.
const (
	maxCached = 64 << 20 // bytes
	// textFactor is the memory of a compiled expression for each byte of its text, at most (TestMemoryOfRules).
	textFactor = 500
	ruleBytes  = 4 << 10 // memory of any compiled rule
)

// Cache keeps the compiled rules of the gates that were asked last. Its zero value is ready to use. It is safe for
// concurrent use.
type Cache struct{ kept lru.Cache[Key, *cached] }

// Len returns the number of gates whose rules are kept.
func (c *Cache) Len() int { return c.kept.Len() }

// Key identifies the rules of a gate.
type Key struct {
	Namespace, Name string
	UID             types.UID
	Generation      int64
}

type cached struct {
	rules *Rules
	err   error
}

// Compile is [Compile] for the rules of a gate, unless they are cached.
func (c *Cache) Compile(key Key, spec []gatingv1.Rule) (*Rules, error) {
	if known, ok := c.kept.Get(key); ok {
		return known.rules, known.err
	}
	rules, err := Compile(spec)
	size := int64(0)
	for _, r := range spec {
		size += ruleBytes + int64(len(r.Expression))*textFactor
	}
	c.kept.Add(key, &cached{rules, err}, size, lru.Limits{Size: maxCached})
	return rules, err
}

// Asker is the object that asks a gate.
type Asker struct {
	Kind, Namespace, Name string
	Labels                map[string]string
}

// Of returns the first rule that applies to a change; nil if none does. Rules after it are not evaluated. The error is
// why the rules could not be evaluated: the change must not pass then.
func (r *Rules) Of(ctx context.Context, c *risk.Change, by Asker) (*gatingv1.Rule, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	labels := map[string]any{}
	for k, v := range by.Labels {
		labels[k] = v
	}
	vars := expression.Map{"change": known(ctx, c), "object": map[string]any{
		"kind": by.Kind, "namespace": by.Namespace, "name": by.Name, "labels": labels}}
	for i := range r.rules {
		applies, err := r.rules[i].condition.Holds(ctx, vars)
		switch {
		case err != nil:
			text := c.Redact(excerpt.Line(err.Error(), maxMessage))
			return nil, fmt.Errorf("its rule '%s' cannot be evaluated: %s", r.rules[i].Name, text)
		case applies:
			return &r.rules[i].Rule, nil
		}
	}
	return nil, nil
}

// known returns the value of a change without what is not known, so that an expression which asks for it fails instead
// of taking nothing for an answer.
func known(ctx context.Context, c *risk.Change) map[string]any {
	value := c.Value(c.Level(ctx))
	if c.Author == "" {
		delete(value, "author")
	}
	if c.Message == "" {
		delete(value, "message")
	}
	if c.Signers == nil {
		delete(value, "signers")
	}
	if c.Files == nil {
		delete(value, "files")
	}
	return value
}
