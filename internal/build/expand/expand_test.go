package expand

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// request reads a request from the spec of a ResourceSet named apps, and providers in YAML.
func request(t *testing.T, text string) Request {
	t.Helper()
	var spec struct {
		Inputs            json.RawMessage
		Providers         map[string]json.RawMessage
		Strategy          string
		IncludeEmpty      bool
		Resources         []json.RawMessage
		ResourcesTemplate string
		Steps             []struct {
			Name      string
			Resources []json.RawMessage
		}
	}
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	q := Request{Strategy: spec.Strategy, IncludeEmpty: spec.IncludeEmpty,
		HasInputs: spec.Inputs != nil || spec.Providers != nil}
	if spec.Inputs != nil {
		q.Providers = []Provider{{APIVersion: "fluxcd.controlplane.io/v1", Kind: "ResourceSet", Namespace: "ns",
			Name: "apps", Inputs: spec.Inputs}}
	}
	for _, name := range []string{"Env-1", "regions", "none"} {
		if inputs, ok := spec.Providers[name]; ok {
			q.Providers = append(q.Providers, Provider{Kind: "ResourceSetInputProvider", Namespace: "ns", Name: name,
				Inputs: inputs})
		}
	}
	if spec.Steps == nil {
		q.Steps = []Step{{Resources: spec.Resources, Template: spec.ResourcesTemplate}}
	}
	for _, s := range spec.Steps {
		q.Steps = append(q.Steps, Step{Name: s.Name, Resources: s.Resources})
	}
	return q
}

// rendered returns the objects as lines of kind, name and data.
func rendered(t *testing.T, text string) string {
	t.Helper()
	r, err := Expand(request(t, text))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, step := range r.Steps {
		for _, o := range step {
			data, err := json.Marshal(o.Object["data"])
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s/%s %s", o.GetKind(), o.GetName(), data))
		}
	}
	return strings.Join(lines, "\n")
}

const configMap = "\nresources:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: "

