package testenv

import (
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddress returns an unused host:port of this machine. The host is a random address of 127.0.0.0/8, so that nothing
// else takes the port before the test does.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	ip := net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254)))
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return l.Addr().String()
}
