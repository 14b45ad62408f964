package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sluice-gitops/sluice/internal/build/expand"
	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Keys of the values of an expansion: the number of input sets, and which of them each object is of.
const (
	inputCount = "inputs"
	inputSets  = "from"
)

// Expand renders the templates of a ResourceSet, which name names, in a child. An error of the templates or inputs is
// an [*Error]. Templates that take too long, or render too much, have a terminal error.
func (r *Renderer) Expand(ctx context.Context, name string, q expand.Request) (*expand.Result, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, &Error{Message: err.Error()}
	}
	if len(text) > sandbox.MaxInput/4 {
		return nil, &Error{Message: fmt.Sprintf("the templates and inputs are larger than %d MiB",
			sandbox.MaxInput>>22)}
	}
	result, _, err := r.ask(ctx, "rendering "+name, nil,
		func(c *sandbox.Child) error { return c.Send(kindExpand, text) })
	if err == nil {
		return expanded(result)
	}
	explained := r.explain(err, name, "Other ResourceSets are not affected")
	var ended *sandbox.Ended
	if f := fault.As(explained); f != nil && errors.As(err, &ended) && ended.IsOfWork() {
		return nil, f.Final()
	}
	return nil, explained
}

// expanded decodes the answer of a child.
func expanded(r *Result) (*expand.Result, error) {
	count, _ := r.Values[inputCount].(int64)
	out := &expand.Result{Inputs: int(count)}
	for _, f := range r.Files {
		var objects []any
		if err := utiljson.Unmarshal([]byte(f.Content), &objects); err != nil {
			return nil, err
		}
		step := make([]*unstructured.Unstructured, 0, len(objects))
		for _, o := range objects {
			fields, _ := o.(map[string]any)
			step = append(step, &unstructured.Unstructured{Object: fields})
		}
		out.Steps = append(out.Steps, step)
	}
	return out, setFrom(out, r.Values[inputSets])
}

// setFrom records which input set each object is of.
func setFrom(out *expand.Result, from any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &out.From)
}

// expand renders the templates of a ResourceSet. A step is sent as a file.
func (s server) expand(request []byte) error {
	var q expand.Request
	if err := json.Unmarshal(request, &q); err != nil {
		return sandbox.ErrProtocol
	}
	result, err := expand.Expand(q)
	var files []File
	if err == nil {
		files, err = stepFiles(q, result)
	}
	if err != nil {
		return s.send(nil, nil, err)
	}
	values, err := json.Marshal(map[string]any{inputCount: result.Inputs, inputSets: result.From})
	if err != nil {
		return err
	}
	return s.send(files, values, nil)
}

// stepFiles returns the objects of each step as JSON.
func stepFiles(q expand.Request, result *expand.Result) (files []File, err error) {
	for n, step := range result.Steps {
		objects := make([]any, 0, len(step))
		for _, o := range step {
			objects = append(objects, o.Object)
		}
		content, err := json.Marshal(objects)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: q.Steps[n].Name, Content: string(content)})
	}
	return files, nil
}
