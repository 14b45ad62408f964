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
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Variables of expressions: those that only need the name of the tag, and those that need details of the image.
var (
	nameVariables   = []string{"tag", "extracted"}
	detailVariables = append([]string{"digest", "labels", "platforms", "created"}, nameVariables...)
)

// condition is an expression over a tag. A tag for which the evaluation fails, for example as it does not
// have a label, does not match.
type condition struct {
	field    string
	compiled *expression.Expression
	details  bool

	mu  sync.Mutex
	err error // of the first tag for which the evaluation failed
}

func newCondition(source string) (*condition, error) {
	return compile("spec.policy.cel.filter", source, expression.Compile)
}

func newValue(source string) (*condition, error) {
	return compile("spec.policy.cel.order", source, expression.CompileValue)
}

// compile compiles an expression. It needs details only if it does not compile without them.
func compile(field, source string, compile func(string, ...string) (*expression.Expression, error)) (*condition,
	error) {
	c := &condition{field: field}
	var err error
	if c.compiled, err = compile(source, nameVariables...); err == nil {
		return c, nil
	}
	c.details = true
	if c.compiled, err = compile(source, detailVariables...); err != nil {
		return nil, fault.New(meta.InvalidCELExpressionReason, "%s is not a valid CEL expression", field).
			Because(err).Final()
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

func (c *condition) holds(ctx context.Context, tag candidate) bool {
	ok, err := c.compiled.Holds(ctx, tag)
	c.recordError(tag, err)
	return ok && err == nil
}

// recordError records the first error, to explain an empty result.
func (c *condition) recordError(tag candidate, err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = fmt.Errorf("tag '%s': %w", tag.Name, err)
	}
}

// explain returns the error to report for an empty result; nil if the expression did not fail.
func (c *condition) explain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return fault.New(meta.InvalidCELExpressionReason, "%s matches no tag", c.field).Because(c.err).
		WithHint("Check for missing values in the expression, such as labels.?team.orValue('') == 'shop'")
}

// order sorts by the value of the expression, greatest first.
func (c *condition) order(ctx context.Context, candidates []candidate) ([]candidate, error) {
	key := func(ctx context.Context, tag candidate) (ref.Val, bool) {
		value, err := c.compiled.Value(ctx, tag)
		c.recordError(tag, err)
		v, ok := value.(ref.Val)
		return v, ok && err == nil
	}
	var incomparable error
	ranked, err := rank(ctx, candidates, key, func(a, b ref.Val) int {
		order, err := compareValues(a, b)
		if err != nil {
			incomparable = err
		}
		return order
	})
	switch {
	case err != nil:
		return nil, err
	case incomparable != nil:
		return nil, fault.New(imagev1.InvalidPolicyReason, "%s returns values that cannot be compared", c.field).
			Because(incomparable).
			WithHint("Let the expression return a number, a string or a timestamp for every tag")
	case len(ranked) == 0 && len(candidates) > 0:
		return nil, c.explain()
	}
	return ranked, nil
}

func compareValues(a, b ref.Val) (int, error) {
	comparable, ok := a.(traits.Comparer)
	if !ok {
		return 0, fmt.Errorf("type %s", a.Type().TypeName())
	}
	order, ok := comparable.Compare(b).(types.Int)
	if !ok {
		return 0, fmt.Errorf("types %s and %s", a.Type().TypeName(), b.Type().TypeName())
	}
	return int(order), nil
}
