package expression

import (
	"context"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// meterName is the name under which the steps of an evaluation find their meter. No expression can use it.
const meterName = "@meter"

// checkEvery is the number of units between two checks of the context.
const checkEvery = 4096

// meter counts the cost of one evaluation. A unit is a step, an element of a list or map, or 16 bytes of text: at most
// 100 ns and 64 bytes on a usual machine. A call is charged before it runs, so that none exceeds the limit.
type meter struct {
	ctx     context.Context
	limit   int64
	used    int64
	checked int64 // value of used at the last check of the context
	pending []pendingValue
}

// pendingValue is an argument that was evaluated for the charge of a call, and which the call consumes next.
type pendingValue struct {
	node  interpreter.InterpretableV2
	value ref.Val
}

// charge adds units. If the limit is exceeded or the context has ended, it ends the evaluation by the panic with which
// the library ends one.
func (m *meter) charge(units int64) {
	if units < 0 || units > m.limit-m.used {
		m.used = m.limit + 1
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded,
			Message: "the expression exceeds the cost limit: it creates or compares too many values"})
	}
	m.used += units
	if m.used-m.checked < checkEvery {
		return
	}
	m.checked = m.used
	if err := m.ctx.Err(); err != nil {
		panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled,
			Message: "the expression exceeds its time limit"})
	}
}

// take returns the pending value of an argument, and removes it; nil if there is none.
func (m *meter) take(node interpreter.InterpretableV2) ref.Val {
	last := len(m.pending) - 1
	if last < 0 || m.pending[last].node != node {
		return nil
	}
	value := m.pending[last].value
	m.pending = m.pending[:last]
	return value
}

// weigh returns the weight of values including all that they contain. A value that occurs twice counts twice. It stops
// once the weight exceeds what is left.
func (m *meter) weigh(values ...ref.Val) int64 { return weigh(m.limit-m.used, values...) }

// lesser returns the smaller weight of two values, as long as it does not exceed what is left. The larger value is not
// weighed completely.
func (m *meter) lesser(a, b ref.Val) int64 {
	left := m.limit - m.used
	for bound := int64(64); ; bound *= 4 {
		bound = min(bound, left)
		if w := min(weigh(bound, a), weigh(bound, b)); w <= bound || bound == left {
			return w
		}
	}
}

// meterOf returns the meter of an evaluation.
func meterOf(frame *interpreter.ExecutionFrame) *meter {
	value, _ := frame.ResolveName(meterName)
	return value.(*meter)
}

// activation adapts [Variables] to cel-go.
type activation struct {
	Variables
	meter *meter
}

func (a activation) ResolveName(name string) (any, bool) {
	if name == meterName {
		return a.meter, true
	}
	return a.Variable(name)
}

func (a activation) Parent() cel.Activation { return nil }

// textWeight returns the weight of a text of n bytes.
func textWeight(n int) int64 { return 1 + int64(n)/16 }

func weigh(limit int64, values ...ref.Val) int64 {
	s := scale{limit: limit}
	for _, v := range values {
		s.add(v)
	}
	return s.weight
}

// scale adds up weights until they exceed the limit.
type scale struct{ weight, limit int64 }

func (s *scale) add(value any) {
	if s.weight > s.limit {
		return
	}
	s.weight++
	switch v := value.(type) {
	case string:
		s.weight += int64(len(v)) / 16
	case types.String:
		s.weight += int64(len(v)) / 16
	case []byte:
		s.weight += int64(len(v)) / 16
	case types.Bytes:
		s.weight += int64(len(v)) / 16
	case []any:
		addAll(s, v)
	case []ref.Val:
		addAll(s, v)
	case []string:
		addAll(s, v)
	case map[string]any:
		addMap(s, v)
	case map[string]string:
		addMap(s, v)
	case *types.Optional:
		if v.HasValue() {
			s.add(v.GetValue())
		}
	case traits.Mapper:
		s.addMapper(v)
	case traits.Lister:
		s.addLister(v)
	case ref.Val, nil, bool, int, int32, int64, uint64, float64:
	default:
		if adapted := types.DefaultTypeAdapter.NativeToValue(v); !types.IsError(adapted) {
			s.add(adapted)
		}
	}
}

func addAll[E any](s *scale, list []E) {
	for i := 0; i < len(list) && s.weight <= s.limit; i++ {
		s.add(list[i])
	}
}

func addMap[E any](s *scale, m map[string]E) {
	for key, value := range m {
		if s.weight > s.limit {
			return
		}
		s.add(key)
		s.add(value)
	}
}

func (s *scale) addMapper(m traits.Mapper) {
	switch native := m.Value().(type) {
	case map[string]any:
		addMap(s, native)
	case map[string]string:
		addMap(s, native)
	default:
		for it := m.Iterator(); s.weight <= s.limit && it.HasNext() == types.True; {
			key := it.Next()
			s.add(key)
			if value, found := m.Find(key); found {
				s.add(value)
			}
		}
	}
}

func (s *scale) addLister(l traits.Lister) {
	switch native := l.Value().(type) {
	case []any:
		addAll(s, native)
	case []ref.Val:
		addAll(s, native)
	case []string:
		addAll(s, native)
	default:
		for it := l.Iterator(); s.weight <= s.limit && it.HasNext() == types.True; {
			s.add(it.Next())
		}
	}
}
