package yamlsize_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// nested returns a text whose last line expands to 9^depth values.
func nested(depth int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x]\n")
	for i := 1; i <= depth; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return b.String()
}

// repeated returns a text with an anchor of the given size, and aliases for it.
func repeated(size, aliases int) string {
	return "a: &a " + strings.Repeat("x", size) + "\nb: [" + strings.Repeat("*a,", aliases) + "]\n"
}

func TestAliasesAreBounded(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"none":              {text: "a: b & c * d\n"},
		"few":               {text: "a: &a {x: 1}\nb: *a\nc: {<<: *a}\n"},
		"several documents": {text: "a: &a 1\nb: *a\n---\nc: &a 1\nd: *a\n"},
		"one text":          {text: repeated(500_000, 100_000), want: "more than 4 MiB of text"},
		"an anchor of a key": {
			text: "? &a " + strings.Repeat("x", 900) + "\n: 1\nb: [" + strings.Repeat("*a,", 9000) + "]",
			want: "of text"},
		"a long key": {text: "a: &a\n  " + strings.Repeat("x", 900) + ": 1\nb: [" + strings.Repeat("*a,", 9000) + "]",
			want: "of text"},
		"one text, as merges": {text: "a: &a {x: " + strings.Repeat("x", 99_000) + "}\n" + merges(100),
			want: "of text"},
		"in the 2nd document": {text: "x: 1\n---\n" + repeated(500_000, 100_000), want: "more than 4 MiB of text"},
		"nested":              {text: nested(12), want: "more than 50000 values"},
		"recursive":           {text: "a: &a [*a]\n", want: "recursive"},
		"not YAML":            {text: "a: &a 'x\nb: *a"},
		"not YAML, and large": {text: repeated(500_000, 100_000) + "x: 'y", want: "is not valid YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			err := yamlsize.Check([]byte(test.text))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

func TestExcessSaysWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		nested(12):                 "Use fewer nested aliases",
		repeated(500_000, 100_000): "Use fewer aliases for long texts",
		"a: &a [*a]\n":             "Replace the alias with its content",
	} {
		var excess *yamlsize.Excess
		if err := yamlsize.Check([]byte(text)); !errors.As(err, &excess) || excess.Hint != want {
			t.Errorf("the error is %v, want the hint %q", err, want)
		}
	}
}

func merges(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "m%d: {<<: *a}\n", i)
	}
	return b.String()
}

func TestMemoryIsTakenBeforeDecoding(t *testing.T) {
	budget := guard.NewBudget(16 << 20)
	ctx := guard.WithBudget(t.Context(), budget)
	lease, err := yamlsize.Acquire(ctx, "the test", []byte("a: 1\n"), []byte("b: [1, 2]\n"))
	if err != nil || budget.Used() < 4*640 {
		t.Fatalf("%d bytes are used, %v", budget.Used(), err)
	}
	lease.Release()
	_, err = yamlsize.Acquire(ctx, "the test", []byte("a: ["+strings.Repeat("0,", 100_000)+"]\n"))
	if fault.Reason(err, "") != guard.ReasonTooLarge {
		t.Errorf("the error is %v", err)
	}
	if _, err = yamlsize.Acquire(ctx, "the test", []byte(repeated(5_000, 1_000))); err == nil {
		t.Error("aliases are not checked")
	}
	if budget.Used() != 0 {
		t.Errorf("%d bytes are still used", budget.Used())
	}
}
