package expression

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// metered returns the option that charges the steps of an expression to the meter of each evaluation.
func metered(checked *cel.Ast) cel.ProgramOption {
	s := survey(checked.NativeRep().Expr())
	return cel.CustomDecoratorV2(func(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		step, err := chargeStep(step)
		if err != nil {
			return nil, err
		}
		id := step.ID()
		if units := s.loops[id]; units > 0 {
			step = &loop{step, units}
		}
		if !s.arguments[id] {
			return step, nil
		}
		// the planner adds qualifiers to attributes, and decorates some before they are complete
		if attribute, ok := step.(interpreter.InterpretableAttribute); ok {
			return &attributeArgument{attribute}, nil
		}
		return &argument{step}, nil
	})
}

// chargeStep wraps a call or a literal. The other steps have a constant cost: they are charged with their loop.
func chargeStep(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch s := step.(type) {
	case interpreter.InterpretableCall:
		cost, isFree := costOf(s.Function())
		if isFree {
			return step, nil
		}
		arguments := s.Args()
		for _, arg := range arguments {
			switch arg.(type) {
			case *argument, *attributeArgument:
			default:
				return nil, fmt.Errorf("the cost of '%s' cannot be determined", s.Function())
			}
		}
		return &call{s, arguments, cost}, nil
	case interpreter.InterpretableConstructor:
		return &literal{s}, nil
	}
	return step, nil
}

// places are the IDs of steps that have a role in another step.
type places struct {
	arguments map[int64]bool  // arguments of calls that are charged
	loops     map[int64]int64 // conditions of loops, and the number of steps of an iteration
}

func survey(e ast.Expr) places {
	p := places{map[int64]bool{}, map[int64]int64{}}
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			p.addCall(e.AsCall())
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			p.loops[c.LoopCondition().ID()] += steps(c.LoopCondition()) + steps(c.LoopStep())
		}
	}))
	return p
}

func (p *places) addCall(c ast.CallExpr) {
	if _, isFree := costOf(c.FunctionName()); isFree {
		return
	}
	if c.IsMemberFunction() {
		p.arguments[c.Target().ID()] = true
	}
	for _, arg := range c.Args() {
		p.arguments[arg.ID()] = true
	}
}

// steps returns the number of steps of an expression.
func steps(e ast.Expr) (n int64) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(ast.Expr) { n++ }))
	return n
}

// loop is the condition of a loop. It charges an iteration.
type loop struct {
	interpreter.InterpretableV2
	units int64
}

// Exec implements [interpreter.InterpretableV2].
func (l *loop) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	meterOf(frame).charge(l.units)
	return l.InterpretableV2.Exec(frame)
}

// Eval implements [interpreter.Interpretable].
func (l *loop) Eval(vars interpreter.Activation) ref.Val { return l.Exec(interpreter.AsFrame(vars)) }

// literal creates a list or a map, and charges what it contains. So no value is heavier than the limit.
type literal struct {
	interpreter.InterpretableConstructor
}

// Exec implements [interpreter.InterpretableV2].
func (l *literal) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := l.InterpretableConstructor.Exec(frame)
	m := meterOf(frame)
	m.charge(m.weigh(value))
	if _, isMap := value.(traits.Mapper); isMap {
		m.charge(mapEntryCost * int64(len(l.InitVals())))
	}
	return value
}

// Eval implements [interpreter.Interpretable].
func (l *literal) Eval(vars interpreter.Activation) ref.Val { return l.Exec(interpreter.AsFrame(vars)) }

// call is a call of a function, which is charged before it runs.
type call struct {
	interpreter.InterpretableCall
	arguments []interpreter.InterpretableV2
	cost      cost
}

// Exec implements [interpreter.InterpretableV2].
func (c *call) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	m := meterOf(frame)
	values := make([]ref.Val, len(c.arguments))
	for i, a := range c.arguments {
		if values[i] = a.Exec(frame); types.IsUnknownOrError(values[i]) {
			return values[i]
		}
	}
	m.charge(1 + c.cost(m, values))
	for i := len(values) - 1; i >= 0; i-- {
		m.pending = append(m.pending, pendingValue{c.arguments[i], values[i]})
	}
	return c.InterpretableCall.Exec(frame)
}

// Eval implements [interpreter.Interpretable].
func (c *call) Eval(vars interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(vars)) }

// argument is an argument of a charged call. It is evaluated once: for the charge, after which the call consumes it.
type argument struct{ interpreter.InterpretableV2 }

// Exec implements [interpreter.InterpretableV2].
func (a *argument) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if value := meterOf(frame).take(a); value != nil {
		return value
	}
	return a.InterpretableV2.Exec(frame)
}

// Eval implements [interpreter.Interpretable].
func (a *argument) Eval(vars interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(vars))
}

// attributeArgument is an [argument] that is an attribute, such as a.b.
type attributeArgument struct {
	interpreter.InterpretableAttribute
}

// Exec implements [interpreter.InterpretableV2].
func (a *attributeArgument) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if value := meterOf(frame).take(a); value != nil {
		return value
	}
	return a.InterpretableAttribute.Exec(frame)
}

// Eval implements [interpreter.Interpretable].
func (a *attributeArgument) Eval(vars interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(vars))
}
