package meta_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
)

func TestAmount(t *testing.T) {
	for text, c := range map[string]struct {
		of10    int
		invalid bool
	}{
		`1`: {of10: 1}, `20`: {of10: 20}, `1000`: {of10: 1000}, `"25%"`: {of10: 2}, `"1%"`: {of10: 1},
		`"100%"`: {of10: 10},
		`0`:      {of10: 1, invalid: true}, `-1`: {of10: 1, invalid: true}, `1001`: {of10: 1, invalid: true},
		`99999999999999999999`: {of10: 1, invalid: true}, `1.5`: {of10: 1, invalid: true},
		`"5"`: {of10: 1, invalid: true}, `"0%"`: {of10: 1, invalid: true}, `"101%"`: {of10: 1, invalid: true},
		`"+5%"`: {of10: 1, invalid: true}, `"many"`: {of10: 1, invalid: true}, `{}`: {of10: 1, invalid: true},
		`[1]`: {of10: 1, invalid: true}, `true`: {of10: 1, invalid: true},
	} {
		var a *meta.Amount
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out, err := json.Marshal(a)
		if err != nil || string(out) != text || a.Of(10) != c.of10 || (a.Invalid != "") != c.invalid {
			t.Errorf("%s: %d of 10, %s (%v), %+v", text, a.Of(10), out, err, a)
		}
		problems := meta.InvalidFields("spec", struct {
			Max *meta.Amount `json:"max"`
		}{a})
		if (len(problems) > 0) != c.invalid {
			t.Errorf("%s: %q", text, problems)
		}
	}
	if got := (*meta.Amount)(nil).Of(7); got != 7 {
		t.Errorf("no amount: %d of 7", got)
	}
}

// FuzzAmount decodes any JSON without an error, and writes it back.
func FuzzAmount(f *testing.F) {
	for _, text := range []string{`1`, `"25%"`, `"x"`, `1e3`, `null`, `{"a":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		var a, again meta.Amount
		if err := json.Unmarshal(text, &a); err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		err = json.Unmarshal(out, &again)
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			t.Fatal(err)
		}
		// JSON may escape letters; a number that no type holds is kept as text, without white space
		same := reflect.DeepEqual(a.ToUnstructured(), again.ToUnstructured()) || bytes.Equal(compact.Bytes(), out)
		if err != nil || string(bytes.TrimSpace(text)) != "null" && !same {
			t.Errorf("%s became %s: %+v, %+v, %v", text, out, a, again, err)
		}
		if n := a.Of(100); n < 1 || n > meta.MaxAmount {
			t.Errorf("%s: %d of 100", text, n)
		}
	})
}
