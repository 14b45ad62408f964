package wire

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
)

func FuzzReadAnswer(f *testing.F) {
	hash := strings.Repeat("a", 40)
	f.Add([]byte("0035shallow "+hash+"\n00000008NAK\nPACK"), true)
	f.Add([]byte("0038ACK "+hash+" common\n0031ACK "+hash+"\nPACK"), false)
	f.Add([]byte("0017ERR access denied\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, depth bool) {
		r := bufio.NewReader(bytes.NewReader(data))
		shallow, err := readAnswer(r, depth)
		if err != nil {
			return
		}
		rest, err := io.ReadAll(r)
		if err != nil || !bytes.HasSuffix(data, rest) || len(shallow)*40 > len(data) {
			t.Errorf("%q leaves %q, %v, %v", data, rest, shallow, err)
		}
	})
}
