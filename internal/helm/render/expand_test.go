package render

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/build/expand"
	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func templates(inputs, text string) expand.Request {
	return expand.Request{HasInputs: true, Steps: []expand.Step{{Template: text}}, Providers: []expand.Provider{{
		Kind: "ResourceSet", Name: "apps", Inputs: json.RawMessage(inputs)}}}
}

func TestExpand(t *testing.T) {
	r := New(Options{Children: 1})
	t.Cleanup(r.Close)
	q := templates(`[{"n":1},{"n":2}]`,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'a<< inputs.n >>', generation: 3}\n")
	result, err := r.Expand(t.Context(), "ResourceSet 'ns/apps'", q)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Steps) != 1 || len(result.Steps[0]) != 2 || result.Inputs != 2 ||
		result.Steps[0][1].GetName() != "a2" || result.Steps[0][1].GetGeneration() != 3 {
		t.Errorf("got %+v", result)
	}
	var own *Error
	if _, err := r.Expand(t.Context(), "", templates("[{}]", "<< inputs.x >>")); !errors.As(err, &own) ||
		!strings.Contains(err.Error(), `no entry for key "x"`) {
		t.Errorf("error %v", err)
	}
}

func TestExpansionsAreBounded(t *testing.T) {
	const short, long = time.Second, 10 * time.Minute // of work that ends by its time, and by another bound
	renderers := map[time.Duration]*Renderer{}
	for _, timeout := range []time.Duration{short, long} {
		r := New(Options{Children: 1, Timeout: timeout, MaxMemory: 128 << 20})
		t.Cleanup(r.Close)
		renderers[timeout] = r
	}
	for text, want := range map[string]string{
		"<< range until 2000000000 >><< end >>":                                   "MiB of memory",
		"<< range 1000000000 >><< range 1000000000 >><< end >><< end >>":          "did not finish within 1s",
		`<< range 1000000000 >>xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx<< end >>`: "render more than 16 MiB",
		`<< repeat 1000000000 (repeat 100 "x") | len >>`:                          "MiB of memory",
		`<< define "a" >><< template "a" >><< end >><< template "a" >>`:           "exceeded maximum template depth",
		"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n" +
			"g: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g]\n": "",
	} {
		r := renderers[long]
		if strings.Contains(want, "did not finish") {
			r = renderers[short]
		}
		_, err := r.Expand(t.Context(), "ResourceSet 'ns/apps'", templates("[{}]", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
		var own *Error
		if f := fault.As(err); !errors.As(err, &own) && (f == nil || !f.Terminal) {
			t.Errorf("%q: %v is not terminal", text, err)
		}
	}
}

func TestCrashOfAnExpansion(t *testing.T) {
	ended := &sandbox.Ended{Detail: "exit status 2"}
	err := New(Options{}).explain(ended, "ResourceSet 'a/b'", "Other ResourceSets are not affected")
	want := "cannot render ResourceSet 'a/b': the process that renders its templates ended (exit status 2). Other " +
		"ResourceSets are not affected"
	if err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	if ended.IsOfWork() {
		t.Error("it is not retried")
	}
}
