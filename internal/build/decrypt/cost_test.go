package decrypt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

// sopsFile returns an encrypted file, whose plain form ends with more, and with another line in the metadata of SOPS.
func sopsFile(t *testing.T, more, line string) (*Keys, string) {
	t.Helper()
	private, master := newAge(t)
	k, err := FromSecret(map[string][]byte{"a.agekey": []byte(private)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := string(encrypt(t, "yaml", "a: hunter2\n"+more, nil, master))
	if !strings.Contains(text, "\nsops:\n") {
		t.Fatal(text)
	}
	return k, strings.Replace(text, "\nsops:\n", "\nsops:\n"+line, 1)
}

// SOPS compiles the expressions of a file again for each comparison. The first of these would take a minute, the second
// an hour.
func TestExpressionsOfAFileAreBounded(t *testing.T) {
	var keys, comments strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&keys, "k%d: x\n", i)
	}
	for i := range 2000 {
		fmt.Fprintf(&comments, "# comment %d\nk%d: x\n", i, i)
	}
	for name, test := range map[string]struct{ more, line, says string }{
		"a usual one": {more: keys.String(), line: "    encrypted_regex: ^(data|stringData|a|k.*)$\n"},
		"a long one":  {keys.String(), "    encrypted_regex: (a?){9000}\n", "take too long: "},
		"one for many values": {keys.String(), "    unencrypted_regex: '" + strings.Repeat("a[bc]", 800) + "'\n",
			"6001 values"},
		"one for comments": {comments.String(), "    encrypted_comment_regex: ^x.*y$\n", "Use shorter ones in " +
			".sops.yaml, or fewer comments, and encrypt the file again"},
	} {
		k, text := sopsFile(t, test.more, test.line)
		_, err := k.File(t.Context(), "a.yaml", []byte(text))
		if got := fmt.Sprint(err); (err != nil) != (test.says != "") || !strings.Contains(got, test.says) {
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
	}
}

// The library makes a line of an error of each pair of equal keys: of these, 3 GB.
func TestEqualKeysInAnEncryptedFileTakeLittleMemory(t *testing.T) {
	k, text := sopsFile(t, "", "")
	text = strings.Repeat("b: x\n", 5000) + text
	n := allocation.Bytes(func() {
		if _, err := k.File(t.Context(), "a.yaml", []byte(text)); err == nil ||
			!strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("got %v", err)
		}
	})
	if n > 64<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
}
