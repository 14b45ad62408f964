package render_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	endless = `{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}`
	greedy  = `{{ $x := list }}{{ range until 100000 }}{{ $x = append $x (repeat 1048576 "y") }}{{ end }}`
)

func TestLimits(t *testing.T) {
	tests := map[string]struct {
		options  render.Options
		template string
		want     []string // in the message
	}{
		"endless template": {
			options: render.Options{Timeout: 2 * time.Second}, template: endless,
			want: []string{"cannot render chart", "did not finish within 2s",
				"Look for a template that loops, or that calls 'lookup' or 'include' very often"},
		},
		"allocation bomb": {
			options: render.Options{Timeout: wide, MaxMemory: 128 << 20}, template: greedy,
			want: []string{"cannot render chart 'shop' 1.2.3", "more than 128 MiB of memory",
				"Look for a template that loops, includes itself, or repeats a text very often"},
		},
		"one large allocation": {
			options: render.Options{Timeout: wide, MaxMemory: 128 << 20}, template: `{{ repeat 20000000000 "x" }}`,
			want: []string{"cannot render chart 'shop' 1.2.3", "more than 128 MiB of memory"},
		},
		"50 MB of output": {
			options:  render.Options{Timeout: wide},
			template: `{{ range until 50 }}{{ repeat 1000000 "x" }}{{ end }}`,
			want: []string{"cannot render chart 'shop' 1.2.3", "more than 16 MiB; shop/templates/a.yaml renders " +
				"47 MiB. Look for a loop in the file, or split the chart into several releases",
				"shop/templates/a.yaml renders 47 MiB"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.options.Children = 1
			r := newRenderer(t, test.options)
			_, err := r.Render(t.Context(), one(t, map[string]string{"templates/a.yaml": test.template}))
			if fault.As(err) == nil {
				t.Fatalf("the error is %v, want a fault", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message lacks %q: %s", want, err)
				}
			}
		})
	}
}

func TestKilledChildIsReplacedAndHurtsNoOther(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide, MaxMemory: 128 << 20, Children: 2})
	waits, proceed := make(chan struct{}), make(chan struct{})
	other := one(t, map[string]string{"templates/a.yaml": `{{ lookup "v1" "Pod" "x" "y" }}done`})
	other.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
		close(waits)
		<-proceed
		return nil, nil
	}
	type answer struct {
		result *render.Result
		err    error
	}
	answers := make(chan answer)
	go func() {
		result, err := r.Render(guard.WithOwner(t.Context(), "other"), other)
		answers <- answer{result, err}
	}()
	<-waits // the other tenant's templates are being rendered
	for range 3 {
		_, err := r.Render(guard.WithOwner(t.Context(), "greedy"),
			one(t, map[string]string{"templates/a.yaml": greedy}))
		if err == nil || !strings.Contains(err.Error(), "MiB of memory") {
			t.Errorf("the greedy chart: %v", err)
		}
	}
	close(proceed)
	if a := <-answers; a.err != nil || a.result.Files[0].Content != "map[]done" {
		t.Errorf("the other tenant's render: %+v, %v", a.result, a.err)
	}
	if _, err := r.Render(t.Context(), one(t, map[string]string{"templates/a.yaml": "x"})); err != nil {
		t.Errorf("after a killed child: %v", err)
	}
}

// TestTemplatesThatDoNotEndDelayNoOther has more templates of a namespace that do not end than there are children.
func TestTemplatesThatDoNotEndDelayNoOther(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide})
	ctx, cancel := context.WithCancel(guard.WithOwner(t.Context(), "hostile"))
	started, ended := make(chan struct{}, 20), make(chan error)
	hostile := one(t, map[string]string{"templates/a.yaml": `{{ lookup "v1" "Pod" "x" "y" }}` + endless})
	hostile.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
		started <- struct{}{}
		return nil, nil
	}
	const many = 20
	for range many {
		go func() {
			_, err := r.Render(ctx, hostile)
			ended <- err
		}()
	}
	<-started
	for _, tenant := range []string{"a", "b"} {
		result, err := r.Render(guard.WithOwner(t.Context(), tenant),
			one(t, map[string]string{"templates/a.yaml": "x"}))
		if err != nil || len(result.Files) != 1 {
			t.Errorf("tenant %s: %v, %v", tenant, result, err)
		}
	}
	cancel()
	for range many {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a template that does not end: %v", err)
		}
	}
}

// large is a template that keeps 100 MiB and looks up an object.
const large = `{{ $x := list }}{{ range until 100 }}{{ $x = append $x (repeat 1048576 "y") }}{{ end }}` +
	`{{ lookup "v1" "Pod" "x" "y" }}{{ len $x }}`

// TestMemoryOfChildrenIsOfTheBudget renders a chart that needs much memory while other work has it.
func TestMemoryOfChildrenIsOfTheBudget(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is known on Linux only")
	}
	budget := guard.NewBudget(256 << 20)
	ctx := guard.WithBudget(t.Context(), budget)
	r := newRenderer(t, render.Options{Timeout: wide, MaxMemory: 512 << 20})
	q := one(t, map[string]string{"templates/a.yaml": large})
	q.Lookup = func(ctx context.Context, _, _, _, _ string) (map[string]any, error) {
		for budget.Used() == 0 && ctx.Err() == nil {
			runtime.Gosched()
		}
		return nil, ctx.Err()
	}
	if _, err := r.Render(ctx, q); err != nil || budget.Used() != 0 {
		t.Errorf("with memory: %v, then %d bytes are in use", err, budget.Used())
	}
	if _, err := r.Render(guard.WithBudget(t.Context(), guard.NewBudget(1<<20)), one(t,
		map[string]string{"templates/a.yaml": greedy})); err == nil || !guard.IsMemory(err) ||
		!strings.Contains(err.Error(), "rendering the chart of release ") {
		t.Errorf("without memory: %v", err)
	}

	lease, err := budget.Acquire(ctx, "other work", budget.Total())
	if err != nil {
		t.Fatal(err)
	}
	q.Lookup = nil
	answer := make(chan error)
	go func() {
		_, err := r.Render(ctx, q)
		answer <- err
	}()
	testenv.Eventually(t, "the child waits", func() error {
		if budget.Waiting() != 1 {
			return errors.New("it does not")
		}
		return nil
	})
	lease.Release()
	if err := <-answer; err != nil || budget.Used() != 0 {
		t.Errorf("after other work: %v, then %d bytes are in use", err, budget.Used())
	}
}

func TestEndOfContextKillsTheChild(t *testing.T) {
	r := newRenderer(t, render.Options{Timeout: wide, Children: 1})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the object was deleted")
	q := one(t, map[string]string{"templates/a.yaml": `{{ lookup "v1" "Pod" "x" "y" }}` + endless})
	q.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
		cancel(stop)
		return nil, nil
	}
	if _, err := r.Render(ctx, q); !errors.Is(err, stop) {
		t.Errorf("the error is %v, want the cause of the context", err)
	}
	if _, err := r.Render(ctx, q); !errors.Is(err, stop) {
		t.Errorf("with an ended context: %v", err)
	}
}
