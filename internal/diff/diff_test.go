package diff

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		"nothing": {deployment, deployment, ""},
		"what the server sets": {deployment,
			replace(`"7"`, `"8"`, "manager: x", "manager: y", "{replicas: 1}", "{replicas: 2}"), ""},
		"a number": {deployment, replace("replicas: 1\n", "replicas: 3\n"),
			"~ spec.replicas: 1 → 3"},
		"an item found by its name": {deployment, replace("web:1.0", "web:1.1"),
			"~ spec.template.spec.containers[name=web].image: web:1.0 → web:1.1"},
		"an item found by two fields": {deployment, replace("protocol: UDP}", "protocol: UDP, name: u}"),
			"+ spec.template.spec.containers[name=web].ports[containerPort=80,protocol=UDP].name: u"},
		"an item found by its place": {deployment, replace("NoExecute", "None"),
			"~ spec.template.spec.tolerations[1].effect: NoExecute → None"},
		"an item goes": {deployment, replace("      - {name: sidecar, image: \"side:1\"}\n", ""),
			"- spec.template.spec.containers[name=sidecar]:\n-   image: side:1\n-   name: sidecar"},
		"a list of words": {deployment, replace("--verbose", "--quiet"),
			"~ spec.template.spec.containers[name=web].args: [serve, --verbose] → [serve, --quiet]"},
		"a label with a slash comes": {deployment, replace("{app: web}", "{app: web, example.com/tier: front}"),
			`+ metadata.labels["example.com/tier"]: front`},
		"a text that looks like a number": {deployment, replace("value: dark", `value: "1"`),
			`~ spec.template.spec.containers[name=web].env[name=MODE].value: dark → "1"`},
		"items change places": {"spec: {env: [{name: a, value: x}, {name: b}]}",
			"spec: {env: [{name: b}, {name: a, value: z}]}",
			"~ spec.env[name=a].value: x → z\n~ spec.env[order]: [name=a, name=b] → [name=b, name=a]"},
		"an empty value comes": {"spec: {}", "spec: {volume: {}}", "+ spec.volume: {}"},
		"a line of many": {"data: {conf: \"a\\nb\\nc\\nd\\ne\\n\"}", "data: {conf: \"a\\nb\\nC\\nd\\ne\\n\"}",
			"~ data.conf:\n    @@ line 2\n      b\n    - c\n    + C\n      d"},
		"an object comes": {"", "kind: ConfigMap\nmetadata: {name: x, labels: {a: b}}\ndata: {k: v}",
			"+ data:\n+   k: v\n+ metadata.labels:\n+   a: b"},
		"an object goes":             {"kind: ConfigMap\nmetadata: {name: x}\ndata: {k: v}", "", "- data:\n-   k: v"},
		"a key that would steer one": {"data: {a: x}", `data: {a: x, "[\e\n": z}`, `+ data["[\x1b\n"]: z`},
		"what would steer a terminal": {"data: {a: x}", `data: {a: "\e[31m\a\u202e"}`,
			`~ data.a: x → "\x1b[31m\a\u202e"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Text(object(t, c.before), object(t, c.after)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
	for name, c := range map[string]struct{ before, after, want string }{
		"data changes": {secret + "data: {k: QUJD, same: QUJD}", secret + "data: {k: QUJE, same: QUJD}",
			"~ data.k: *** (before) → *** (after)"},
		"data comes":     {secret + "data: {k: QUJD}", secret + "data: {k: QUJD, l: QUJD}", "+ data.l: ***"},
		"a Secret comes": {"", secret + "data: {k: QUJD}", "+ data:\n+   k: '***'"},
		"stringData": {secret + "stringData: {k: ABC}", secret + "stringData: {k: ABCD}",
			"~ stringData.k: *** (before) → *** (after)"},
		"what else a Secret has": {secret, secret + "type: ABCD", "+ type: ABCD"},
		"a variable by its name": {deployment, strings.ReplaceAll(deployment, "hunter2", "hunterABC"),
			"~ spec.template.spec.containers[name=web].env[name=DB_PASSWORD].value: *** (before) → *** (after)"},
		"a variable that comes": {"spec: {env: [{name: A, value: b}]}",
			"spec: {env: [{name: A, value: b}, {name: API_TOKEN, value: ABC}]}",
			"+ spec.env[name=API_TOKEN]:\n+   name: API_TOKEN\n+   value: '***'"},
		"a field by its name": {"spec: {clientSecret: ABC}", "spec: {clientSecret: ABCD}",
			"~ spec.clientSecret: *** (before) → *** (after)"},
		"a number by its name": {"spec: {}", "spec: {password: 1234}", "+ spec.password: ***"},
		"a reference to a Secret": {"spec: {volume: {x: y}}", "spec: {volume: {x: y, secret: {secretName: name}}}",
			"+ spec.volume.secret:\n+   secretName: name"},
		"a switch about tokens": {"spec: {automountServiceAccountToken: true}",
			"spec: {automountServiceAccountToken: false}", "~ spec.automountServiceAccountToken: true → false"},
		"what kubectl applied": {"metadata: {annotations: {a: b}}", "metadata: {annotations: {a: b, " +
			lastApplied + ": 'ABC'}}", `+ metadata.annotations["` + lastApplied + `"]: ***`},
		"the password of a URL": {"data: {url: 'postgres://u:ABC@db/x'}", "data: {url: 'postgres://u:ABCD@db/y'}",
			"~ data.url: postgres://***@db/x → postgres://***@db/y"},
		"only the password of a URL": {"data: {url: 'postgres://u:ABC@db/x'}", "data: {url: 'postgres://u:ABCD@db/x'}",
			"~ data.url: postgres://*** (before)@db/x → postgres://*** (after)@db/x"},
		"an assignment in a text": {"data: {f: \"a=1\\nx\\n\"}", "data: {f: \"a=1\\ndb.password = ABC\\n\"}",
			"~ data.f:\n    @@ line 1\n      a=1\n    - x\n    + db.password = ***"},
		"JSON in a text": {"data: {f: '{}'}", `data: {f: '{"token": "ABC DEF", "a": 1}'}`,
			`~ data.f: "{}" → "{\"token\": ***, \"a\": 1}"`},
		"a private key": {"data: {f: x}", "data: {f: \"-----BEGIN RSA PRIVATE " +
			"KEY-----\\nABC\\n-----END RSA PRIVATE KEY-----\\nz\"}",
			"~ data.f:\n    @@ line 1\n    - x\n    + ***\n    + z"},
		"a flag and its value": {"spec: {args: []}", "spec: {args: [--db-password, ABC, --x]}",
			"~ spec.args: [] → [--db-password, ***, --x]"},
		"a flag with its value": {"spec: {args: [a]}", "spec: {args: [--token=ABC]}",
			"~ spec.args: [a] → [--token=***]"},
		"a header": {"data: {f: x}", "data: {f: 'Authorization: Bearer ABCDEFGH'}",
			`~ data.f: x → "Authorization: Bearer ***"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := object(t, c.before), object(t, c.after)
			if got := Text(before, after); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for _, d := range Objects(before, after) {
				if told := fmt.Sprint(d.Before, d.After); strings.Contains(told, "ABC") &&
					!strings.Contains(c.want, "ABC") || strings.Contains(told, "QUJ") {
					t.Errorf("told: %v", d)
				}
			}
			if before != nil && before.Object["data"] != nil && strings.Contains(fmt.Sprint(before.Object), hidden) {
				t.Error("the object itself was changed")
			}
		})
	}
}

