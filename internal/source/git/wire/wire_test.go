package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// repeating is a link to a server whose answer is a line, sent again and again.
type repeating struct {
	line string
	sent int // lines
}

func (r *repeating) open(context.Context) (io.Reader, error)         { return nil, errors.New("not used") }
func (r *repeating) send(context.Context, []byte) (io.Reader, error) { return r, nil }
func (r *repeating) close()                                          {}

// Read returns a whole line. It ends after more lines than any answer may have.
func (r *repeating) Read(p []byte) (int, error) {
	if r.sent > 2*maxBoundary {
		return 0, io.EOF
	}
	r.sent++
	return copy(p, r.line), nil
}

// TestShallowCommitsAreBounded has a server that names shallow commits without end.
func TestShallowCommitsAreBounded(t *testing.T) {
	one, other := plumbing.NewHash(strings.Repeat("a", 40)), plumbing.NewHash(strings.Repeat("b", 40))
	for name, c := range map[string]struct {
		request Request
		line    string
		most    int
	}{
		"one commit": {request: Request{Want: []plumbing.Hash{one}, Single: true}, most: 1},
		"further ones": {request: Request{Want: []plumbing.Hash{one, other}, Shallow: []plumbing.Hash{other},
			Single: true}, most: 3},
		"no longer shallow": {request: Request{Want: []plumbing.Hash{one}, Single: true},
			line: "0037unshallow " + one.String() + "\n", most: 1},
		"history": {request: Request{Want: []plumbing.Hash{one}, Depth: 500}, most: maxBoundary},
	} {
		link := &repeating{line: c.line}
		if c.line == "" {
			link.line = "0035shallow " + one.String() + "\n"
		}
		conn := &Conn{link: link, Refs: packp.NewAdvRefs(), remote: Remote{URL: "https://git.example/app"}}
		if err := conn.Refs.Capabilities.Set(capability.Shallow); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Fetch(t.Context(), c.request, 1<<20)
		if f := fault.As(err); f == nil || !errors.Is(err, errShallow) ||
			f.Hint != "Update the git server: it names commits that the answer does not need" {
			t.Errorf("%s: got %v", name, err)
		}
		if link.sent > c.most+1 {
			t.Errorf("%s: read %d lines, want at most %d", name, link.sent, c.most+1)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	hash := strings.Repeat("a", 40)
	f.Add([]byte("0035shallow "+hash+"\n00000008NAK\nPACK"), true)
	f.Add([]byte("0038ACK "+hash+" common\n0031ACK "+hash+"\nPACK"), false)
	f.Add([]byte("0017ERR access denied\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, depth bool) {
		r := bufio.NewReader(bytes.NewReader(data))
		shallow, err := readAnswer(r, depth, maxBoundary)
		if err != nil {
			return
		}
		rest, err := io.ReadAll(r)
		if err != nil || !bytes.HasSuffix(data, rest) || len(shallow)*40 > len(data) {
			t.Errorf("%q leaves %q, %v, %v", data, rest, shallow, err)
		}
	})
}

// References take about twice their size, until the conversation ends.
func TestReferencesTakeMemory(t *testing.T) {
	var list bytes.Buffer
	line := func(text string) { fmt.Fprintf(&list, "%04x%s", len(text)+4, text) }
	line("# service=git-upload-pack\n")
	list.WriteString("0000")
	line(strings.Repeat("1", 40) + " HEAD\x00\n")
	for i := 0; list.Len() < 6<<20; i++ {
		line(fmt.Sprintf("%040x refs/tags/%d\n", i, i))
	}
	list.WriteString("0000")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = w.Write(list.Bytes()) // the client may disconnect
	}))
	defer server.Close()
	for size, want := range map[int64]string{8 << 20: guard.ReasonTooLarge, 64 << 20: ""} {
		budget := guard.NewBudget(size)
		c, err := Dial(guard.WithBudget(t.Context(), budget), Remote{URL: server.URL + "/app.git"})
		if fault.Reason(err, "") != want {
			t.Errorf("%d bytes: got %v, want %q", size, err, want)
		}
		if err == nil {
			if budget.Used() < 12<<20 {
				t.Errorf("%d bytes are used", budget.Used())
			}
			c.Close()
		}
		if budget.Used() != 0 {
			t.Errorf("%d bytes are still used", budget.Used())
		}
	}
}
