package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	chart "helm.sh/helm/v4/pkg/chart/v2"
)

func TestLoad(t *testing.T) {
	inner := packaged(t, newChart("inner", "0.1.0", newChart("innermost", "0.0.1")))
	data := archiveOf(t,
		tar.Header{Name: "app/", Typeflag: tar.TypeDir},
		tar.Header{Name: "app/Chart.yaml", Uname: "\xEF\xBB\xBF" + chartYAML},
		tar.Header{Name: `app\templates\windows.yaml`, Uname: "kind: X\n"},
		tar.Header{Name: "app/charts/inner-0.1.0.tgz", Uname: string(inner)},
		tar.Header{Name: "app/charts/_hidden.tgz", Uname: "not an archive"},
		tar.Header{Name: "app/files/charts/data.tgz", Uname: "not a chart"},
	)
	c, err := load(t.Context(), data, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != "app" || len(c.Templates) != 1 || c.Templates[0].Name != "templates/windows.yaml" {
		t.Errorf("%+v", c)
	}
	if len(c.Dependencies()) != 1 || c.Dependencies()[0].Dependencies()[0].Name() != "innermost" {
		t.Errorf("%+v", c.Dependencies())
	}
}

func TestLoadRefuses(t *testing.T) {
	chartFile := tar.Header{Name: "app/Chart.yaml", Uname: chartYAML}
	bomb := strings.Repeat("\x00", 5<<20)
	nested := deeplyNested(t, chartFile)
	many := []tar.Header{chartFile}
	for i := range maxFiles {
		many = append(many, tar.Header{Name: fmt.Sprint("app/", i)})
	}
	empty := manyDirectories(t)
	shells := shellsOf(t, chartFile, bomb)
	truncated := packaged(t, newChart("app", "1.0.0"))
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"not an archive":    {data: []byte("<html>"), want: "not a packaged chart"},
		"truncated archive": {data: truncated[:len(truncated)/2], want: "unexpected EOF"},
		"no Chart.yaml":     {data: archiveOf(t, tar.Header{Name: "app/values.yaml"}), want: "Chart.yaml"},
		"Chart.yaml without a directory": {data: archiveOf(t, tar.Header{Name: "Chart.yaml", Uname: chartYAML}),
			want: "not in a directory"},
		"path outside": {data: archiveOf(t, chartFile, tar.Header{Name: "app/../../etc/passwd"}),
			want: "outside of the"},
		"path outside on Windows": {data: archiveOf(t, chartFile, tar.Header{Name: `app\..\..\x`}),
			want: "outside of the"},
		"absolute path": {data: archiveOf(t, chartFile, tar.Header{Name: "/etc/passwd"}),
			want: "outside of the"},
		"drive letter": {data: archiveOf(t, chartFile, tar.Header{Name: "app/c:/x"}),
			want: "outside of the"},
		"symlink": {data: archiveOf(t, chartFile,
			tar.Header{Name: "app/x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), want: "only files"},
		"hard link": {data: archiveOf(t, chartFile,
			tar.Header{Name: "app/x", Typeflag: tar.TypeLink, Linkname: "app/Chart.yaml"}), want: "only files"},
		"device": {data: archiveOf(t, chartFile, tar.Header{Name: "app/x", Typeflag: tar.TypeChar}),
			want: "only files"},
		"duplicate file": {data: archiveOf(t, chartFile, chartFile), want: "two files named"},
		"names that differ in case": {data: archiveOf(t, chartFile, tar.Header{Name: "app/chart.yaml"}),
			want: "ignoring case"},
		"not UTF-8": {data: archiveOf(t, chartFile, tar.Header{Name: "app/\xff"}), want: "UTF-8"},
		"large file": {data: archiveOf(t, chartFile, tar.Header{Name: "app/x", Uname: bomb + "x"}),
			want: "exceeds 5242880 bytes"},
		"many files":             {data: archiveOf(t, many...), want: "more than 10000 files"},
		"many directories":       {data: empty.Bytes(), want: "more than 20000 entries"},
		"nested charts":          {data: nested, want: "deeper than 16"},
		"bombs in nested charts": {data: archiveOf(t, shells...), want: "the unpacked chart exceeds"},
		"no version": {data: archiveOf(t,
			tar.Header{Name: "app/Chart.yaml", Uname: "apiVersion: v2\nname: app\nversion: x\n"}), want: "version"},
		"name with a path": {data: archiveOf(t,
			tar.Header{Name: "app/Chart.yaml", Uname: "apiVersion: v2\nname: ../x\nversion: 1.0.0\n"}),
			want: "invalid"},
		"alias bomb in YAML": {data: archiveOf(t, chartFile, tar.Header{Name: "app/values.yaml", Uname: aliasBomb()}),
			want: "aliases stand for more than 50000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t.Context(), test.data, DefaultLimits)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %.300v, want %q", err, test.want)
			}
		})
	}
}

// manyDirectories returns an archive with more entries than allowed, none of which is a file.
func manyDirectories(t *testing.T) bytes.Buffer {
	t.Helper()
	var empty bytes.Buffer
	z := gzip.NewWriter(&empty)
	w := tar.NewWriter(z)
	for range 2*maxFiles + 1 {
		if err := w.WriteHeader(&tar.Header{Name: "app/d/", Typeflag: tar.TypeDir}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	z.Close()
	return empty
}

// shellsOf returns charts that are small when compressed, each with a file of the maximum size.
func shellsOf(t *testing.T, chartFile tar.Header, bomb string) []tar.Header {
	t.Helper()
	shells := []tar.Header{chartFile}
	for _, n := range strings.Split("abcdefghijklmnopqrstu", "") { // 21 times 5 MiB, each small when compressed
		inner := archiveOf(t, chartFile, tar.Header{Name: "app/bomb", Uname: bomb})
		shells = append(shells, tar.Header{Name: "app/charts/" + n + ".tgz", Uname: string(inner)})
	}
	return shells
}

// deeplyNested returns a chart with more levels of charts than allowed.
func deeplyNested(t *testing.T, chartFile tar.Header) []byte {
	t.Helper()
	nested := []byte("end")
	for range maxDepth + 2 {
		nested = archiveOf(t, chartFile, tar.Header{Name: "app/charts/x.tgz", Uname: string(nested)})
	}
	return nested
}

func aliasBomb() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		a, b := string(rune('0'+i)), string(rune('1'+i))
		text += "a" + b + ": &a" + b + " [" + strings.TrimSuffix(strings.Repeat("*a"+a+",", 10), ",") + "]\n"
	}
	return text
}

// FuzzLoad checks that charts with arbitrary files do not cause a panic, and are valid if they are accepted.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(chartYAML), "templates/x.yaml", []byte("a: b"))
	f.Add([]byte(chartYAML), "values.yaml", []byte("a: &a [*a]"))
	f.Add([]byte(chartYAML), "charts/x/Chart.yaml", []byte(chartYAML))
	f.Add([]byte("dependencies: [null]\n"+chartYAML), "Chart.lock", []byte("dependencies: [null]"))
	f.Fuzz(func(t *testing.T, first []byte, name string, second []byte) {
		files := newFiles(t.Context(), Limits{File: 1 << 16})
		if files.add("Chart.yaml", first, 0) != nil || files.add(name, second, 0) != nil {
			return
		}
		c, err := files.chart()
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("an invalid chart was accepted: %v", err)
		}
		for _, w := range c.Metadata.Dependencies {
			findBundled([]*chart.Chart{{Metadata: &chart.Metadata{Name: w.Name, Version: "1.0.0"}}}, locked(c, w))
		}
	})
}
