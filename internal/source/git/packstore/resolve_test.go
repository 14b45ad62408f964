package packstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// TestReadAtMost reads small and large objects, as they are and as deltas.
func TestReadAtMost(t *testing.T) {
	const most = 100_000
	r := newRepository(t)
	for name, lines := range map[string]int{"small": 100, "large": 2000} {
		text := strings.Repeat("a line of more than sixty bytes, which are many in a large file\n", lines)
		for _, f := range []struct{ name, text string }{{name, text}, {name + "-too", text + "and one more\n"}} {
			if err := os.WriteFile(filepath.Join(r.dir, f.name), []byte(f.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.git("", "add", "-A")
	r.git("", "commit", "-q", "-m", "files")
	head := strings.TrimSpace(string(r.git("", "rev-parse", "HEAD")))
	for _, deltas := range []string{"--window=0", "--window=50", "--delta-base-offset"} {
		s := openStore(t)
		add(t, s, r.pack(head+"\n", deltas))
		for _, name := range []string{"small", "small-too", "large", "large-too"} {
			id := strings.TrimSpace(string(r.git("", "rev-parse", "HEAD:"+name)))
			data, ok, err := s.ReadAtMost(plumbing.NewHash(id), most)
			if err != nil || ok != strings.HasPrefix(name, "small") {
				t.Errorf("%s, %s: got %v, %v", deltas, name, ok, err)
			}
			if want := r.git("", "show", "HEAD:"+name); ok && string(data) != string(want) {
				t.Errorf("%s, %s: other data", deltas, name)
			}
		}
		checkObjects(t, s, r, head)
	}
}
