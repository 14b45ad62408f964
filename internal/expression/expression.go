// Package expression evaluates CEL expressions (github.com/google/cel-spec) that users write over Kubernetes
// objects. They are compiled once, checked for their type, and bounded in length, cost and time. It reads no
// cluster.
package expression

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

const (
	maxLength = 16 << 10  // bytes of an expression
	maxCost   = 1_000_000 // units of cel-go's cost model: some milliseconds
	maxTime   = time.Second
	lookEvery = 100 // comprehension steps between two looks at the context
	maxSteps  = 64  // of an expression that is brief
)

// readers are the functions that make nothing, and whose work is no more than to read what they are given.
var readers = []string{
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater,
	operators.GreaterEquals,
	operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, operators.In,
	operators.Index, operators.OptIndex, operators.OptSelect,
	overloads.Size, overloads.Contains, overloads.StartsWith, overloads.EndsWith, "hasValue", "orValue",
}

const truth = "true or false" // what conditions give

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	source  string
	program cel.Program
	brief   bool
}

// Variables are what an expression may read: a [Map], or values that are made when it asks for them.
type Variables interface {
	// Variable returns the value of a variable, and whether there is one.
	Variable(name string) (value any, ok bool)
}

// Map is variables by name.
type Map map[string]any

// Variable implements [Variables].
func (m Map) Variable(name string) (any, bool) {
	value, ok := m[name]
	return value, ok
}

// activation is variables in the words of cel-go.
type activation struct{ Variables }

func (a activation) ResolveName(name string) (any, bool) { return a.Variable(name) }
func (a activation) Parent() cel.Activation              { return nil }

// Compile compiles an expression over the named variables, each of which may be anything, that gives true or
// false. The error says where it is wrong.
func Compile(source string, variables ...string) (*Expression, error) {
	return compile(source, variables, truth, cel.BoolType, cel.DynType)
}

// CompileText is [Compile] for an expression that gives a text.
func CompileText(source string, variables ...string) (*Expression, error) {
	return compile(source, variables, "a text", cel.StringType, cel.DynType)
}

// CompileValue compiles an expression that may give anything.
func CompileValue(source string, variables ...string) (*Expression, error) {
	return compile(source, variables, "")
}

func compile(source string, variables []string, wanted string, gives ...*cel.Type) (*Expression, error) {
	if len(source) > maxLength {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxLength)
	}
	options := []cel.EnvOption{cel.OptionalTypes(), cel.HomogeneousAggregateLiterals(), ext.Strings(), ext.Lists(),
		ext.Sets(), ext.Math(), ext.Encoders(), ext.TwoVarComprehensions()}
	for _, v := range variables {
		options = append(options, cel.Variable(v, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if t := checked.OutputType(); gives != nil && !slices.Contains(gives, t) {
		return nil, fmt.Errorf("the expression gives a %s, not %s", t, wanted)
	}
	e := &Expression{source: source, brief: brief(checked.NativeRep().Expr())}
	var bounds []cel.ProgramOption
	if !e.brief {
		bounds = []cel.ProgramOption{cel.CostLimit(maxCost), cel.InterruptCheckFrequency(lookEvery)}
	}
	if e.program, err = env.Program(checked, bounds...); err != nil {
		return nil, err
	}
	return e, nil
}

// brief tells whether an expression ends soon whatever it is given: it has few steps, and none that repeats
// or makes something. To count what such a one costs takes longer than to evaluate it.
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

// String returns the expression as it was written.
func (e *Expression) String() string { return e.source }

// Holds evaluates the expression, within the deadline of the context or else a second. What it refers to and
// is not there is an error, as in CEL.
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

// Text evaluates an expression of [CompileText].
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

// Value evaluates the expression, for other expressions to read as a variable.
func (e *Expression) Value(ctx context.Context, variables Variables) (any, error) {
	return e.eval(ctx, variables)
}

func (e *Expression) eval(ctx context.Context, variables Variables) (ref.Val, error) {
	out, err := e.run(ctx, activation{variables})
	if err != nil {
		return nil, err
	}
	if types.IsUnknownOrError(out) {
		return nil, errors.New("the expression gives no value")
	}
	return out, nil
}

func (e *Expression) run(ctx context.Context, variables cel.Activation) (ref.Val, error) {
	if e.brief {
		out, _, err := e.program.Eval(variables)
		return out, err
	}
	// one for each takes longer than most expressions, where many are evaluated
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxTime)
		defer cancel()
	}
	out, _, err := e.program.ContextEval(ctx, variables)
	return out, err
}
