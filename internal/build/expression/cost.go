package expression

import (
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/sluice-gitops/sluice/internal/limits/regex"
)

const (
	// defaultFactor is the number of units for each unit of weight of an argument: for calls that read it, copy it, or
	// convert a text to runes.
	defaultFactor = 4
	// mapEntryCost is the number of units for a new entry of a map.
	mapEntryCost = 8
	// sortCost is the number of units for each unit of weight of a list to sort.
	sortCost = 24
	// timeZoneCost is the number of units for reading a time zone.
	timeZoneCost = 500
	// programCost is the number of units for each instruction of a regular expression.
	programCost = 16
	// patternCost is the number of units for each byte of a regular expression that does not parse: \pL takes 13 KiB.
	patternCost = 160
	// maxPattern is how many bytes a regular expression may have.
	maxPattern = 2048
)

// cost returns the units of a call. It must not take longer than a call of this cost.
type cost func(m *meter, args []ref.Val) int64

// free are functions with a small constant cost for any arguments.
var free = map[string]bool{
	operators.LogicalAnd: true, operators.LogicalOr: true, operators.LogicalNot: true, operators.Conditional: true,
	operators.Index: true, operators.OptIndex: true, operators.OptSelect: true, operators.NotStrictlyFalse: true,
	"__not_strictly_false__": true, operators.Subtract: true, operators.Multiply: true, operators.Divide: true,
	operators.Modulo: true, operators.Negate: true, overloads.TypeConvertType: true, overloads.TypeConvertDyn: true,
	"hasValue": true, "value": true, "or": true, "orValue": true, "optional.of": true, "optional.none": true,
}

// costs are the functions whose cost is not proportional to the weight of their arguments.
var costs = map[string]cost{
	operators.Equals: equality, operators.NotEquals: equality, operators.In: membership, operators.Add: addition,
	operators.Less: comparison, operators.LessEquals: comparison, operators.Greater: comparison,
	operators.GreaterEquals: comparison, overloads.Size: size,
	overloads.Contains: search, "indexOf": search, "lastIndexOf": search, overloads.Matches: matching,
	"replace": replacement, "split": splitting, "join": joining,
	"flatten": flattening, "distinct": distinction, "lists.range": listRange,
	"sort": sorting, "@sortByAssociatedKeys": sorting,
	"sets.contains": sets, "sets.equivalent": sets, "sets.intersects": sets, "cel.@mapInsert": mapInsert,
	overloads.TimeGetFullYear: calendar, overloads.TimeGetMonth: calendar, overloads.TimeGetDayOfYear: calendar,
	overloads.TimeGetDate: calendar, overloads.TimeGetDayOfMonth: calendar, overloads.TimeGetDayOfWeek: calendar,
	overloads.TimeGetHours: calendar, overloads.TimeGetMinutes: calendar, overloads.TimeGetSeconds: calendar,
	overloads.TimeGetMilliseconds: calendar,
}

// costOf returns the cost of a function, or reports that it is free.
func costOf(function string) (c cost, isFree bool) {
	if free[function] {
		return nil, true
	}
	if c = costs[function]; c == nil {
		c = proportional
	}
	return c, false
}

// times multiplies weights. The result is too large for any limit if it overflows.
func times(a, b int64) int64 {
	const tooLarge = 1 << 62
	if a > 0 && b > tooLarge/a {
		return tooLarge
	}
	return a * b
}

// count returns the number of elements of a list or map, or of bytes of a text; 1 for other values.
func count(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return int64(len(v))
	case types.Bytes:
		return int64(len(v))
	case traits.Sizer:
		n, _ := v.Size().(types.Int)
		return int64(n)
	}
	return 1
}

// shallow returns the weight of a value without what it contains.
func shallow(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return textWeight(len(v))
	case types.Bytes:
		return textWeight(len(v))
	}
	return 1
}

func proportional(m *meter, args []ref.Val) int64 { return times(defaultFactor, m.weigh(args...)) }

func equality(m *meter, args []ref.Val) int64 {
	return times(defaultFactor, m.lesser(args[0], args[1]))
}

func comparison(_ *meter, args []ref.Val) int64 { return min(shallow(args[0]), shallow(args[1])) }

func size(_ *meter, args []ref.Val) int64 { return shallow(args[0]) }

