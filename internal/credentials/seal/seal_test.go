package seal_test

import (
	"bytes"
	"testing"

	"github.com/sluice-gitops/sluice/internal/credentials/seal"
)

func TestSeal(t *testing.T) {
	key := seal.New(bytes.Repeat([]byte{1}, seal.Size))
	other := seal.New(bytes.Repeat([]byte{2}, seal.Size))
	good := key.Seal("Gate", "apps", "release")
	var none *seal.Key
	for name, c := range map[string]struct {
		key   *seal.Key
		seal  string
		parts []string
		valid bool
	}{
		"same parts":       {key: key, seal: good, parts: []string{"Gate", "apps", "release"}, valid: true},
		"another part":     {key: key, seal: good, parts: []string{"Gate", "apps", "other"}},
		"other boundaries": {key: key, seal: good, parts: []string{"Gate", "appsrelease", ""}},
		"fewer parts":      {key: key, seal: good, parts: []string{"Gate", "apps"}},
		"another key":      {key: other, seal: good, parts: []string{"Gate", "apps", "release"}},
		"no key":           {key: none, seal: good, parts: []string{"Gate", "apps", "release"}},
		"no key, no seal":  {key: none, seal: none.Seal("Gate"), parts: []string{"Gate"}},
		"no seal":          {key: key, parts: []string{"Gate", "apps", "release"}},
		"not hexadecimal":  {key: key, seal: "seal", parts: []string{"Gate", "apps", "release"}},
		"truncated seal":   {key: key, seal: good[:16], parts: []string{"Gate", "apps", "release"}},
		"no parts, no key": {key: none},
	} {
		if got := c.key.Verify(c.seal, c.parts...); got != c.valid {
			t.Errorf("%s: valid is %t, want %t", name, got, c.valid)
		}
	}
}
