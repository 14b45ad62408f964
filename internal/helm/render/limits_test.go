package render_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/helm/render"
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
			options: render.Options{Timeout: 5 * time.Second}, template: endless,
			want: []string{"cannot render chart", "did not finish within 5s",
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
		result, err := r.Render(t.Context(), other)
		answers <- answer{result, err}
	}()
	<-waits // the other tenant's templates are being rendered
	for range 3 {
		_, err := r.Render(t.Context(), one(t, map[string]string{"templates/a.yaml": greedy}))
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
