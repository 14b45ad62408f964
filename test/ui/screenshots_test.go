package ui

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// maxColors of a screenshot. The pages have few, apart from the edges of letters.
const maxColors = 256

// documented are the screenshots that docs/ui.md shows; the others are for the eye of the developer.
var documented = []string{"overview.png", "graph.png", "objects.png", "object.png", "why.png", "gates.png", "gate.png",
	"calendar.png", "changes.png", "images.png",
	"fleet.png", "fleet-commits.png", "fleet-gates.png",
	"workloads.png", "logs.png", "clusters.png", "explain.png"}

// shrink reduces the colors of the documented screenshots in a folder and removes the others.
func shrink(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.png"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(documented, filepath.Base(file)) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		small := image.NewPaletted(picture.Bounds(), mostFrequent(picture))
		draw.Draw(small, small.Bounds(), picture, picture.Bounds().Min, draw.Src)
		var out bytes.Buffer
		encoder := png.Encoder{CompressionLevel: png.BestCompression}
		if err := encoder.Encode(&out, small); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// mostFrequent returns the colors that most pixels have. Bright ones count more: those of states have few pixels.
func mostFrequent(picture image.Image) color.Palette {
	count := map[color.RGBA]int{}
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)
			count[c] += 1 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B))/8
		}
	}
	colors := make([]color.RGBA, 0, len(count))
	for c := range count {
		colors = append(colors, c)
	}
	slices.SortFunc(colors, func(a, b color.RGBA) int { return count[b] - count[a] })
	var palette color.Palette
	for _, c := range colors[:min(len(colors), maxColors)] {
		palette = append(palette, c)
	}
	return palette
}

func TestScreenshotsAreSmall(t *testing.T) {
	folder := t.TempDir()
	wide := image.NewRGBA(image.Rect(0, 0, 64, 64))
	for i := range wide.Pix {
		wide.Pix[i] = byte(i * 31)
	}
	for _, name := range []string{documented[0], "other.png"} {
		var b bytes.Buffer
		if err := png.Encode(&b, wide); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shrink(t, folder)
	left, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("%v are left, %v", left, err)
	}
	f, err := os.Open(left[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	small, err := png.Decode(f)
	if p, ok := small.(*image.Paletted); err != nil || !ok || len(p.Palette) > maxColors {
		t.Errorf("the picture is %T (%v)", small, err)
	}
}
