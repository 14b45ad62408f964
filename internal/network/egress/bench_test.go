package egress

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkRoundTrip compares the policy with a plain transport.
func BenchmarkRoundTrip(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(hello))
	b.Cleanup(s.Close)
	p := &Policy{}
	policed, err := p.Transport(Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, rt := range map[string]http.RoundTripper{"plain": &http.Transport{}, "policed": policed} {
		b.Run(name, func(b *testing.B) {
			c := &http.Client{Transport: rt}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := c.Get(s.URL)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			b.ReportMetric(float64(p.Stats().Connections), "connections")
		})
	}
}
