package expression

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// maxAllocated is the number of bytes that an evaluation may allocate in total, including those that are freed.
const maxAllocated = 64 << 20

// variablesOfTests are as large as objects in a cluster can be.
func variablesOfTests() Map {
	labels := map[string]any{}
	for i := range 200 {
		labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("value ", 10)
	}
	conditions := make([]any, 50)
	for i := range conditions {
		conditions[i] = map[string]any{"type": fmt.Sprint("Type", i), "status": "True", "since": int64(i)}
	}
	return Map{"names": slices.Repeat([]any{"name"}, 5000), "text": strings.Repeat("some text ", 10_000),
		"object": map[string]any{"labels": labels, "conditions": conditions}, "number": int64(1_000_000)}
}

var errNotCompiled = errors.New("the expression is not compiled")

// evaluated returns the cost of an evaluation, and what it allocated. The time limit is one that no test reaches.
func evaluated(tb testing.TB, source string, variables Map) (units int64, allocated uint64, err error) {
	tb.Helper()
	e, err := CompileValue(source, "names", "text", "object", "number")
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errNotCompiled, err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Minute)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, units, err = e.run(ctx, variables); err != nil {
		_ = err.Error() // the library creates some messages late
	}
	runtime.ReadMemStats(&after)
	return units, after.TotalAlloc - before.TotalAlloc, err
}

// TestHostileExpressionsAreBounded evaluates expressions that would need seconds and gigabytes.
func TestHostileExpressionsAreBounded(t *testing.T) {
	deep := "[1]" + strings.Repeat(".map(x, [x, x])", 30)
	for name, source := range map[string]string{
		"flatten of shared lists":  "[lists.range(5000)].all(l, l.map(x, l).flatten().size() > 0)",
		"equality of nested lists": "[lists.range(5000)].all(l, [l.map(x, l)].all(m, m == l.map(x, l)))",
		"inequality":               "[lists.range(5000)].all(l, [l.map(x, l)].all(m, m != l.map(x, l)))",
		"membership":               "lists.range(5000).all(x, names.map(n, names).exists(m, m in [names, names]))",
		"nested lists":             deep + " == " + deep,
		"concatenation":            "[names]" + strings.Repeat(".map(a, a + a)", 60) + ".all(a, a.size() > 0)",
		"distinct":                 "lists.range(100000).distinct().size() > 0",
		"sets.contains":            "sets.contains(lists.range(50000), lists.range(50000))",
		"sets.equivalent":          "sets.equivalent(lists.range(50000), lists.range(50000))",
		"sets.intersects":          "sets.intersects(lists.range(50000), lists.range(50000).map(x, -x - 1))",
		"range":                    "lists.range(9223372036854775807).size() > 0",
		"sort":                     "lists.range(5000).map(x, text).sort().size() > 0",
		"sort by":                  "lists.range(5000).sortBy(x, text).size() > 0",
		"replace":                  "'aaaaaaaa'" + strings.Repeat(".replace('a', 'aaaaaaaa')", 12) + " == 'a'",
		"growing text":             "['a']" + strings.Repeat(".map(a, a + a)", 60) + ".all(a, a.size() > 0)",
		"join":                     "lists.range(100000).map(x, text).join(text).size() > 0",
		"split":                    "lists.range(1000).all(x, text.split('').size() > 0)",
		"format":                   "lists.range(1000).all(x, '%s %s'.format([text, names]).size() > 0)",
		"precision":                "('%.' + string(number) + '999f').format([1.5]).size() > 0",
		"index of":                 "text.indexOf(text.substring(0, 50000) + 'x') < 0 && text.lastIndexOf('x' + text) < 0",
		"contains":                 "lists.range(100000).all(x, !text.contains(text + 'x'))",
		"large program":            "'a'.matches('" + strings.Repeat("[ab]{1000}", 1000) + "')",
		"nested repeats":           "lists.range(1000).all(x, !'b'.matches('((a{10}){10}){10}'))",
		"long match":               "lists.range(1000).all(x, !text.matches('(x+x+)+y'))",
		"maps":                     "lists.range(100000).transformMap(i, v, {'a': [v], 'b': [v]}).size() > 0",
		"list as key":              "lists.range(1000).exists(x, dyn({'a': 1})[dyn(" + deep + ")] == 1)",
		"encoding":                 "lists.range(1000).all(x, base64.encode(bytes(text)).size() > 0)",
		"JSON":                     "lists.range(1000).all(x, json.encode(names).size() > 0)",
		"quotes":                   "lists.range(1000).all(x, strings.quote(text).size() > 0)",
		"numbers of text":          "lists.range(100000).exists(x, int(text) == 1)",
		"time zones":               "lists.range(100000).all(x, timestamp('2026-01-01T00:00:00Z').getHours('Europe/Berlin') < 99)",
		"nested loops":             "names.all(a, names.all(b, names.all(c, a == b && b == c)))",
		"filter":                   "names.filter(a, names.filter(b, true).size() > 0).size() > 0",
		"conditional":              "lists.range(10000000).all(x, x >= 0 ? true : false)",
		"reverse":                  "lists.range(100000).all(x, names.reverse().size() > 0 && text.reverse() != '')",
		"slice":                    "lists.range(100000).all(x, names.slice(0, 5000).size() > 0)",
		"optional":                 "names.map(n, optional.of(names)).all(o, o == optional.of(names))",
	} {
		t.Run(name, func(t *testing.T) {
			units, allocated, err := evaluated(t, source, variablesOfTests())
			if units > maxCost+1 || allocated > maxAllocated {
				t.Errorf("cost %d, %d MiB", units, allocated>>20)
			}
			if err == nil || errors.Is(err, errNotCompiled) {
				t.Errorf("not ended at a cost of %d: %v", units, err)
			}
		})
	}
}

