package ui

import (
	"context"
	"net/http"

	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/resourceset"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of the inputs of a ResourceSet.
const (
	maxInputs       = 500
	maxInputObjects = 200     // of one input set
	maxInputBytes   = 8 << 10 // of one input set
)

// inputs are the input sets of a ResourceSet, and what each renders.
type inputs struct {
	Inputs  []input `json:"inputs"`
	Omitted int     `json:"omitted"`
	Error   string  `json:"error,omitempty"` // why it is not known what they render
}

// input is an input set.
type input struct {
	From    string   `json:"from"` // ID of the provider, or of the ResourceSet; empty for a combination of several
	ID      string   `json:"id,omitempty"`
	Values  string   `json:"values"` // YAML
	Objects []string `json:"objects"`
	Count   int      `json:"count"` // of objects
}

// inputs returns the input sets of a ResourceSet and the objects that its templates render with each, with the rights
// of the user.
func (s *Server) inputs(ctx context.Context, u *User, r *http.Request) (any, error) {
	_, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	set, ok := o.(*controlplanev1.ResourceSet)
	if !ok {
		return nil, badRequest("only a ResourceSet has inputs")
	}
	providers, waiting, err := resourceset.Providers(ctx, u.Client, set)
	if err != nil {
		return nil, err
	}
	answer := inputs{Inputs: []input{}}
	if waiting != nil {
		answer.Error = waiting.String()
		return answer, nil
	}
	all, err := resourceset.Inputs(ctx, s.Templates, set, providers)
	if err != nil {
		answer.Error = excerpt.Bytes(err.Error(), maxConditionRow)
	}
	answer.Omitted = max(0, len(all)-maxInputs)
	for _, in := range all[:len(all)-answer.Omitted] {
		shown, err := newInput(in)
		if err != nil {
			return nil, err
		}
		answer.Inputs = append(answer.Inputs, shown)
	}
	return answer, nil
}

func newInput(in resourceset.Input) (input, error) {
	shown := input{Objects: []string{}, Count: len(in.Objects)}
	if p, ok := in.Values["provider"].(map[string]any); ok {
		text := func(key string) string { t, _ := p[key].(string); return t }
		shown.From = view.ID(text("kind"), text("namespace"), text("name"))
		delete(in.Values, "provider")
	}
	shown.ID, _ = in.Values["id"].(string)
	values, err := yaml.Marshal(in.Values)
	shown.Values = excerpt.Bytes(string(values), maxInputBytes)
	for _, o := range in.Objects[:min(len(in.Objects), maxInputObjects)] {
		shown.Objects = append(shown.Objects, apply.Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.String())
	}
	return shown, err
}
