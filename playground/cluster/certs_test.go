package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A directory keeps its authority and its token, so that a kubeconfig stays valid; that of an earlier playground, which
// had no token, gets one.
func TestADirectoryKeepsItsCredentials(t *testing.T) {
	dir := t.TempDir()
	load := func() certs {
		t.Helper()
		c, err := loadCerts(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.admin) < 20 {
			t.Fatalf("the token has %d characters", len(c.admin))
		}
		return c
	}
	first, again := load(), load()
	if first.admin != again.admin || !bytes.Equal(first.ca, again.ca) {
		t.Error("a second start has other credentials")
	}
	file := filepath.Join(dir, tokens)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file of the token: %v, %v", info, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if earlier := load(); earlier.admin == first.admin || !bytes.Equal(earlier.ca, first.ca) {
		t.Error("a directory without a token did not get one, or lost its authority")
	}
}
