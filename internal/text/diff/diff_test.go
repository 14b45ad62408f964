package diff

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/text/redact"
	"sigs.k8s.io/yaml"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}, resourceVersion: "7", managedFields: [{manager: x}]}
spec:
  replicas: 1
  template:
    spec:
      containers:
      - name: web
        image: web:1.0
        args: [serve, --verbose]
        ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: UDP}]
        env: [{name: MODE, value: dark}, {name: DB_PASSWORD, value: hunter2}]
      - {name: sidecar, image: "side:1"}
      tolerations: [{operator: Exists, effect: NoSchedule}, {operator: Exists, effect: NoExecute}]
status: {replicas: 1}
`

func TestText(t *testing.T) {
	t.Parallel()
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(deployment) }
	for name, c := range map[string]struct{ before, after, want string }{
		"no change": {before: deployment, after: deployment, want: ""},
		"fields that the server sets": {before: deployment,
			after: replace(`"7"`, `"8"`, "manager: x", "manager: y", "{replicas: 1}", "{replicas: 2}"), want: ""},
		"number": {before: deployment, after: replace("replicas: 1\n", "replicas: 3\n"),
			want: "~ spec.replicas: 1 → 3"},
		"item by name": {before: deployment, after: replace("web:1.0", "web:1.1"),
			want: "~ spec.template.spec.containers[name=web].image: web:1.0 → web:1.1"},
		"item by two fields": {before: deployment, after: replace("protocol: UDP}", "protocol: UDP, name: u}"),
			want: "+ spec.template.spec.containers[name=web].ports[containerPort=80,protocol=UDP].name: u"},
		"item by index": {before: deployment, after: replace("NoExecute", "None"),
			want: "~ spec.template.spec.tolerations[1].effect: NoExecute → None"},
		"removed item": {before: deployment, after: replace("      - {name: sidecar, image: \"side:1\"}\n", ""),
			want: "- spec.template.spec.containers[name=sidecar]:\n-   image: side:1\n-   name: sidecar"},
		"list of strings": {before: deployment, after: replace("--verbose", "--quiet"),
			want: "~ spec.template.spec.containers[name=web].args: [serve, --verbose] → [serve, --quiet]"},
		"added label with a slash": {before: deployment,
			after: replace("{app: web}", "{app: web, example.com/tier: front}"),
			want:  `+ metadata.labels["example.com/tier"]: front`},
		"string that looks like a number": {before: deployment, after: replace("value: dark", `value: "1"`),
			want: `~ spec.template.spec.containers[name=web].env[name=MODE].value: dark → "1"`},
		"changed order": {before: "spec: {env: [{name: a, value: x}, {name: b}]}",
			after: "spec: {env: [{name: b}, {name: a, value: z}]}",
			want:  "~ spec.env[name=a].value: x → z\n~ spec.env[order]: [name=a, name=b] → [name=b, name=a]"},
		"added empty value": {before: "spec: {}", after: "spec: {volume: {}}", want: "+ spec.volume: {}"},
		"line of a long text": {before: "data: {conf: \"a\\nb\\nc\\nd\\ne\\n\"}",
			after: "data: {conf: \"a\\nb\\nC\\nd\\ne\\n\"}",
			want:  "~ data.conf:\n    @@ line 2\n      b\n    - c\n    + C\n      d"},
		"created object": {before: "", after: "kind: ConfigMap\nmetadata: {name: x, labels: {a: b}}\ndata: {k: v}",
			want: "+ data:\n+   k: v\n+ metadata.labels:\n+   a: b"},
		"deleted object": {before: "kind: ConfigMap\nmetadata: {name: x}\ndata: {k: v}", after: "",
			want: "- data:\n-   k: v"},
		"control characters in a key": {before: "data: {a: x}", after: `data: {a: x, "[\e\n": z}`,
			want: `+ data["[\x1b\n"]: z`},
		"control characters in a value": {before: "data: {a: x}", after: `data: {a: "\e[31m\a\u202e"}`,
			want: `~ data.a: x → "\x1b[31m\a\u202e"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Text(object(t, c.before), object(t, c.after)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

const secretHead = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"

var maskedSecrets = map[string]struct{ before, after, want string }{
	"changed data": {before: secretHead + "data: {k: QUJD, same: QUJD}",
		after: secretHead + "data: {k: QUJE, same: QUJD}",
		want:  "~ data.k: *** (before) → *** (after)"},
	"added data": {before: secretHead + "data: {k: QUJD}", after: secretHead + "data: {k: QUJD, l: QUJD}",
		want: "+ data.l: ***"},
	"created Secret": {before: "", after: secretHead + "data: {k: QUJD}", want: "+ data:\n+   k: '***'"},
	"stringData": {before: secretHead + "stringData: {k: ABC}", after: secretHead + "stringData: {k: ABCD}",
		want: "~ stringData.k: *** (before) → *** (after)"},
	"other fields of a Secret": {before: secretHead, after: secretHead + "type: ABCD", want: "+ type: ABCD"},
	"variable by name": {before: deployment, after: strings.ReplaceAll(deployment, "hunter2", "hunterABC"),
		want: "~ spec.template.spec.containers[name=web].env[name=DB_PASSWORD].value: *** (before) → *** (after)"},
	"added variable": {before: "spec: {env: [{name: A, value: b}]}",
		after: "spec: {env: [{name: A, value: b}, {name: API_TOKEN, value: ABC}]}",
		want:  "+ spec.env[name=API_TOKEN]:\n+   name: API_TOKEN\n+   value: '***'"},
	"field by name": {before: "spec: {clientSecret: ABC}", after: "spec: {clientSecret: ABCD}",
		want: "~ spec.clientSecret: *** (before) → *** (after)"},
	"number by name": {before: "spec: {}", after: "spec: {password: 1234}", want: "+ spec.password: ***"},
	"reference to a Secret": {before: "spec: {volume: {x: y}}",
		after: "spec: {volume: {x: y, secret: {secretName: name}}}",
		want:  "+ spec.volume.secret:\n+   secretName: name"},
	"boolean named like a token": {before: "spec: {automountServiceAccountToken: true}",
		after: "spec: {automountServiceAccountToken: false}",
		want:  "~ spec.automountServiceAccountToken: true → false"},
	"last-applied annotation": {before: "metadata: {annotations: {a: b}}",
		after: "metadata: {annotations: {a: b, " +
			lastApplied + ": 'ABC'}}", want: `+ metadata.annotations["` + lastApplied + `"]: ***`},
	"password in a URL": {before: "data: {url: 'postgres://u:ABC@db/x'}",
		after: "data: {url: 'postgres://u:ABCD@db/y'}",
		want:  "~ data.url: postgres://***@db/x → postgres://***@db/y"},
	"change of only the password in a URL": {before: "data: {url: 'postgres://u:ABC@db/x'}",
		after: "data: {url: 'postgres://u:ABCD@db/x'}",
		want:  "~ data.url: postgres://*** (before)@db/x → postgres://*** (after)@db/x"},
	"assignment in a text": {before: "data: {f: \"a=1\\nx\\n\"}",
		after: "data: {f: \"a=1\\ndb.password = ABC\\n\"}",
		want:  "~ data.f:\n    @@ line 1\n      a=1\n    - x\n    + db.password = ***"},
	"JSON in a text": {before: "data: {f: '{}'}", after: `data: {f: '{"token": "ABC DEF", "a": 1}'}`,
		want: `~ data.f: "{}" → "{\"token\": ***, \"a\": 1}"`},
	"private key": {before: "data: {f: x}", after: "data: {f: \"-----BEGIN RSA PRIVATE " +
		"KEY-----\\nABC\\n-----END RSA PRIVATE KEY-----\\nz\"}",
		want: "~ data.f:\n    @@ line 1\n    - x\n    + ***\n    + z"},
	"flag and value": {before: "spec: {args: []}", after: "spec: {args: [--db-password, ABC, --x]}",
		want: "~ spec.args: [] → [--db-password, ***, --x]"},
	"flag with value": {before: "spec: {args: [a]}", after: "spec: {args: [--token=ABC]}",
		want: "~ spec.args: [a] → [--token=***]"},
	"header": {before: "data: {f: x}", after: "data: {f: 'Authorization: Bearer ABCDEFGH'}",
		want: `~ data.f: x → "Authorization: Bearer ***"`},
}

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	for name, c := range maskedSecrets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := object(t, c.before), object(t, c.after)
			if got := Text(before, after); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for _, d := range Objects(before, after) {
				if values := fmt.Sprint(d.Before, d.After); strings.Contains(values, "ABC") &&
					!strings.Contains(c.want, "ABC") || strings.Contains(values, "QUJ") {
					t.Errorf("not masked: %v", d)
				}
			}
			if before != nil && before.Object["data"] != nil && strings.Contains(fmt.Sprint(before.Object), masked) {
				t.Error("the object itself was changed")
			}
		})
	}
}

