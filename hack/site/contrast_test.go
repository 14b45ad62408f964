package main

import (
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"testing"
)

var (
	themeBlock = regexp.MustCompile(`(?s):root(?:\[[^]]*\]|:not\([^)]*\))?\s*\{(.*?)\}`)
	colour     = regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6})`)
)

// TestContrast computes the contrast of texts in both themes, as WCAG 2.2 defines it: at least 4.5 to 1.
func TestContrast(t *testing.T) {
	css, err := fs.ReadFile(theme, "theme/style.css")
	if err != nil {
		t.Fatal(err)
	}
	blocks := themeBlock.FindAllStringSubmatch(string(css), -1)
	if len(blocks) != 3 {
		t.Fatalf("found %d themes", len(blocks))
	}
	for i, b := range blocks {
		colours := map[string]string{}
		for _, c := range colour.FindAllStringSubmatch(b[1], -1) {
			colours[c[1]] = c[2]
		}
		for _, front := range []string{"text", "muted", "link"} {
			for _, back := range []string{"back", "side", "code"} {
				const least = 4.5
				if got := contrast(t, colours[front], colours[back]); got < least {
					t.Errorf("theme %d: the contrast of %s on %s is %.1f", i, front, back, got)
				}
			}
		}
		if got := contrast(t, colours["text"], colours["mark"]); got < 4.5 {
			t.Errorf("theme %d: the contrast of marked text is %.1f", i, got)
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(v) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
