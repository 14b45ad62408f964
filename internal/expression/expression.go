// Package expression evaluates CEL expressions (github.com/google/cel-spec) that users write over Kubernetes objects. They
// are compiled once, checked for their type, and bounded in length, cost and time. It reads no cluster.
package expression

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

const (
	maxLength = 16 << 10  // bytes of an expression
	maxCost   = 1_000_000 // units of cel-go's cost model: some milliseconds
	maxTime   = time.Second
	checked   = 100 // comprehension steps between two looks at the context
)

const truth = "true or false" // what conditions give

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	source  string
	program cel.Program
}

// Compile compiles an expression over the named variables, each of which may be anything, that gives true or false. The error says
// where it is wrong.
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
	options := []cel.EnvOption{cel.OptionalTypes(), cel.HomogeneousAggregateLiterals(), ext.Strings(), ext.Lists(), ext.Sets(), ext.Math(), ext.Encoders(), ext.TwoVarComprehensions()}
	for _, v := range variables {
		options = append(options, cel.Variable(v, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if t := ast.OutputType(); gives != nil && !slices.Contains(gives, t) {
		return nil, fmt.Errorf("the expression gives a %s, not %s", t, wanted)
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(checked))
	if err != nil {
		return nil, err
	}
	return &Expression{source, program}, nil
}

// String returns the expression as it was written.
func (e *Expression) String() string { return e.source }

// Holds evaluates the expression, within the deadline of the context or else a second. What it refers to and is not there is an error, as
// in CEL.
func (e *Expression) Holds(ctx context.Context, variables map[string]any) (bool, error) {
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
func (e *Expression) Text(ctx context.Context, variables map[string]any) (string, error) {
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
func (e *Expression) Value(ctx context.Context, variables map[string]any) (any, error) {
	return e.eval(ctx, variables)
}

func (e *Expression) eval(ctx context.Context, variables map[string]any) (ref.Val, error) {
	if _, bounded := ctx.Deadline(); !bounded { // one for each takes longer than most expressions, where many are evaluated
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxTime)
		defer cancel()
	}
	out, _, err := e.program.ContextEval(ctx, variables)
	if err != nil {
		return nil, err
	}
	if types.IsUnknownOrError(out) {
		return nil, errors.New("the expression gives no value")
	}
	return out, nil
}
