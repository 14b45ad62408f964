package campaign

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// newPackServer serves, at any path, a git repository whose pack has a number of objects of 4 bytes.
func newPackServer(t *testing.T, objects int) string {
	t.Helper()
	commit := "tree " + emptyTree + "\nauthor T <t@example.com> 1 +0000\ncommitter T <t@example.com> 1 +0000\n\nbomb\n"
	hash := sha1.Sum(fmt.Appendf(nil, "commit %d\x00%s", len(commit), commit))
	file := filepath.Join(t.TempDir(), "pack")
	if err := writePack(file, commit, objects); err != nil {
		t.Fatal(err)
	}
	line := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, line("# service=git-upload-pack\n")+"0000"+
				line(hex.EncodeToString(hash[:])+" refs/heads/main\x00ofs-delta agent=git/campaign\n")+"0000")
			return
		}
		pack, err := os.Open(file)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer pack.Close()
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		_, _ = io.WriteString(w, line("NAK\n"))
		_, _ = io.Copy(w, pack) // the client may end it
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// writePack writes a pack of a commit, the empty tree, and blobs of 4 bytes.
func writePack(file, commit string, blobs int) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha1.New()
	w := io.MultiWriter(f, sum)
	buffer := bytes.NewBuffer(nil)
	buffer.WriteString("PACK")
	buffer.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 2), uint32(blobs+2)))
	const commitKind, treeKind, blobKind = 1, 2, 3
	writeObject(buffer, commitKind, []byte(commit))
	writeObject(buffer, treeKind, nil)
	for i := range blobs {
		content := binary.BigEndian.AppendUint32(nil, uint32(i))
		// a deflate block that is not compressed
		buffer.Write([]byte{blobKind<<4 | byte(len(content)), 0x78, 0x01, 0x01, 4, 0, 0xfb, 0xff})
		buffer.Write(content)
		buffer.Write(binary.BigEndian.AppendUint32(nil, adler32.Checksum(content)))
		if buffer.Len() > 1<<20 {
			if _, err := buffer.WriteTo(w); err != nil {
				return err
			}
		}
	}
	if _, err := buffer.WriteTo(w); err != nil {
		return err
	}
	_, err = f.Write(sum.Sum(nil))
	return err
}

// writeObject writes an object of less than 2 KiB.
func writeObject(b *bytes.Buffer, kind byte, content []byte) {
	const low = 15
	if len(content) <= low {
		b.WriteByte(kind<<4 | byte(len(content)))
	} else {
		b.WriteByte(0x80 | kind<<4 | byte(len(content)&low))
		b.WriteByte(byte(len(content) >> 4))
	}
	z := zlib.NewWriter(b)
	_, _ = z.Write(content) // a buffer does not fail
	_ = z.Close()
}