func TestSealedValuesAreShownAsMasks(t *testing.T) {
	t.Parallel()
	before, after := object(t, "spec: {a: old, list: [x], gone: v}"), object(t, "spec: {a: new, list: [x, z]}")
	seal := func(o *unstructured.Unstructured) {
		o.Object["spec"].(map[string]any)["a"] = redact.Seal(o.Object["spec"].(map[string]any)["a"])
		o.Object["spec"].(map[string]any)[redact.Seal("key")] = redact.Seal("same")
	}
	seal(before)
	seal(after)
	after.Object["spec"].(map[string]any)[redact.Seal("new")] = "v"
	const want = "+ spec[\"***\"]: v\n~ spec.a: *** (before) → *** (after)\n- spec.gone: v\n~ spec.list: [x] → [x, z]"
	if got := Text(before, after); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTextIsBounded(t *testing.T) {
	t.Parallel()
	many := map[string]any{}
	var lines, others []string
	for n := range 5000 {
		many[fmt.Sprintf("key-%05d", n)] = strings.Repeat("v", 1000)
		lines, others = append(lines, fmt.Sprint("line ", n)), append(others, fmt.Sprint("other ", n))
	}
	before := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"a": "b"},
		"data": map[string]any{"x": strings.Join(lines, "\n")}}}
	after := &unstructured.Unstructured{Object: map[string]any{"spec": many,
		"data": map[string]any{"x": strings.Join(others, "\n")}}}
	text := Text(before, after)
	if len(text) > maxText || !strings.Contains(text, "more lines") ||
		!strings.Contains(text, "lines 1-5000 → lines 1-5000") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
	if n := len(Objects(before, after)); n != maxDifferences {
		t.Errorf("%d differences", n)
	}
	if got := Cut("one\ntwo\n"+strings.Repeat("x", 100), 50); got != "one\ntwo\n… and 1 more line" {
		t.Errorf("cut to %q", got)
	}
	if got := Cut(strings.Repeat("x", 100), 50); len(got) > 50 {
		t.Errorf("cut to %q", got)
	}
}

// FuzzText checks that a diff is bounded, has no control characters, and is empty for equal objects.
func FuzzText(f *testing.F) {
	f.Add(deployment, strings.ReplaceAll(deployment, "web", "other"))
	f.Add("apiVersion: v1\nkind: Secret\ndata: {a: c2VjcmV0}",
		"apiVersion: v1\nkind: Secret\ndata: {a: [c2VjcmV0], metadata: {}}")
	f.Add("a: [{name: x}, {name: x}]", "a: [1, {name: [x]}, null]")
	f.Fuzz(func(t *testing.T, one, two string) {
		var before, after unstructured.Unstructured
		if yaml.Unmarshal([]byte(one), &before.Object) != nil || yaml.Unmarshal([]byte(two), &after.Object) != nil {
			return
		}
		text := Text(&before, &after)
		if len(text) > maxText {
			t.Errorf("%d bytes", len(text))
		}
		for _, r := range text {
			if r < ' ' && r != '\n' && r != '\t' {
				t.Errorf("%q contains a control character", text)
			}
		}
		if Text(&before, &before) != "" {
			t.Error("an object differs from itself")
		}
	})
}
