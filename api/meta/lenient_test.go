package meta_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/api/meta"
)

type fields struct {
	Interval meta.Duration            `json:"interval"`
	Timeout  *meta.Duration           `json:"timeout,omitempty"`
	Expires  *meta.Time               `json:"expires,omitempty"`
	Checks   []check                  `json:"checks,omitempty"`
	ByName   map[string]meta.Duration `json:"byName,omitempty"`
	Inline   `json:",inline"`
}

type check struct {
	For meta.Duration `json:"for"`
}

type Inline struct {
	Until meta.Time `json:"until"`
}

func TestInvalidTextIsKeptAndReported(t *testing.T) {
	for text, want := range map[string][]string{
		`{"interval":"10m0s","until":"2027-01-02T03:04:05Z"}`:                nil,
		`{"interval":"10m0s","expires":"2027-01-01t00:00:00z","until":null}`: nil,
		`{"interval":"banana","timeout":"9999999999999999h","until":null}`: {
			`spec.interval: "banana" is not a duration such as 10m or 1h30m`,
			`spec.timeout: "9999999999999999h" is not a duration such as 10m or 1h30m`},
		`{"interval":"1m0s","checks":[{"for":"1s"},{"for":"x"}],"until":null}`: {
			`spec.checks[1].for: "x" is not a duration such as 10m or 1h30m`},
		`{"interval":"1m0s","byName":{"a":"x"},"until":"soon"}`: {
			`spec.byName.a: "x" is not a duration such as 10m or 1h30m`,
			`spec.until: "soon" is not a time such as 2027-01-02T15:04:05Z`},
		`{"interval":{"a":1},"expires":[1],"until":7}`: {
			`spec.interval: {"a":1} is not a duration such as 10m or 1h30m`,
			`spec.expires: [1] is not a time such as 2027-01-02T15:04:05Z`,
			`spec.until: 7 is not a time such as 2027-01-02T15:04:05Z`},
		`{"interval":"1m0s","expires":"2027-02-30T00:00:00Z","until":null}`: {
			`spec.expires: "2027-02-30T00:00:00Z" is not a time such as 2027-01-02T15:04:05Z`},
	} {
		var f fields
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, meta.InvalidFields("spec", &f)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		written, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]any
		if err := json.Unmarshal([]byte(text), &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &after); err != nil {
			t.Fatal(err)
		}
		if before["expires"] == "2027-01-01t00:00:00z" {
			before["expires"] = "2027-01-01T00:00:00Z" // parsed, and written in the canonical form
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: written differently: %s", text, diff)
		}
		unstructured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&f)
		if err != nil {
			t.Fatal(err)
		}
		var back fields
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(unstructured, &back); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, meta.InvalidFields("spec", back)); diff != "" {
			t.Errorf("%s: after a conversion: %s", text, diff)
		}
	}
}

func TestConditionsKeepWhatCanBeRead(t *testing.T) {
	var c meta.Conditions
	text := `[{"type":"Ready","status":"True","reason":"Succeeded","message":"m",
			"lastTransitionTime":"2027-01-01t00:00:00z"},
		{"type":"Stalled","status":"False","reason":"R","message":"",
			"lastTransitionTime":"never","observedGeneration":3}]`
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	want := meta.Conditions{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Succeeded", Message: "m",
			LastTransitionTime: metav1.NewTime(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))},
		{Type: "Stalled", Status: metav1.ConditionFalse, Reason: "R", ObservedGeneration: 3},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func FuzzDecodingNeverFails(f *testing.F) {
	for _, seed := range []string{`"1h"`, `"banana"`, `null`, `{"a":[1]}`, `"2027-01-01t00:00:00z"`, `1e400`,
		`"\ud800"`,
		`[{"lastTransitionTime":"x"}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			t.Skip("not JSON: the API server never returns it")
		}
		var all struct {
			D meta.Duration
			E meta.Elapsed
			T meta.Time
			C meta.Conditions
		}
		for _, v := range []any{&all.D, &all.E, &all.T, &all.C} {
			if err := json.Unmarshal(b, v); err != nil {
				t.Fatalf("%T: %v", v, err)
			}
		}
		if _, err := json.Marshal(all); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEqualComparesTimesAndDurations(t *testing.T) {
	utc := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		a, b  fields
		equal bool
	}{
		"same time in another zone": {a: fields{Inline: Inline{Until: meta.TimeOf(utc)}},
			b: fields{Inline: Inline{Until: meta.TimeOf(utc.In(time.FixedZone("x", 3600)))}}, equal: true},
		"other time":     {a: fields{Inline: Inline{Until: meta.TimeOf(utc)}}},
		"other duration": {a: fields{Interval: meta.DurationOf(time.Second)}},
		"other invalid text": {a: fields{Interval: meta.Duration{Invalid: `"a"`}},
			b: fields{Interval: meta.Duration{Invalid: `"b"`}}},
		"nil and empty lists": {a: fields{Checks: []check{}}, equal: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := meta.Equal(c.a, c.b); got != c.equal {
				t.Errorf("Equal is %t, want %t", got, c.equal)
			}
		})
	}
}

func TestInvalidFieldsAreOrderedAndSkipRawJSON(t *testing.T) {
	spec := struct {
		Raw    []byte                   `json:"raw"`
		ByName map[string]meta.Duration `json:"byName"`
	}{make([]byte, 1<<20), map[string]meta.Duration{"b": {Invalid: `"y"`}, "a": {Invalid: `"x"`},
		"c": {Invalid: `"z"`}}}
	want := []string{
		`spec.byName.a: "x" is not a duration such as 10m or 1h30m`,
		`spec.byName.b: "y" is not a duration such as 10m or 1h30m`,
		`spec.byName.c: "z" is not a duration such as 10m or 1h30m`,
	}
	if diff := cmp.Diff(want, meta.InvalidFields("spec", spec)); diff != "" {
		t.Error(diff)
	}
	allocations := testing.AllocsPerRun(10, func() { meta.InvalidFields("spec", spec) })
	if allocations > 100 {
		t.Errorf("%.0f allocations: the bytes of raw JSON are visited", allocations)
	}
}
