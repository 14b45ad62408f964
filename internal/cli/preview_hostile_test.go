package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const hostileRelease = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\n" +
	"metadata: {name: r, namespace: shop}\n" +
	"spec: {interval: 1h, chart: {spec: {chart: endless, sourceRef: {kind: GitRepository, name: fleet, namespace: " +
	"flux-system}}}}\n"

// TestPreviewOfHostileChange previews branches that try to read outside of the clone, to exhaust memory and time,
// and to write to the terminal or into the comment.
func TestPreviewOfHostileChange(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for n := 1; n < 10; n++ {
		a, b := string(rune('0'+n)), string(rune('0'+n-1))
		bomb += "a" + a + ": &a" + a + " [*a" + strings.Repeat(b+", *a", 9) + b + "]\n"
	}
	secret := filepath.Join(t.TempDir(), "outside.yaml")
	if err := os.WriteFile(secret, []byte(configMap+"\"of another file\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files map[string]string
		link  string // of web/link.yaml
		want  string // in the output
		code  int
	}{
		"a link out of the clone": {link: secret}, // artifacts have no symlinks
		"a relative link":         {link: "../../../../../../../../etc/passwd"},
		"aliases": {files: map[string]string{"web/app.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: app}\n" + bomb}, want: "failed", code: exitUsage},
		"a large file": {files: map[string]string{"web/app.yaml": configMap + strings.Repeat("\"x\" #", 9<<20)},
			want: "failed", code: exitUsage},
		"an endless chart": {files: map[string]string{"web/app.yaml": hostileRelease,
			"endless/Chart.yaml":       "apiVersion: v2\nname: endless\nversion: 1.0.0\n",
			"endless/templates/x.yaml": "{{ define \"x\" }}{{ include \"x\" . }}{{ end }}{{ include \"x\" . }}\n"},
			want: "HelmRelease/shop/r\n  failed", code: exitUsage},
		"a name for a terminal": {files: map[string]string{"web/app.yaml": strings.Replace(configMap, "name: app",
			"name: \"\\e[2Jx\\r|<b>@all](http://x)\"", 1) + "\"1\"\n"}, want: "created", code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, to := previewClone(t, nil), previewClone(t, c.files)
			if c.link != "" {
				if err := os.Symlink(c.link, filepath.Join(to, "web", "link.yaml")); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"preview", "--from-dir", dir, "--to-dir", to, "--offline"}
			got := run(t, args...).wants(t, c.code)
			markdown := run(t, append(args, "-o", "markdown")...).wants(t, c.code).out
			if !strings.Contains(got.out, c.want) {
				t.Errorf("no %q in:\n%s", c.want, got.out)
			}
			for _, not := range []string{"of another file", "root:", "\x1b[2J", "\r", "<b>", "](http", "@all"} {
				if strings.Contains(markdown, not) || len(not) > 1 && not[0] != '<' && not[0] != ']' && not[0] != '@' &&
					strings.Contains(got.out, not) {
					t.Errorf("%q in:\n%s\n%s", not, got.out, markdown)
				}
			}
		})
	}
	dir := previewClone(t, nil)
	run(t, "preview", "--clone", dir, "--offline", "--to=--upload-pack=touch "+filepath.Join(dir, "x")).
		wants(t, exitUsage, "is not in the clone")
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("the name of a branch was run")
	}
}
