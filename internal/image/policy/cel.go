package policy

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Variables of expressions: those of the name alone, and those that only the image tells.
var (
	nameVariables   = []string{"tag", "extracted"}
	detailVariables = append([]string{"digest", "labels", "platforms", "created"}, nameVariables...)
)

// condition is an expression over a tag. A tag for which it cannot be evaluated, as it has no such label,
// does not count.
type condition struct {
	field   string
	of      *expression.Expression
	details bool

	mu  sync.Mutex
	err error // of the first tag for which it could not be evaluated
}

func newCondition(source string) (*condition, error) {
	return compile("spec.policy.cel.filter", source, expression.Compile)
}

func newValue(source string) (*condition, error) {
	return compile("spec.policy.cel.order", source, expression.CompileValue)
}

// compile finds out what an expression needs: details only if it does not compile without them.
func compile(field, source string, with func(string, ...string) (*expression.Expression, error)) (*condition, error) {
	c := &condition{field: field}
	var err error
	if c.of, err = with(source, nameVariables...); err == nil {
		return c, nil
	}
	c.details = true
	if c.of, err = with(source, detailVariables...); err != nil {
		return nil, fault.New(meta.InvalidCELExpressionReason, "%s is no expression", field).Because(err).Final()
	}
	return c, nil
}

// Variable implements [expression.Variables].
func (c candidate) Variable(name string) (any, bool) {
	switch name {
	case "tag":
		return c.Name, true
	case "extracted":
		return c.text, true
	case "digest":
		return c.Digest, true
	case "labels":
		return c.Labels, true
	case "platforms":
		return c.Platforms, true
	case "created":
		return c.Created, true
	default:
		return nil, false
	}
}

func (c *condition) holds(ctx context.Context, of candidate) bool {
	ok, err := c.of.Holds(ctx, of)
	c.note(of, err)
	return ok && err == nil
}

// note keeps the first error, for when nothing is left.
func (c *condition) note(of candidate, err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = fmt.Errorf("of tag '%s': %w", of.Name, err)
	}
}

// explain returns why nothing is left, if the expression is why.
func (c *condition) explain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return fault.New(meta.InvalidCELExpressionReason, "%s holds for no tag", c.field).Because(c.err).
		WithHint("Guard what may not be there, as in labels.?team.orValue('') == 'shop'")
}

// order sorts by the value of the expression, the greatest first.
func (c *condition) order(ctx context.Context, candidates []candidate) ([]candidate, error) {
	key := func(ctx context.Context, of candidate) (ref.Val, bool) {
		value, err := c.of.Value(ctx, of)
		c.note(of, err)
		v, ok := value.(ref.Val)
		return v, ok && err == nil
	}
	var mixed error
	ranked, err := rank(ctx, candidates, key, func(a, b ref.Val) int {
		order, err := compareValues(a, b)
		if err != nil {
			mixed = err
		}
		return order
	})
	switch {
	case err != nil:
		return nil, err
	case mixed != nil:
		return nil, fault.New(imagev1.InvalidPolicyReason, "%s gives values that have no order", c.field).
			Because(mixed).
			WithHint("Let it give a number, a string or a time for every tag")
	case len(ranked) == 0 && len(candidates) > 0:
		return nil, c.explain()
	}
	return ranked, nil
}

func compareValues(a, b ref.Val) (int, error) {
	comparable, ok := a.(traits.Comparer)
	if !ok {
		return 0, fmt.Errorf("a %s", a.Type().TypeName())
	}
	order, ok := comparable.Compare(b).(types.Int)
	if !ok {
		return 0, fmt.Errorf("a %s and a %s", a.Type().TypeName(), b.Type().TypeName())
	}
	return int(order), nil
}
