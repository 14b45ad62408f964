package expression

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/build/expression/expressiontest"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

// maxAllocated is the number of bytes that an evaluation may allocate in total, including those that are freed.
const maxAllocated = 64 << 20

// variablesOfTests are as large as objects in a cluster can be.
func variablesOfTests() Map { return expressiontest.Variables() }

var errNotCompiled = errors.New("the expression is not compiled")

// evaluated returns the cost of an evaluation, and what it allocated. The time limit is one that no test reaches.
func evaluated(tb testing.TB, source string, variables Map) (units int64, allocated uint64, err error) {
	tb.Helper()
	e, err := CompileValue(source, expressiontest.Names...)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errNotCompiled, err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Minute)
	defer cancel()
	allocated = allocation.Bytes(func() {
		if _, units, err = e.run(ctx, variables); err != nil {
			_ = err.Error() // the library creates some messages late
		}
	})
	return units, allocated, err
}

// TestHostileExpressionsAreBounded evaluates expressions that would need seconds and gigabytes.
func TestHostileExpressionsAreBounded(t *testing.T) {
	deep := "[1]" + strings.Repeat(".map(x, [x, x])", 30)
	wrong, longest := strings.Repeat(`\\pL`, 600)+"(", strings.Repeat("(a|b)*", maxPattern/6) // patterns
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
		"index of":                 "text.indexOf(text.substring(0, 50000) + 'x') < 0",
		"contains":                 "lists.range(100000).all(x, !text.contains(text + 'x'))",
		"large program":            "'a'.matches('" + strings.Repeat("[ab]{1000}", 1000) + "')",
		"long pattern":             "'x'.matches(text.replace('some text ', '\\\\pL'))",
		"groups":                   "lists.range(10).all(x, !'x'.matches(text.replace('some text ', '(a*)*')))",
		"wrong patterns":           "lists.range(1000).all(x, 'x'.matches('" + wrong + "') || true)",
		"pattern at the limit":     "lists.range(1000).all(x, 'x'.matches('" + longest + "'))",
		"nested repeats":           "lists.range(1000).all(x, !'b'.matches('((a{10}){10}){10}'))",
		"long match":               "lists.range(1000).all(x, !text.matches('(x+x+)+y'))",
		"maps":                     "lists.range(100000).transformMap(i, v, {'a': [v], 'b': [v]}).size() > 0",
		"list as key":              "lists.range(1000).exists(x, dyn({'a': 1})[dyn(" + deep + ")] == 1)",
		"encoding":                 "lists.range(1000).all(x, base64.encode(bytes(text)).size() > 0)",
		"JSON":                     "lists.range(1000).all(x, json.encode(names).size() > 0)",
		"quotes":                   "lists.range(1000).all(x, strings.quote(text).size() > 0)",
		"numbers of text":          "lists.range(100000).exists(x, int(text) == 1)",
		"time zones":               "lists.range(100000).all(x, timestamp(x).getHours('Europe/Berlin') < 99)",
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

// TestLongJoinsAreBounded joins texts with separators of many lengths. Those that are allowed allocate little enough.
func TestLongJoinsAreBounded(t *testing.T) {
	allowed := 0
	for n := 250; n <= 5000; n += 250 {
		source := fmt.Sprintf("lists.range(2000).map(v, string(v)).join(lists.range(%d).map(v, string(v)).join(''))", n)
		units, allocated, err := evaluated(t, source, variablesOfTests())
		if allocated > maxAllocated {
			t.Errorf("%d numbers: cost %d, %d MiB", n, units, allocated>>20)
		}
		if err == nil {
			allowed++
		}
	}
	if allowed == 0 {
		t.Error("no join is allowed")
	}
}

// TestEmptySetsAreBounded compares an empty list with a long one many times: the long one is read, although there is no
// pair to compare.
func TestEmptySetsAreBounded(t *testing.T) {
	for _, compared := range []string{
		"sets.contains([], object.conditions)", "sets.contains(object.conditions, [])",
		"sets.equivalent([], object.conditions)", "sets.intersects(object.conditions, [])",
		"sets.intersects([], object.conditions)",
	} {
		source := "lists.range(20000).filter(v, " + compared + ")"
		units, allocated, _ := evaluated(t, source, variablesOfTests())
		if allocated > maxAllocated {
			t.Errorf("%s: cost %d, %d MiB", source, units, allocated>>20)
		}
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
		e, err := CompileValue(source, expressiontest.Names...)
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
	const seed = 13
	expressions := 300
	if os.Getenv("SLUICE_TEST_FULL") != "" {
		expressions = 2000
	}
	variables := variablesOfTests()
	compiled := 0
	for i := range uint64(expressions) {
		source := expressiontest.Expression(rand.New(rand.NewPCG(seed, i)), 2+int(i%3))
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

// TestTypesOfLargeExpressionsAreBounded compiles expressions whose types took more than a minute to infer.
func TestTypesOfLargeExpressionsAreBounded(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	loops := func(n int) string { return strings.Repeat("[1].all(i, true) && ", n-1) + "[1].all(i, true)" }
	for name, c := range map[string]struct{ source, want string }{
		"many empty lists":    {"[" + strings.Repeat("[],", maxEmpty) + "[]] == []", "202 empty lists and maps"},
		"empty lists":         {"[" + strings.Repeat("[],", maxEmpty-2) + "[]] == []", ""},
		"deeply nested lists": {"[" + strings.Repeat(nested(200)+",", 40) + "[]] == []", "200 levels of lists"},
		"nested lists":        {nested(maxNested) + " == []", ""},
		"nested maps":         {strings.Repeat("{1: ", 100) + "x" + strings.Repeat("}", 100) + " == x", "100 levels"},
		"nested maps in keys": {"x[" + nested(20) + "] == x", "levels of lists and maps"},
		"many macros":         {loops(maxLoops + 1), "65 macros such as map and all"},
		"macros":              {loops(maxLoops), ""},
		"nested macros":       {strings.Repeat("[x].all(i, ", 70) + "true" + strings.Repeat(")", 70), "70 macros"},
		"an error with long types": {strings.Repeat("{1: ", 10) + "1" + strings.Repeat("}", 10) + " == 1",
			"no matching overload"},
	} {
		_, err := Compile(c.source, "x")
		got := fmt.Sprint(err)
		if (err == nil) != (c.want == "") || !strings.Contains(got, c.want) || len(got) > maxError+100 {
			t.Errorf("%s: the error is %.300s, want %q", name, got, c.want)
		}
	}
}
