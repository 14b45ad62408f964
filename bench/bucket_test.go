package bench

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sluice-gitops/sluice/internal/source/bucket"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// BenchmarkBucket checks a bucket of 1,000 objects of a KiB on a real S3 server: as it was, and with one
// object changed.
func BenchmarkBucket(b *testing.B) {
	const objects = 1000
	server := s3server.New(b)
	content := func(i, version int) string { return fmt.Sprintf("%-1023d\n", i*1_000_000+version) }
	all := map[string]string{}
	for i := range objects {
		all[fmt.Sprintf("dir-%02d/file-%03d.yaml", i%20, i)] = content(i, 0)
	}
	server.Put("bench", all)
	keys, err := bucket.KeysFrom(map[string][]byte{"accesskey": []byte(s3server.AccessKey),
		"secretkey": []byte(s3server.SecretKey)})
	if err != nil {
		b.Fatal(err)
	}
	remote, err := bucket.NewS3(bucket.S3{
		Endpoint: server.Endpoint, Bucket: "bench", Region: "us-east-1", Insecure: true, Keys: keys,
		Transport: http.DefaultTransport,
	})
	if err != nil {
		b.Fatal(err)
	}
	check := func(b *testing.B, c *bucket.Cache) {
		l, err := c.List(b.Context(), remote, "", nil)
		if err != nil {
			b.Fatal(err)
		}
		if c.IsComplete(remote, l) {
			return
		}
		if _, err := c.Tree(b.Context(), remote, l); err != nil {
			b.Fatal(err)
		}
	}
	run := func(b *testing.B, before func(n int)) {
		cache, err := bucket.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cache.Close() }) // only read
		check(b, cache)
		start, puts := server.Stats(), int64(0)
		b.ReportAllocs()
		for b.Loop() {
			if before != nil {
				b.StopTimer()
				puts++
				before(int(puts))
				b.StartTimer()
			}
			check(b, cache)
		}
		reportRequests(b, server, start)
	}
	b.Run("objects=1000/unchanged", func(b *testing.B) { run(b, nil) })
	b.Run("objects=1000/one-changed", func(b *testing.B) {
		run(b, func(n int) { server.Put("bench", map[string]string{"dir-00/file-000.yaml": content(0, n)}) })
	})
}

// reportRequests reports the requests since start.
func reportRequests(b *testing.B, server *s3server.Server, start map[string]int64) {
	end, n := server.Stats(), float64(b.N)
	b.ReportMetric(float64(end["lists"]-start["lists"])/n, "listings/op")
	b.ReportMetric(float64(end["gets"]-start["gets"])/n, "gets/op")
	b.ReportMetric(float64(end["bytesSent"]-start["bytesSent"])/n/1024, "KiB/op")
}
