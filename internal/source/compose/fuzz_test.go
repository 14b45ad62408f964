package compose

import (
	"encoding/json"
	"io/fs"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

func FuzzCopy(f *testing.F) {
	f.Add("@src/configs/**", "@artifact/x/", "**/*.md", "Merge")
	f.Add("@tars/**/*.tgz", "@artifact/", "[!a]*", "Extract")
	f.Add("@src/{a,b}/../\\*", "@artifact/../x", "", "")
	trees := sources(f)
	f.Fuzz(func(t *testing.T, from, to, exclude, strategy string) {
		outputs := []Output{{Name: "x",
			Copies: []Copy{{From: from, To: to, Exclude: []string{exclude}, Strategy: strategy}}}}
		if Check([]string{"src", "git", "chart", "tars"}, "", outputs) != nil {
			return
		}
		tree, err := Build(t.Context(), outputs[0].Copies, trees)
		if err != nil {
			return
		}
		err = tree.Walk(func(name string, _ *artifact.Entry) error {
			if !fs.ValidPath(name) {
				t.Errorf("invalid path %q in the tree", name)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func FuzzPathPattern(f *testing.F) {
	f.Add("@repo/apps/{app}/envs/{env}")
	f.Add("@repo/team-{t}.*/b")
	f.Fuzz(func(t *testing.T, pattern string) {
		p, err := parsePattern(pattern)
		if err != nil {
			return
		}
		found, err := p.discover(monorepo)
		if err != nil {
			t.Error(err)
		}
		for _, c := range found {
			if len(c) != len(p.names) {
				t.Errorf("%q captured %v", pattern, c)
			}
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("a: {b: 1}"), []byte("a: {c: [1]}\nd: null"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		base, err1 := parseMapping("a", a)
		over, err2 := parseMapping("b", b)
		if err1 != nil || err2 != nil {
			return
		}
		merged := mergeMaps(base, over)
		for k := range over {
			if _, ok := merged[k]; !ok {
				t.Errorf("%q is lost", k)
			}
		}
	})
}

func FuzzExport(f *testing.F) {
	f.Add([]byte("a: {b: 1}\nc: [x, 1e3]"))
	f.Add([]byte("a: &a [x, x]\nb: [*a, *a]"))
	f.Add([]byte("apiVersion: source.extensions.fluxcd.io/v1beta1\nkind: NamespaceMetadata\n" +
		"metadata: {labels: {a: b}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		inputs, err := parseInputs("f", data)
		size := 0
		for key, value := range inputs {
			size += len(key) + len(value.Raw)
			if !json.Valid(value.Raw) {
				t.Errorf("%q is not JSON: %q", key, value.Raw)
			}
		}
		if err == nil && size > maxInputs {
			t.Errorf("%d bytes", size)
		}
		m, err := parseMetadata("f", data)
		if err == nil && len(data) < len(m.Labels)+len(m.Annotations) {
			t.Errorf("%d bytes set %+v", len(data), m)
		}
	})
}