func TestKnownSecretsAreMaskedInAnyField(t *testing.T) {
	t.Parallel()
	const before = "spec: {a: old, b: new, c: 1, gone: rotated, list: [x], deep: {k: v}}"
	for name, c := range map[string]struct{ after, want string }{
		"a value that comes in": {"spec: {a: 'postgres://sesame@db', b: new, c: 1, gone: rotated, list: [x], " +
			"deep: {k: v}}", "~ spec.a: *** (before) → *** (after)"},
		"a number": {"spec: {a: old, b: new, c: 4711, gone: rotated, list: [x], deep: {k: v}}",
			"~ spec.c: *** (before) → *** (after)"},
		"what goes, in any case": {"spec: {a: old, b: new, c: 1, list: [x], deep: {k: v}}", "- spec.gone: ***"},
		"an item of a list": {"spec: {a: old, b: new, c: 1, gone: rotated, list: [x, sesame], deep: {k: v}}",
			"~ spec.list: [x] → [x, ***]"},
		"a field in one that comes": {"spec: {a: old, b: new, c: 1, gone: rotated, list: [x], deep: {k: v, more: " +
			"{x: w, z: a sesame b}}}",
			"+ spec.deep.more:\n+   x: w\n+   z: '***'"},
		"a value that has none": {"spec: {a: other, b: new, c: 1, gone: rotated, list: [x], deep: {k: v}}",
			"~ spec.a: old → other"},
		"a short one is no secret": {"spec: {a: v, b: new, c: 1, gone: rotated, list: [x], deep: {k: v}}",
			"~ spec.a: old → v"},
	} {
		if got := Text(object(t, before), object(t, c.after), "v", "sesame", "4711"); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
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
	if got := Cut("one\ntwo\n"+strings.Repeat("x", 100), 50); got != "one\ntwo\n… and 1 more lines" {
		t.Errorf("cut to %q", got)
	}
	if got := Cut(strings.Repeat("x", 100), 50); len(got) > 50 {
		t.Errorf("cut to %q", got)
	}
}

// FuzzText looks for objects whose diff is too long, or not to be printed, or tells what a Secret holds.
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
				t.Errorf("%q steers a terminal", text)
			}
		}
		if Text(&before, &before) != "" {
			t.Error("an object differs from itself")
		}
	})
}
