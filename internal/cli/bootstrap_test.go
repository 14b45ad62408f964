package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBootstrapUsage checks that mistakes are found before anything is changed.
func TestBootstrapUsage(t *testing.T) {
	for _, variable := range []string{"GIT_PASSWORD", "GITHUB_TOKEN", "SSH_AUTH_SOCK"} {
		t.Setenv(variable, "")
	}
	missing := filepath.Join(t.TempDir(), "missing")
	ssh, https := "--url=ssh://git@example.com/fleet", "--url=https://example.com/fleet"
	host, gitlab := []string{"github", "--owner=o", "--repository=r"}, []string{"gitlab", "--owner=o", "--repository=r"}
	for want, args := range map[string][]string{
		"--url is missing":                   {"git"},
		"set --allow-insecure-http":          {"git", "--url=http://example.com/fleet"},
		"--url contains a password":          {"git", "--url=https://me:s3cret@example.com/fleet"},
		"no password: set $GIT_PASSWORD":     {"git", https},
		"start an SSH agent":                 {"git", ssh},
		"ssh uses keys":                      {"git", ssh, "--token-auth"},
		"put the host into --url":            {"git", ssh, "--ssh-hostname=x"},
		"need a --url that begins with ssh":  {"git", https, "--private-key-file", missing},
		"--owner is missing":                 {"github", "--repository=r"},
		"--hostname is missing":              {"bitbucket-server", "--owner=o", "--repository=r"},
		"no token: set $GITHUB_TOKEN":        host,
		"--personal and --team exclude":      append(host, "--personal", "--team=a"),
		"are for ssh: remove them":           append(host, "--token-auth", "--read-write-key"),
		"exclude each other":                 append(gitlab, "--token-auth", "--deploy-token-auth"),
		"invalid value \"x\" for --visib":    append(gitlab, "--visibility=x"),
		"unknown flag: --deploy-token-auth":  append(host, "--deploy-token-auth"),
		"sluice bootstrap git takes no argu": {"git", "x"},
	} {
		r := run(t, append([]string{"bootstrap"}, args...)...)
		if err := r.check(exitUsage, want); err != nil || strings.Contains(r.err, "s3cret") {
			t.Errorf("%v: %v", args, err)
		}
	}
	t.Setenv("GIT_PASSWORD", "s3cret")
	for want, args := range map[string][]string{
		"lacks source-controller":               {"--components=kustomize-controller"},
		"invalid value \"x\" for --comp":        {"--components-extra=x"},
		"need --gpg-key-ring":                   {"--gpg-key-id=1"},
		"needs --ssh-signing-key-file":          {"--ssh-signing-passphrase=x"},
		"--gpg-key-ring: open ":                 {"--gpg-key-ring", missing},
		"--ca-file: open ":                      {"--ca-file", missing},
		"and --ssh-signing-key-file exclude":    {"--gpg-key-ring=a", "--ssh-signing-key-file=b"},
		"--gpg-key-ring: the file is not an Op": {"--gpg-key-ring", filepath.Join("testdata", "commands.txt")},
	} {
		r := run(t, append([]string{"bootstrap", "git", https}, args...)...)
		if r.code == exitOK || !strings.Contains(r.err, want) || strings.Contains(r.err, "s3cret") {
			t.Errorf("%v: got code %d, %s", args, r.code, r.err)
		}
	}
}
