package testenv

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"testing"
)

// ChartArchive returns an archive of a chart with the given files, by path in the chart. A file Chart.yaml is added if
// there is none. The same files yield the same bytes.
func ChartArchive(tb testing.TB, name, version string, files map[string]string) []byte {
	tb.Helper()
	all := map[string]string{"Chart.yaml": "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n"}
	maps.Copy(all, files)
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	archive := tar.NewWriter(compressed)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		head := &tar.Header{Name: name + "/" + path, Mode: 0o644, Size: int64(len(all[path])), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(head); err != nil {
			tb.Fatal(err)
		}
		if _, err := archive.Write([]byte(all[path])); err != nil {
			tb.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
