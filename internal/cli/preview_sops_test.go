package cli

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
)

// TestPreviewDecrypts checks that a preview without a cluster decrypts with the keys of the environment, and shows
// neither them nor what it decrypted.
func TestPreviewDecrypts(t *testing.T) {
	sops := sopskey.New(t)
	declared := strings.Replace(strings.NewReplacer("NAME", "enc", "PATH", "./enc").Replace(previewRoot),
		"prune: true", "prune: true, decryption: {provider: sops}", 1)
	files := func(value string) string {
		return write(t, map[string]string{"clusters/enc.yaml": declared,
			"enc/secret.yaml": sops.Encrypt("yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n"+
				"  password: "+value+"\n")})
	}
	args := []string{"preview", "--offline", "--from-dir", files("hunter2"), "--to-dir", files("hunter3")}
	t.Setenv("SOPS_AGE_KEY", "")
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	run(t, args...).wants(t, exitOK, "Set $SOPS_AGE_KEY or $SOPS_AGE_KEY_FILE to have them decrypted")
	file := write(t, map[string]string{"keys.txt": "# created: today\n" + sops.PrivateKey + "\n"}) + "/keys.txt"
	for variable, value := range map[string]string{"SOPS_AGE_KEY": sops.PrivateKey, "SOPS_AGE_KEY_FILE": file} {
		t.Setenv(variable, value)
		r := run(t, args...).wants(t, 1, "1 configured")
		if text := r.out + r.err; strings.Contains(text, "hunter") || strings.Contains(text, sops.PrivateKey) ||
			strings.Contains(text, "aHVudGVy") {
			t.Errorf("%s: a secret is shown:\n%s", variable, text)
		}
		t.Setenv(variable, "")
	}
	t.Setenv("SOPS_AGE_KEY", "AGE-SECRET-KEY-1BROKEN")
	r := run(t, args...).wants(t, exitUsage)
	if strings.Contains(r.out+r.err, "BROKEN") {
		t.Errorf("a key is shown:\n%s%s", r.out, r.err)
	}
}
