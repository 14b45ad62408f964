package expand

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"text/template"

	sprig "github.com/go-task/slim-sprig/v3"
	"github.com/gosimple/slug"
	"sigs.k8s.io/yaml"
)

// MaxText is how much all templates together may render, in bytes.
const MaxText = 16 << 20

const maxSlug = 63 // characters, as in a label

// functions are those of templates. They have the same result in each render: none reads the environment, the clock,
// the network or a random number.
var functions = func() template.FuncMap {
	f := sprig.HermeticTxtFuncMap()
	for _, name := range []string{"ago", "randInt"} {
		delete(f, name)
	}
	slug.MaxLength = maxSlug
	maps.Copy(f, template.FuncMap{
		"slugify":    slug.Make,
		"mustToYaml": toYAML,
		"toYaml": func(v any) string {
			text, err := toYAML(v)
			if err != nil {
				return ""
			}
			return text
		},
	})
	return f
}()

func toYAML(v any) (string, error) {
	text, err := yaml.Marshal(v)
	return strings.TrimSuffix(string(text), "\n"), err
}

// parsed is a template. The input set that it is rendered with is a function of it.
type parsed struct {
	name     string
	template *template.Template
	inputs   inputSet
}

func parse(name, text string) (*parsed, error) {
	p := &parsed{name: name}
	t, err := template.New(name).Delims("<<", ">>").Option("missingkey=error").Funcs(functions).
		Funcs(template.FuncMap{"inputs": func() map[string]any { return p.inputs }}).Parse(text)
	p.template = t
	return p, err
}

// render renders a template with an input set. Left is how many bytes it may have.
func (p *parsed) render(inputs inputSet, left *int) (string, error) {
	p.inputs = inputs
	w := &boundedWriter{left: left}
	err := p.template.Execute(w, nil)
	return w.String(), err
}

// boundedWriter collects a text of bounded size.
type boundedWriter struct {
	strings.Builder
	left *int
}

func (w *boundedWriter) Write(b []byte) (int, error) {
	if *w.left -= len(b); *w.left < 0 {
		return 0, fmt.Errorf("the templates render more than %d MiB", MaxText>>20)
	}
	return w.Builder.Write(b)
}

var _ io.Writer = (*boundedWriter)(nil)