// membership compares the first argument with each element of a list, or looks it up in a map.
func membership(m *meter, args []ref.Val) int64 {
	element := m.weigh(args[0])
	if list, ok := args[1].(traits.Lister); ok {
		units := times(element, count(list))
		return times(2, min(units, m.weigh(list)))
	}
	return times(defaultFactor, element)
}

// addition copies texts. For lists it creates a view, whose weight is that of both. The result of a loop is extended in
// place, by an element that was charged when it was created.
func addition(m *meter, args []ref.Val) int64 {
	switch args[0].(type) {
	case traits.MutableLister:
		return count(args[1])
	case traits.Lister:
		return m.weigh(args...)
	}
	return shallow(args[0]) + shallow(args[1])
}

// mapInsert adds an entry, or the entries of a map, to the result of a loop.
func mapInsert(m *meter, args []ref.Val) int64 {
	added := args[1:]
	if _, ok := args[0].(traits.MutableMapper); !ok {
		added = args
	}
	return mapEntryCost + times(defaultFactor, m.weigh(added...))
}

// search compares a text with a part of another one at each position.
func search(_ *meter, args []ref.Val) int64 {
	units := shallow(args[0]) * defaultFactor
	if len(args) > 1 {
		units = times(units, shallow(args[1]))
	}
	return units
}

// matching compiles and runs a regular expression. A long one is refused before it is parsed, as parsing and compiling
// take more than in proportion to its length.
func matching(_ *meter, args []ref.Val) int64 {
	if len(args) < 2 {
		return 1
	}
	text, ok := args[1].(types.String)
	if !ok {
		return 1
	}
	if len(text) > maxPattern {
		return maxCost + 1
	}
	parsed, err := syntax.Parse(string(text), syntax.Perl)
	if err != nil {
		return times(patternCost, int64(len(text)))
	}
	program := int64(len(text)) + regex.Instructions(parsed)
	return times(program, programCost+shallow(args[0]))
}

func replacement(_ *meter, args []ref.Val) int64 {
	text, isText := args[0].(types.String)
	if len(args) < 3 || !isText {
		return 1
	}
	old, _ := args[1].(types.String)
	n := int64(strings.Count(string(text), string(old)))
	if len(args) > 3 {
		if limit, _ := args[3].(types.Int); limit >= 0 {
			n = min(n, int64(limit))
		}
	}
	return 2*shallow(text) + n + times(n, count(args[2]))/8
}

func splitting(_ *meter, args []ref.Val) int64 {
	text, isText := args[0].(types.String)
	if len(args) < 2 || !isText {
		return 1
	}
	separator, _ := args[1].(types.String)
	return 2*shallow(text) + 4*int64(1+strings.Count(string(text), string(separator)))
}

// joining writes a text that grows: what it allocates in all is about five times its size.
func joining(m *meter, args []ref.Val) int64 {
	units := times(defaultFactor, m.weigh(args[0]))
	if len(args) > 1 {
		units += times(2*count(args[0]), shallow(args[1]))
	}
	return units
}

// flattening copies each level of a list.
func flattening(m *meter, args []ref.Val) int64 {
	levels := int64(1)
	if len(args) > 1 {
		if n, ok := args[1].(types.Int); ok {
			levels = max(1, int64(n))
		}
	}
	weight := m.weigh(args[0])
	return times(2*weight, min(levels, weight))
}

// distinction compares each element of a list with all distinct ones before it.
func distinction(m *meter, args []ref.Val) int64 {
	return times(2*m.weigh(args[0]), max(1, count(args[0])))
}

func listRange(_ *meter, args []ref.Val) int64 {
	n, _ := args[0].(types.Int)
	return times(defaultFactor, max(0, int64(n)))
}

func sorting(m *meter, args []ref.Val) int64 { return times(sortCost, m.weigh(args...)) }

// sets reads two lists, and compares each element of one with each element of the other.
func sets(m *meter, args []ref.Val) int64 {
	if len(args) < 2 {
		return 1
	}
	a, b := m.weigh(args[0]), m.weigh(args[1])
	pairs := max(1, min(times(count(args[0]), b), times(count(args[1]), a)))
	return times(defaultFactor, times(2, pairs)+a+b)
}

// calendar reads the data of a time zone, if the call names one.
func calendar(m *meter, args []ref.Val) int64 {
	if len(args) > 1 {
		return timeZoneCost + m.weigh(args...)
	}
	return 1
}
