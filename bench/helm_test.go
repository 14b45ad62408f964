package bench

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
)

// writeIndex writes an index of at least size bytes, laid out as Helm writes it: charts of 100 versions, of
// about 1 KiB each.
func writeIndex(b *testing.B, file string, size int64, json bool) {
	b.Helper()
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	r := rand.New(rand.NewPCG(1, 2))
	written := int64(0)
	print := func(format string, args ...any) {
		n, err := fmt.Fprintf(w, format, args...)
		if err != nil {
			b.Fatal(err)
		}
		written += int64(n)
	}
	entry, open, next, end := yamlEntry, "  chart-%05d:\n", "", ""
	head, tail := "apiVersion: v1\nentries:\n", "generated: \"2026-11-21T10:00:00Z\"\n"
	if json {
		entry, open, next, end = jsonEntry, "\"chart-%05d\":[", ",", "]"
		head, tail = `{"apiVersion":"v1","entries":{`, `},"generated":"2026-11-21T10:00:00Z"}`
	}
	print("%s", head)
	for c := 0; written < size; c++ {
		if c > 0 {
			print("%s", next)
		}
		print(open, c)
		for v := range 100 {
			if v > 0 {
				print("%s", next)
			}
			digest := fmt.Sprintf("%064x", r.Uint64())
			print(entry, c, v, digest)
		}
		print("%s", end)
	}
	print("%s", tail)
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

const words = "a chart that does what charts do, with words enough to fill a line or two of the index as " +
	"descriptions are wont to do in public repositories"

const yamlEntry = `  - annotations:
      artifacthub.io/changes: |
        - kind: changed
          description: ` + words + `
        - kind: fixed
          description: ` + words + `
      category: Infrastructure
    apiVersion: v2
    appVersion: 1.2.3
    created: "2026-11-21T10:00:00.000000000Z"
    description: ` + words + `
    digest: %[3]s
    home: https://charts.example/chart
    keywords:
    - one
    - two
    maintainers:
    - email: team@example.com
      name: team
    name: chart-%05[1]d
    sources:
    - https://git.example/team/chart
    urls:
    - https://charts.example/chart-%05[1]d-1.%[2]d.0.tgz
    version: 1.%[2]d.0
`

const jsonEntry = `{"annotations":{"artifacthub.io/changes":"- kind: changed\n  description: ` + words +
	`\n- kind: fixed\n  description: ` + words + `"},` +
	`"apiVersion":"v2","appVersion":"1.2.3","created":"2026-11-21T10:00:00.000000000Z","description":"` + words +
	`","digest":"%[3]s",` +
	`"home":"https://charts.example/chart","keywords":["one","two"],` +
	`"maintainers":[{"email":"team@example.com","name":"team"}],"name":"chart-%05[1]d",` +
	`"sources":["https://git.example/team/chart"],` +
	`"urls":["https://charts.example/chart-%05[1]d-1.%[2]d.0.tgz"],"version":"1.%[2]d.0"}`

// BenchmarkHelmIndex fetches and reads an index of 50 MB and one of 100 MB over HTTPS, and asks for it again:
// what the process grew by at most, in parts of the index's size, what stays, and what an unchanged index
// costs.
func BenchmarkHelmIndex(b *testing.B) {
	for _, megabytes := range []int64{50, 100} {
		for _, format := range []string{"yaml", "json"} {
			b.Run(fmt.Sprintf("size=%dMB/%s", megabytes, format), func(b *testing.B) {
				server := chartrepo.New(b)
				file := filepath.Join(server.Dir, "index.yaml")
				writeIndex(b, file, megabytes*1_000_000, format == "json")
				info, err := os.Stat(file)
				if err != nil {
					b.Fatal(err)
				}
				size := float64(info.Size()) / (1 << 20)
				limits := helm.DefaultLimits
				limits.Index = 200 << 20
				client := &helm.HTTP{URL: server.URL, Username: chartrepo.User, Password: chartrepo.Password,
					Transport: server.Transport(), Limits: limits}
				for b.Loop() {
					measureIndex(b, server, client, size)
				}
			})
		}
	}
}

func measureIndex(b *testing.B, server *chartrepo.Server, client *helm.HTTP, size float64) {
	b.Helper()
	grown := watchMemory(b)
	file, err := client.FetchIndex(b.Context(), helm.Validators{})
	if err != nil {
		b.Fatal(err)
	}
	var indexes helm.Indexes
	reads := 0
	read := func() (*helm.Index, error) { reads++; return file.Parse(b.Context(), client.Limits) }
	for range 100 { // as many charts of the repository
		if _, err := indexes.Get(b.Context(), file.Digest, read); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(grown()/size, "peak/size")
	b.ReportMetric(float64(reads), "reads/100-charts")
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	server.Requests()
	again, err := client.FetchIndex(b.Context(), file.Validators)
	if err != nil || again != nil {
		b.Fatal(again, err)
	}
	requests := server.Requests()
	if !slices.Equal(requests, []string{fmt.Sprintf("GET /index.yaml %d", http.StatusNotModified)}) {
		b.Fatalf("an unchanged index cost %q", requests)
	}
	b.ReportMetric(float64(len(requests)), "requests/unchanged")
}
