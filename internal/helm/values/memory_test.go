package values_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

// deep returns a document of leaves that all have the same long path before them.
func deep(leaves int) string {
	var b strings.Builder
	for range 100 {
		b.WriteString(`{"` + strings.Repeat("k", 1_000) + `":`)
	}
	b.WriteString("{")
	for i := range leaves {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	return strings.TrimSuffix(b.String(), ",") + strings.Repeat("}", 101)
}

// times returns n entries of valuesFrom.
func times(n int, ref meta.ValuesReference) []meta.ValuesReference {
	all := make([]meta.ValuesReference, n)
	for i := range all {
		all[i] = ref
	}
	return all
}

// TestMemoryOfValuesIsBounded composes values that need far more memory than their texts have bytes.
func TestMemoryOfValuesIsBounded(t *testing.T) {
	index := "a" + strings.Repeat("[65000]", 8)
	in := objects{
		config: map[string]string{"deep": deep(4_000), "dense": "a: [" + strings.Repeat("{a},", 5_000) + "]\n",
			"one": "1", "lists": "1" + lists(400, "65000"), "escaped": "1" + lists(400, `6\5000`),
			"maps": "1" + lists(60_000, "0")},
		secret: map[string]string{"one": "1", "other": strings.Repeat("x", 1<<20)}, // copied for each read
	}
	for name, test := range map[string]struct {
		refs     []meta.ValuesReference
		inline   string
		composed bool
	}{
		"a long path to all values":            {refs: times(1, config("deep", "")), composed: true},
		"a long path to all values, inline":    {inline: deep(4_000), composed: true},
		"one ConfigMap many times":             {refs: times(30, config("dense", ""))},
		"a path of indexes, many times":        {refs: times(20, config("one", index))},
		"a path of indexes, of a Secret":       {refs: times(20, secret("one", index))},
		"indexes in a value":                   {refs: times(1, config("lists", "n"))},
		"escaped indexes in a value":           {refs: times(1, config("escaped", "n"))},
		"short lists in a value":               {refs: times(1, config("maps", "n"))},
		"dense values, inline":                 {inline: `{"a":[` + strings.Repeat("{},", 200_000) + `0]}`},
		"one key of a large Secret many times": {refs: times(100, secret("one", "n")), composed: true},
	} {
		t.Run(name, func(t *testing.T) {
			budget := guard.NewBudget(64 << 20)
			ctx := guard.WithBudget(t.Context(), budget)
			var composed *values.Composed
			var err error
			used := allocation.Bytes(func() {
				composed, err = values.Compose(ctx, in, "team", test.refs,
					&apiextensionsv1.JSON{Raw: []byte(test.inline)})
			})
			if used > 300<<20 {
				t.Errorf("%d MiB were allocated", used>>20)
			}
			if test.composed != (err == nil) || err != nil && !guard.IsMemory(err) {
				t.Fatalf("the error is %v", err)
			}
			if err == nil {
				if budget.Used() == 0 {
					t.Error("values that are in use take no memory")
				}
				composed.Memory.Release()
			}
			if budget.Used() != 0 {
				t.Errorf("%d bytes are still used", budget.Used())
			}
		})
	}
}

// lists returns further values in the syntax of --set, each of which is a list with an index.
func lists(n int, index string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",l%d[%s]=1", i, index)
	}
	return b.String()
}

func TestMemoryOfOriginsIsBounded(t *testing.T) {
	budget := guard.NewBudget(64 << 20)
	ctx := guard.WithBudget(context.Background(), budget)
	var err error
	used := allocation.Bytes(func() {
		_, _, err = values.Trace(ctx, objects{}, "team", nil, &apiextensionsv1.JSON{Raw: []byte(deep(4_000))})
	})
	if !guard.IsMemory(err) || used > 300<<20 || budget.Used() != 0 {
		t.Errorf("%d MiB were allocated, %d bytes are still used; the error is %v", used>>20, budget.Used(), err)
	}
}

func TestSecretsOfValues(t *testing.T) {
	in := objects{config: map[string]string{"values.yaml": "a: public\n"},
		secret: map[string]string{"values.yaml": "p: hunter2\nshort: abc\nl: [hunter3]\n", "n": "hunter4,m=hunter5"}}
	composed, err := values.Compose(t.Context(), in, "team",
		[]meta.ValuesReference{config("", ""), secret("", ""), secret("n", "n")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer composed.Memory.Release()
	all := strings.Join(composed.Secrets, "\n") + "\n"
	for _, want := range []string{in.secret["values.yaml"], "hunter2", "hunter3", "hunter4", "hunter5"} {
		if !strings.Contains(all, want+"\n") {
			t.Errorf("the secrets lack %q", want)
		}
	}
	if strings.Contains(all, "public") || strings.Contains(all, "\nabc\n") {
		t.Errorf("the secrets are %q", composed.Secrets)
	}
}
