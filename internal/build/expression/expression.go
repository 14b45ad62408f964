// Package expression evaluates CEL expressions (github.com/google/cel-spec) that users write over Kubernetes
// objects. They are compiled once and type-checked. Their length, cost and time are limited. The package
// does not access a cluster.
package expression

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxLength = 16 << 10    // bytes of an expression
	maxCost   = 1_000_000   // units of an evaluation; see meter
	maxValue  = maxCost / 4 // weight of a result that other expressions can use
	maxTime   = time.Second
	maxSteps  = 64      // of a brief expression
	maxError  = 2 << 10 // bytes of the error of a compilation
)

// readers are the functions that create no values of variable size and only read their arguments.
var readers = []string{
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater,
	operators.GreaterEquals,
	operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, operators.In,
	operators.Index, operators.OptIndex, operators.OptSelect,
	overloads.Size, overloads.Contains, overloads.StartsWith, overloads.EndsWith, "hasValue", "orValue",
}

const truth = "true or false" // result of conditions

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	source  string
	program cel.Program
	brief   bool
}

// Variables provides the variables of an expression: a [Map], or values that are computed on demand.
type Variables interface {
	// Variable returns the value of a variable, and whether it exists.
	Variable(name string) (value any, ok bool)
}

// Map holds variables by name.
type Map map[string]any

// Variable implements [Variables].
func (m Map) Variable(name string) (any, bool) {
	value, ok := m[name]
	return value, ok
}

// Compile compiles an expression that returns true or false. It may use the named variables, which have dynamic types.
// The error contains the position of a mistake.
func Compile(source string, variables ...string) (*Expression, error) {
	return compile(source, variables, truth, cel.BoolType, cel.DynType)
}

// CompileText is [Compile] for an expression that returns a string.
func CompileText(source string, variables ...string) (*Expression, error) {
	return compile(source, variables, "a text", cel.StringType, cel.DynType)
}

// CompileValue is [Compile] for an expression that returns a value of any type.
func CompileValue(source string, variables ...string) (*Expression, error) {
	return compile(source, variables, "")
}

func compile(source string, variables []string, wanted string, gives ...*cel.Type) (*Expression, error) {
	if len(source) > maxLength {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxLength)
	}
	env, err := environment(variables)
	if err != nil {
		return nil, err
	}
	checked, err := check(env, source)
	if err != nil {
		return nil, err
	}
	if t := checked.OutputType(); gives != nil && !slices.Contains(gives, t) {
		return nil, fmt.Errorf("the expression gives a %s, not %s", t, wanted)
	}
	e := &Expression{source: source, brief: brief(checked.NativeRep().Expr())}
	var bounds []cel.ProgramOption
	if !e.brief {
		bounds = append(bounds, metered(checked))
	}
	if e.program, err = env.Program(checked, bounds...); err != nil {
		return nil, err
	}
	return e, nil
}

// check parses an expression and checks its types.
func check(env *cel.Env, source string) (*cel.Ast, error) {
	parsed, issues := env.Parse(source)
	if issues.Err() == nil {
		if err := boundTypes(parsed.NativeRep().Expr()); err != nil {
			return nil, err
		}
		parsed, issues = env.Check(parsed)
	}
	if err := issues.Err(); err != nil {
		return nil, errors.New(excerpt.Bytes(err.Error(), maxError)) // it may contain long types
	}
	return parsed, nil
}

// environments are those of expressions by their variables, of which the program has few sets.
var environments sync.Map

// environment returns the environment of expressions with some variables. Expressions share it, as a new one takes more
// time and memory than most expressions.
func environment(variables []string) (*cel.Env, error) {
	key := strings.Join(variables, " ")
	if known, ok := environments.Load(key); ok {
		return known.(*cel.Env), nil
	}
	options := []cel.EnvOption{cel.OptionalTypes(), cel.HomogeneousAggregateLiterals(), ext.Strings(), ext.Lists(),
		ext.Sets(), ext.Math(), ext.Encoders(), ext.TwoVarComprehensions()}
	for _, v := range variables {
		options = append(options, cel.Variable(v, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err == nil {
		environments.Store(key, env)
	}
	return env, err
}

// brief reports whether an expression is fast for any input: it has few steps, no loops, and creates no values of
// variable size. For such an expression, cost tracking takes longer than the evaluation.
func brief(e ast.Expr) bool {
	steps, reads := 0, true
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		steps++
		switch e.Kind() {
		case ast.IdentKind, ast.LiteralKind, ast.SelectKind, ast.ListKind:
		case ast.CallKind:
			reads = reads && slices.Contains(readers, e.AsCall().FunctionName())
		default:
			reads = false
		}
	}))
	return reads && steps <= maxSteps
}

// IsBrief reports whether the expression is fast for any variables.
func (e *Expression) IsBrief() bool { return e.brief }

// String returns the expression as it was written.
func (e *Expression) String() string { return e.source }

// Holds evaluates the expression, within the deadline of the context, or one second if it has none. As in CEL, a
// reference to a field that does not exist is an error.
func (e *Expression) Holds(ctx context.Context, variables Variables) (bool, error) {
	out, err := e.eval(ctx, variables)
	if err != nil {
		return false, err
	}
	b, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the expression gives a %s, not %s", out.Type().TypeName(), truth)
	}
	return b, nil
}

// Text evaluates an expression that was compiled with [CompileText].
func (e *Expression) Text(ctx context.Context, variables Variables) (string, error) {
	out, err := e.eval(ctx, variables)
	if err != nil {
		return "", err
	}
	s, ok := out.Value().(string)
	if !ok {
		return "", fmt.Errorf("the expression gives a %s, not a text", out.Type().TypeName())
	}
	return s, nil
}

// Value evaluates the expression. Other expressions can use the result as a variable, so its size is limited.
func (e *Expression) Value(ctx context.Context, variables Variables) (any, error) {
	out, err := e.eval(ctx, variables)
	if err != nil {
		return nil, err
	}
	if weigh(maxValue, out) > maxValue {
		return nil, errors.New("the value of the expression is too large")
	}
	return out, nil
}

func (e *Expression) eval(ctx context.Context, variables Variables) (ref.Val, error) {
	out, _, err := e.run(ctx, variables)
	if err != nil {
		return nil, err
	}
	if types.IsUnknownOrError(out) {
		return nil, errors.New("the expression gives no value")
	}
	return out, nil
}

// run returns the result and its cost, which is zero for a brief expression.
func (e *Expression) run(ctx context.Context, variables Variables) (ref.Val, int64, error) {
	if e.brief {
		out, _, err := e.program.Eval(activation{variables, nil})
		return out, 0, err
	}
	// a new timeout takes longer than most expressions, so callers that evaluate many share one
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxTime)
		defer cancel()
	}
	m := &meter{ctx: ctx, limit: maxCost}
	out, _, err := e.program.Eval(activation{variables, m})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return out, m.used, err
}
