package build

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// places are objects in which VALUE is what a variable of a Secret becomes.
var places = []string{
	"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {plain: x, k: \"VALUE\"}\n",
	"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {note: \"VALUE\"}}\n",
	"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {\"VALUE\": x}\n",
	"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  f: |\n    a: VALUE\n    b: c\n",
	"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: c}\nspec: {replicas: 2, template: {spec: {containers: " +
		"[{name: a, image: \"i:1\", args: [x, \"--auth=VALUE\"], env: [{name: U, value: \"VALUE\"}]}]}}}\n",
	"apiVersion: x.io/v1\nkind: X\nmetadata: {name: c}\nspec: {list: [{host: \"VALUE\", n: 1}], url: " +
		"\"pg://u:VALUE@db/x\"}\n",
}

// transformed returns an expression of the variable, and what it becomes.
func transformed(random *rand.Rand, secret string) (expression, value string) {
	from := random.IntN(len(secret) - 8)
	length := 5 + random.IntN(len(secret)-from-5)
	switch random.IntN(7) {
	case 0:
		return "${PASSWORD}", secret
	case 1:
		return fmt.Sprintf("${PASSWORD:%d:%d}", from, length), secret[from : from+length]
	case 2:
		return fmt.Sprintf("${PASSWORD:%d}", from), secret[from:]
	case 3:
		c := secret[from : from+1]
		return "${PASSWORD//" + c + "/_}", strings.ReplaceAll(secret, c, "_")
	case 4:
		return "${PASSWORD^^}", strings.ToUpper(secret)
	case 5:
		return "${ENCODED}", base64.StdEncoding.EncodeToString([]byte(secret))
	default:
		return "${PASSWORD}-${PASSWORD:0:6}", secret
	}
}

func randomSecret(random *rand.Rand) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	out := make([]byte, 27) // of one length, so that a part is never empty
	for n := range out {
		out[n] = letters[random.IntN(len(letters))]
	}
	return "s" + string(out)
}

// TestDiffsShowNoTransformedSecret builds 1,000 objects in which a variable of a Secret is transformed, and compares
// them with what was applied with another value: no part of either is shown.
func TestDiffsShowNoTransformedSecret(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 10))
	for n := range 1000 {
		now, before := randomSecret(random), randomSecret(random)
		expression, value := transformed(random, now)
		file := strings.ReplaceAll(places[random.IntN(len(places))], "VALUE", expression)
		builtWith := func(secret string) *Result {
			result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"o.yaml": file}),
				Substitution: &Substitution{Secret: map[string]bool{"PASSWORD": true, "ENCODED": true},
					Variables: map[string]string{"PASSWORD": secret,
						"ENCODED": base64.StdEncoding.EncodeToString([]byte(secret))}}})
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			return result
		}
		is, was := builtWith(now), builtWith(before)
		live := was.Objects[0].DeepCopy()
		live.SetNamespace("default")
		_ = unstructured.SetNestedField(live.Object, "removed-"+before, "spec", "gone")
		for _, drift := range []bool{false, true} {
			text := diff.Text(is.Veil.Objects(live, is.Objects[0], drift))
			if text == "" && now != before {
				t.Fatalf("%s: the change is not shown", file)
			}
			for _, secret := range []string{now, before, value, strings.ToUpper(before),
				base64.StdEncoding.EncodeToString([]byte(before))} {
				for at := 0; at+5 <= len(secret); at++ {
					if strings.Contains(text, secret[at:at+5]) {
						t.Fatalf("%d: %q of %q is in\n%s\nof\n%s", n, secret[at:at+5], secret, text, file)
					}
				}
			}
		}
		problem := is.Veil.Error(fmt.Errorf("invalid value: %q", value))
		if strings.Contains(problem.Error(), value) {
			t.Fatalf("the error says %s", problem)
		}
	}
}

// TestDiffsShowWhatIsNoSecret checks that people see the rest of a change.
func TestDiffsShowWhatIsNoSecret(t *testing.T) {
	file := func(tag string) string {
		return strings.ReplaceAll(strings.ReplaceAll(places[4], "VALUE", "${PASSWORD}"), "i:1", "i:"+tag)
	}
	build := func(tag string) *Result {
		result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"o.yaml": file(tag)}),
			Substitution: &Substitution{Secret: map[string]bool{"PASSWORD": true},
				Variables: map[string]string{"PASSWORD": "hunter2hunter2"}}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	was, is := build("1"), build("2")
	if was.Veil.IsOpen() {
		t.Fatal("the veil is open")
	}
	text := diff.Text(is.Veil.Objects(was.Objects[0], is.Objects[0], false))
	if want := "~ spec.template.spec.containers[name=a].image: i:1 → i:2"; text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	live := is.Objects[0].DeepCopy()
	_ = unstructured.SetNestedField(live.Object, int64(7), "spec", "replicas")
	if text := diff.Text(is.Veil.Objects(live, is.Objects[0], true)); text != "~ spec.replicas: 7 → 2" {
		t.Errorf("drift: %s", text)
	}
	is.Veil.After(was.Veil.Kept(nil, false), is.Objects)
	live = was.Objects[0].DeepCopy()
	_ = unstructured.SetNestedField(live.Object, "secret?", "spec", "paused")
	if text := diff.Text(is.Veil.Objects(live, is.Objects[0], false)); !strings.Contains(text, "i:1 → i:2") ||
		strings.Contains(text, "secret?") {
		t.Errorf("after another apply: %s", text)
	}
	if open := (&redact.Veil{}); !open.IsOpen() {
		t.Error("a veil without secrets is not open")
	}
}
