package expression_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/build/expression"
)

var object = expression.Map{
	"metadata": map[string]any{"generation": int64(2), "labels": map[string]any{"app": "web"}},
	"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		"observedGeneration": int64(2)},
}

func TestHolds(t *testing.T) {
	for source, want := range map[string]bool{
		`status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')`:              true,
		`status.conditions.filter(c, c.type == 'Synced').exists(c, c.status == 'True')`:     false,
		`status.?phase.orValue('') == 'Running'`:                                            false,
		`metadata.generation == status.observedGeneration`:                                  true,
		`has(metadata.labels) && metadata.labels.app.startsWith('we')`:                      true,
		`metadata.labels.?app.hasValue() && status["observedGeneration"] in [1, 2]`:         true,
		`metadata.labels.app.upperAscii() == 'WEB' && sets.contains([1, 2], [1]) && !false`: true,
	} {
		e, err := expression.Compile(source, "metadata", "status")
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := e.Holds(t.Context(), object); err != nil || got != want {
			t.Errorf("%s: %v, %v", source, got, err)
		}
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for source, says := range map[string]string{
		`status.`:                   "Syntax error",
		`spec.replicas == 1`:        "undeclared reference to 'spec'",
		`'text'`:                    "gives a string",
		`1 + 1`:                     "gives a int",
		strings.Repeat("!", 17<<10): "longer than",
	} {
		if _, err := expression.Compile(source, "metadata", "status"); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%.20s: %v", source, err)
		}
	}
	for source, says := range map[string]string{
		`status.phase == 'x'`: "no such key: phase",
		`metadata.generation`: "gives a int",
		`[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, ` +
			`[1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, [1,2,3,4,5,6,7,8,9,0].all(f, ` +
			`a+b+c+d+e+f >= 0))))))`: "cost limit",
	} {
		e, err := expression.Compile(source, "metadata", "status")
		if err != nil {
			t.Errorf("%.20s: %v", source, err)
			continue
		}
		// the cost limit must end it before the timeout, also on a slow machine
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if _, err := e.Holds(ctx, object); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20s: %v", source, err)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`status.conditions.exists(c, c.type == 'Ready')`)
	f.Add(`status.?a.orValue({}).size() > 1`)
	f.Fuzz(func(t *testing.T, source string) {
		e, err := expression.Compile(source, "status")
		if err != nil {
			return
		}
		_, _ = e.Holds(t.Context(), object) // must end; the result does not matter
	})
}

// TestWhatIsLongIsBounded evaluates expressions that would run for hours: the cost limit or the timeout of one second
// must end each.
func TestWhatIsLongIsBounded(t *testing.T) {
	names := slices.Repeat([]any{"name"}, 100_000)
	for about, source := range map[string]string{
		"a loop":       "names.all(n, n != 'x' && names.all(m, m == n))",
		"growing text": "'aaaaaaaa'" + strings.Repeat(".replace('a', 'aaaaaaaa')", 12) + " == 'a'",
		"a large list": "names.map(n, names).flatten().size() > 0",
	} {
		e, err := expression.Compile(source, "names")
		if err != nil {
			t.Errorf("%s: %v", about, err)
			continue
		}
		if holds, err := e.Holds(t.Context(), expression.Map{"names": names}); err == nil {
			t.Errorf("%s: finished without an error: %v", about, holds)
		}
	}
}
