package apply

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestJobWithEmptyMapsIsLeftAlone takes over a finished Job whose template has metadata without a declared field, as
// Flux applies it. Another controller manages it, so that only the test writes its status.
func TestJobWithEmptyMapsIsLeftAlone(t *testing.T) {
	t.Parallel()
	job := strings.Replace(job, "spec: {", "spec: {managedBy: example.com/test, ", 1)
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprintf("force %v", force), func(t *testing.T) {
			f := newFixture(t)
			labels := f.owner.Labels()
			theirs := f.objects(strings.Replace(job, "template: {", "template: {metadata: {}, ", 1))[0]
			theirs.SetLabels(labels)
			data, err := theirs.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			client := f.client(jobs, f.ns)
			if err := patched(types.ApplyPatchType, DefaultFieldManager, string(data))(t.Context(), client,
				"job"); err != nil {
				t.Fatal(err)
			}
			const finished = `{"status":{"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:01:00Z",
				"succeeded":1,"conditions":[{"type":"SuccessCriteriaMet","status":"True"},
				{"type":"Complete","status":"True"}]}}`
			if err := patched(types.MergePatchType, "job-controller", finished, "status")(t.Context(), client,
				"job"); err != nil {
				t.Fatal(err)
			}
			before := f.get(jobs, "job").GetUID()

			apply := func(text string) ([]string, error) {
				req := f.native(f.objects(text))
				req.Force = force
				result, err := f.try(req)
				if err != nil {
					return nil, err
				}
				return describe(result.Changes), nil
			}
			for _, c := range []struct{ text, want string }{
				{text: job, want: "Job/job unchanged"},
				{text: strings.Replace(job, "{name: job,", "{name: job, annotations: {note: x},", 1),
					want: "Job/job configured"},
			} {
				got, err := apply(c.text)
				if err != nil || len(got) != 1 || got[0] != c.want {
					t.Errorf("got %q, %v; want %s", got, err, c.want)
				}
				if f.get(jobs, "job").GetUID() != before {
					t.Fatal("the Job was created again")
				}
			}
			_, err = apply(strings.ReplaceAll(job, "i:1", "i:2"))
			if recreated := f.get(jobs, "job").GetUID() != before; recreated != force || (err == nil) != force {
				t.Errorf("a change of an immutable field: created again %v, %v", recreated, err)
			}
		})
	}
}
