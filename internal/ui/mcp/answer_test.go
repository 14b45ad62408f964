package mcp

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestAnswersAreBounded has answers that tenants can make large: in one text, in many, in lists, and in names.
func TestAnswersAreBounded(t *testing.T) {
	many := []any{}
	for range 20_000 {
		many = append(many, map[string]any{"message": strings.Repeat("x", 500)})
	}
	for name, c := range map[string]struct {
		value any
		cut   bool
	}{
		"small":     {value: map[string]any{"a": "b"}},
		"one text":  {value: map[string]any{"text": strings.Repeat("ä", 1<<20)}, cut: true},
		"many":      {value: map[string]any{"items": many}, cut: true},
		"long name": {value: map[string]any{strings.Repeat("k", 1<<20): "v"}},
	} {
		a, err := newAnswer(c.value, "")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(a)
		if err != nil || len(raw) > maxAnswer+1000 || a.Shortened != c.cut {
			t.Errorf("%s: %d bytes, shortened %t (%v)", name, len(raw), a.Shortened, err)
		}
	}
}

func TestFilesOfAChange(t *testing.T) {
	for path, ok := range map[string]bool{"apps/web.yaml": true, "a": true, "": false, "/etc/passwd": false,
		"../x": false, "a/../b": false, ".git/hooks/x": false, ".GIT/config": false, "a\\b": false, "a//b": false,
		"a\x00": false, ".": false} {
		if err := checkFiles([]File{{Path: path}}); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := checkFiles([]File{{Path: "a", Content: strings.Repeat("x", maxContents+1)}}); err == nil {
		t.Error("large files are accepted")
	}
	if _, err := (Change{}).check(); err == nil {
		t.Error("a change without a branch and files is accepted")
	}
}
