// Package expressiontest generates expressions that are as expensive as they can be. Only tests may import it.
package expressiontest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Names are the names of [Variables].
var Names = []string{"names", "text", "object", "number"}

// Variables returns variables that are as large as objects in a cluster can be.
func Variables() map[string]any {
	labels := map[string]any{}
	for i := range 200 {
		labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("value ", 10)
	}
	conditions := make([]any, 50)
	for i := range conditions {
		conditions[i] = map[string]any{"type": fmt.Sprint("Type", i), "status": "True", "since": int64(i)}
	}
	return map[string]any{"names": slices.Repeat([]any{"name"}, 5000), "text": strings.Repeat("some text ", 10_000),
		"object": map[string]any{"labels": labels, "conditions": conditions}, "number": int64(1_000_000)}
}

// Expression returns an expression of parts that multiply each other. Each level of depth nests one more.
func Expression(random *rand.Rand, depth int) string { return generator{random}.expression(depth) }

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
		return g.pick("names", "dyn(lists.range(2000))", "[names]", "object.conditions", "text.split(' ')", "[]",
			"[object]")
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
