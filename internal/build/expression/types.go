package expression

import (
	"fmt"

	"github.com/google/cel-go/common/ast"
)

// Bounds of what types are inferred for. The time for it grows with the square of the number of unknown types, and with
// the depth of nested literals: without bounds, an expression of 16 KiB takes more than a minute.
const (
	maxEmpty  = 200 // empty lists and maps
	maxLoops  = 64  // macros such as map and all
	maxNested = 16  // literals in literals
)

// boundTypes returns an error if the types of an expression would take long to infer.
func boundTypes(e ast.Expr) error {
	c := counts{}
	c.visit(e, 0)
	for _, b := range []struct {
		what  string
		n     int
		limit int
	}{
		{what: "empty lists and maps", n: c.empty, limit: maxEmpty},
		{what: "macros such as map and all", n: c.loops, limit: maxLoops},
		{what: "levels of lists and maps in each other", n: c.nested, limit: maxNested},
	} {
		if b.n > b.limit {
			return fmt.Errorf("the expression has %d %s; the maximum is %d", b.n, b.what, b.limit)
		}
	}
	return nil
}

// counts are what an expression has of what takes long. Its parser limits the depth of an expression.
type counts struct{ empty, loops, nested int }

// visit counts what is in an expression that is in a number of literals.
func (c *counts) visit(e ast.Expr, literals int) {
	c.nested = max(c.nested, literals)
	switch e.Kind() {
	case ast.ListKind:
		c.literal(e.AsList().Size())
		for _, x := range e.AsList().Elements() {
			c.visit(x, literals+1)
		}
	case ast.MapKind:
		c.literal(e.AsMap().Size())
		for _, entry := range e.AsMap().Entries() {
			c.visit(entry.AsMapEntry().Key(), literals+1)
			c.visit(entry.AsMapEntry().Value(), literals+1)
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			c.visit(f.AsStructField().Value(), literals+1)
		}
	case ast.SelectKind:
		c.visit(e.AsSelect().Operand(), literals)
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			c.visit(e.AsCall().Target(), literals)
		}
		for _, x := range e.AsCall().Args() {
			c.visit(x, literals)
		}
	case ast.ComprehensionKind:
		c.loops++
		l := e.AsComprehension()
		for _, x := range []ast.Expr{l.IterRange(), l.AccuInit(), l.LoopCondition(), l.LoopStep(), l.Result()} {
			c.visit(x, literals)
		}
	}
}

// literal counts a list or map.
func (c *counts) literal(size int) {
	if size == 0 {
		c.empty++
	}
}
