package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Processes get ports from firstPort on. They are below 32768, the first that Linux gives to connections and to those
// who listen on any port: another one does not take a port between its choice and the start of the process.
const (
	firstPort = 20_000
	ports     = 12_000
	portTries = 100
)

// FreeAddress returns a loopback address with a free port, for a process that the test starts.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	var last error
	for range portTries {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports)))
		if err != nil {
			last = err
			continue
		}
		_ = listener.Close()
		return listener.Addr().String()
	}
	tb.Fatalf("no port is free: %v", last)
	return ""
}