func TestExpand(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"flatten": {
			spec: "inputs: [{tenant: a, num: 1000000, f: 1.5}, {tenant: b, num: 2, f: 2}]" + configMap +
				`"<< inputs.tenant >>"}
  data: {num: "<< inputs.num >>", q: "<< inputs.num | quote >>", f: "<< inputs.f >>", p: "<< inputs.provider.name >>"}`,
			want: `ConfigMap/a {"f":1.5,"num":1000000,"p":"apps","q":"1000000"}` + "\n" +
				`ConfigMap/b {"f":2,"num":2,"p":"apps","q":"2"}`,
		},
		"no inputs":              {spec: configMap[1:] + `'<< "A b" | slugify >>'}`, want: "ConfigMap/a-b null"},
		"no input of a provider": {spec: "providers: {none: []}" + configMap + "a}", want: ""},
		"permute": {
			spec: "strategy: Permute\nproviders: {Env-1: [{e: dev}, {e: prod}], " +
				"regions: [{r: us}, {r: eu}], none: []}" + configMap +
				`"<< inputs.env_1.e >>-<< inputs.regions.r >>"}` + "\n  data: {id: << inputs.id | quote >>}",
			// Adler-32 of env_1=0/regions=0 and so on, by Python's zlib.adler32
			want: strings.Join([]string{`ConfigMap/dev-us {"id":"894961114"}`, `ConfigMap/dev-eu {"id":"895026651"}`,
				`ConfigMap/prod-us {"id":"895682011"}`, `ConfigMap/prod-eu {"id":"895747548"}`}, "\n"),
		},
		"permute with an empty provider": {
			spec: "strategy: Permute\nincludeEmpty: true\nproviders: {Env-1: [{e: dev}], none: []}" + configMap + "a}",
			want: "",
		},
		"the first of equal objects counts": {
			spec: "inputs: [{a: 1}, {a: 2}]" + configMap + "x}\n  data: {a: << inputs.a | quote >>}\n" +
				"resourcesTemplate: |\n  apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: x}\n" +
				"  ---\n  # nothing\n" +
				"  ---\n  apiVersion: v1\n  kind: Secret\n  metadata: {name: x}\n",
			want: `ConfigMap/x {"a":"1"}` + "\nSecret/x null",
		},
		"an excluded object": {
			spec: "inputs: [{live: true}, {live: false}]" + configMap + `"x-<< inputs.live >>", annotations: ` +
				`{fluxcd.controlplane.io/reconcile: '<< ternary "enabled" "disabled" inputs.live >>'}}`,
			want: "ConfigMap/x-true null",
		},
		"YAML in a value": {
			spec: `inputs: [{v: "a: b\nc: '"}]` + configMap +
				"x}\n  data: {v: '<< inputs.v | toJson >>', w: '<< inputs.v " +
				"| quote >>'}",
			want: `ConfigMap/x {"v":"a: b\nc: '","w":"a: b\nc: '"}`,
		},
		"templates and paths in a value": {
			spec: `inputs: [{branch: "<< inputs.id >>{{ x }}../../A"}]` + configMap +
				"x-<< inputs.branch | slugify >>}\n  data: {b: << inputs.branch | quote >>}",
			want: `ConfigMap/x-inputs-id-x-a {"b":"\u003c\u003c inputs.id \u003e\u003e{{ x }}../../A"}`,
		},
		"ranges and toYaml": {
			spec: "inputs: [{list: [1, 2], labels: {b: c, a: '1'}}]\n" +
				"resourcesTemplate: |\n  <<- range $i := inputs.list >>\n" +
				"  ---\n  apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: c<< $i >>\n  data:\n" +
				"  <<- inputs.labels | toYaml | nindent 4 >>\n  <<- end >>\n",
			want: `ConfigMap/c1 {"a":"1","b":"c"}` + "\n" + `ConfigMap/c2 {"a":"1","b":"c"}`,
		},
		"a list": {
			spec: "resourcesTemplate: |\n  apiVersion: v1\n  kind: List\n  items:\n" +
				"  - apiVersion: v1\n    kind: Namespace\n" +
				"    metadata: {name: a}\n",
			want: "Namespace/a null",
		},
		"steps": {
			spec: "steps:\n- name: a\n  resources: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}]\n" +
				"- name: b\n  resources: [{apiVersion: v1, kind: Namespace, metadata: {name: b}}]\n",
			want: "Namespace/a null\nNamespace/b null",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rendered(t, c.spec); got != c.want {
				t.Errorf("rendered\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestInvalidRequests(t *testing.T) {
	many := "[" + strings.Repeat("{a: 1}, ", 101) + "]"
	for name, c := range map[string]struct{ spec, want string }{
		"a missing key": {
			spec: "inputs: [{id: one}]" + configMap + `"<< inputs.absent >>"}`,
			want: `resources[0]:4:11: executing "resources[0]" at <inputs>: map has no entry for key "absent" ` +
				"with the inputs of id 'one'",
		},
		"an unknown function": {spec: configMap[1:] + `'<< env "HOME" >>'}`, want: `function "env" not defined`},
		"a random number":     {spec: configMap[1:] + `'<< randInt 1 2 >>'}`, want: `function "randInt" not defined`},
		"invalid YAML": {
			spec: `inputs: [{v: "a: b: c"}]` + configMap + "x}\n  data: {v: << inputs.v >>}",
			want: "resources[0] is not valid YAML when it is rendered",
		},
		"no kind":    {spec: "resourcesTemplate: 'a: b'", want: "an object has no apiVersion or no kind"},
		"no object":  {spec: "resourcesTemplate: 'text'", want: "a document is not an object"},
		"much text":  {spec: `resourcesTemplate: '<< repeat 20000000 "x" >>'`, want: "render more than 16 MiB"},
		"two in one": {spec: "strategy: Permute\ninputs: []\nproviders: {none: [{}]}" + configMap + "x}", want: ""},
		"many combinations": {
			spec: "strategy: Permute\nproviders: {Env-1: " + many + ", regions: " + many + "}" + configMap + "x}",
			want: "more than 10000 combinations",
		},
		"an object of two steps": {
			spec: "steps:\n- name: a\n  resources: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}]\n" +
				"- name: b\n  resources: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}]\n",
			want: "step 'b': resources[0]: Namespace 'a' is also in an earlier step",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Expand(request(t, c.spec))
			if c.want == "" && err == nil {
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestNamesOfProvidersInTemplates(t *testing.T) {
	for name, want := range map[string]string{
		"my-app": "my_app", "Env.1": "env_1", "a--b": "a_b", "äpp": "pp", "_x_": "x", "é": "",
	} {
		got, err := normalize(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("'%s' becomes '%s' (%v), want '%s'", name, got, err, want)
		}
	}
	if _, err := permute([]string{"a-b", "a.b"}, [][]inputSet{{{}}, {{}}}, false); err == nil {
		t.Error("two providers of the same name are accepted")
	}
}

func TestSlugs(t *testing.T) {
	for text, want := range map[string]string{
		"feat/Ünï code": "feat-uni-code", "a & b": "a-and-b",
		strings.Repeat("ab-", 40): strings.Repeat("ab-", 20) + "ab",
		strings.Repeat("x", 80):   strings.Repeat("x", 63),
	} {
		var left = MaxText
		p, err := parse("t", "<< slugify inputs.v >>")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.render(inputSet{"v": text}, &left); err != nil || got != want {
			t.Errorf("%q becomes %q (%v), want %q", text, got, err, want)
		}
	}
}