// TestUsualExpressionsAreCheap has expressions as they are in use, on large objects.
func TestUsualExpressionsAreCheap(t *testing.T) {
	for source, most := range map[string]int64{
		"object.conditions.exists(c, c.type == 'Type49' && c.status == 'True')":   2_000,
		"object.conditions.filter(c, c.status == 'True').map(c, c.type).size()>9": 5_000,
		"names.all(n, n != 'x')":                                                   80_000,
		"names.map(n, n.upperAscii()).exists(n, n == 'X')":                         250_000,
		"object.conditions.map(c, c.type).distinct().join(',').startsWith('Type')": 10_000,
		"text.split(' ').filter(w, w == 'text').size() == 10000":                   600_000,
		"object == object && object in [object]":                                   0, // brief
		"text.matches('^some (text )+') ? true : false":                            200_000,
		"sets.contains(['a', 'b'], ['a']) && [[1], [2]].flatten() == [1, 2]":       1_000,
	} {
		e, err := CompileValue(source, "names", "text", "object", "number")
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if _, units, err := e.run(ctx, variablesOfTests()); err != nil || units > most {
			t.Errorf("%s: cost %d, want at most %d; %v", source, units, most, err)
		}
	}
}

// TestEvaluationEndsWithItsContext evaluates within the cost limit, after the deadline.
func TestEvaluationEndsWithItsContext(t *testing.T) {
	e, err := Compile("names.all(n, n != 'x')", "names")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	if _, err := e.Holds(ctx, variablesOfTests()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestLargeValuesAreNoVariables limits what an expression passes on to others.
func TestLargeValuesAreNoVariables(t *testing.T) {
	for source, ok := range map[string]bool{"names": true, "[names, names, names]": true, "object": true,
		"[" + strings.Repeat("text,", 50) + "text]": false} {
		e, err := CompileValue(source, "names", "text", "object")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Value(t.Context(), variablesOfTests()); (err == nil) != ok {
			t.Errorf("%.20s: %v", source, err)
		}
	}
}

// TestGeneratedExpressionsAreBounded evaluates 2,000 random expressions of a fixed seed.
func TestGeneratedExpressionsAreBounded(t *testing.T) {
	const seed, expressions = 13, 2000
	variables := variablesOfTests()
	compiled := 0
	for i := range uint64(expressions) {
		g := generator{rand.New(rand.NewPCG(seed, i))}
		source := g.expression(2 + int(i%3))
		units, allocated, err := evaluated(t, source, variables)
		if units > maxCost+1 || allocated > maxAllocated {
			t.Errorf("seed %d, %d: cost %d, %d MiB: %s", seed, i, units, allocated>>20, source)
		}
		if i%10 == 0 {
			if again, _, _ := evaluated(t, source, variables); again != units {
				t.Errorf("seed %d, %d: cost %d, then %d: %s", seed, i, units, again, source)
			}
		}
		if !errors.Is(err, errNotCompiled) {
			compiled++
		}
	}
	if compiled < expressions*3/4 {
		t.Errorf("only %d of %d expressions were compiled", compiled, expressions)
	}
}

// generator creates expressions from parts that multiply each other.
type generator struct{ *rand.Rand }

func (g generator) pick(choices ...string) string { return choices[g.IntN(len(choices))] }

func (g generator) expression(depth int) string {
	switch g.IntN(4) {
	case 0:
		return g.list(depth) + ".size() > 0"
	case 1:
		return g.list(depth) + g.pick(" == ", " != ", " in ") + g.list(depth)
	case 2:
		return g.list(depth) + fmt.Sprintf(".all(a%d, %s)", depth, g.truth(depth, fmt.Sprint("a", depth)))
	}
	return g.text(depth) + g.pick(" == "+g.text(depth), " < "+g.text(depth), " in "+g.list(depth))
}

func (g generator) truth(depth int, variable string) string {
	if depth <= 0 {
		return g.pick("true", variable+" == "+variable, variable+" != names")
	}
	return g.pick(g.expression(depth-1), variable+" in "+g.list(depth-1), g.list(depth-1)+" == "+variable,
		"dyn(["+variable+", "+variable+"]) == "+g.list(depth-1))
}

func (g generator) list(depth int) string {
	if depth <= 0 {
		return g.pick("names", "dyn(lists.range(2000))", "[names]", "object.conditions", "text.split(' ')", "[]", "[object]")
	}
	inner, v := g.list(depth-1), fmt.Sprint("v", depth)
	return "dyn(" + g.pick(inner+".map("+v+", "+g.pick(v, inner, "["+v+", "+v+"]", "names", "["+inner+"]")+")",
		inner+".flatten()", inner+".flatten(3)", inner+".distinct()", inner+".reverse()", inner+".sort()",
		inner+" + "+g.list(depth-1), "[dyn("+inner+"), dyn("+g.list(depth-1)+")]",
		inner+".filter("+v+", "+g.truth(depth-1, v)+")", inner+".transformMap(i, "+v+", ["+v+"]).map(k, k)",
		inner+".sortBy("+v+", "+g.pick("text", v, "string("+v+")")+")", g.text(depth-1)+".split('e')",
		inner+".slice(0, 1)", "[sets.contains("+inner+", "+g.list(depth-1)+")]", "[optional.of("+inner+")]") + ")"
}

func (g generator) text(depth int) string {
	if depth <= 0 {
		return g.pick("text", "'a'", "string(number)", "''")
	}
	inner := g.text(depth - 1)
	return "string(" + g.pick(inner+" + "+inner, inner+".replace('e', "+g.text(depth-1)+")", inner+".reverse()",
		g.list(depth-1)+".map(v, string(v)).join("+inner+")", inner+".upperAscii()", "strings.quote("+inner+")",
		"base64.encode(bytes("+inner+"))", "'%s'.format(["+g.list(depth-1)+"])",
		"string("+inner+".matches('(e+)+'))", "string("+inner+".indexOf("+g.text(depth-1)+"))",
		"json.encode("+g.list(depth-1)+")") + ")"
}
