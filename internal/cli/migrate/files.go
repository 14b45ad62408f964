package migrate

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	maxFileBytes = 16 << 20 // of one manifest
	maxFiles     = 200_000  // in a directory
)

// Rewrite is a change of one manifest.
type Rewrite struct {
	File string `json:"file"`
	Line int    `json:"line"` // of apiVersion, from 1
	Kind string `json:"kind"`
	From string `json:"from"` // API version, such as "source.toolkit.fluxcd.io/v1beta2"
	To   string `json:"to"`
}

// FileOptions say which manifests are rewritten.
type FileOptions struct {
	Path       string                      // a file or a directory
	Extensions []string                    // of files in directories, such as ".yaml"
	Versions   map[schema.GroupKind]string // the wanted version of each kind
	DryRun     bool                        // only return what would be rewritten
}

var (
	apiVersionLine = regexp.MustCompile(`^(apiVersion:[ \t]*["']?)([^"'\s#]+)(["']?[ \t]*(?:#.*)?\r?)$`)
	kindLine       = regexp.MustCompile(`^kind:[ \t]*["']?([A-Za-z0-9]+)["']?[ \t]*(?:#.*)?\r?$`)
	separatorLine  = regexp.MustCompile(`^---(?:[ \t].*)?\r?$`)
)

// Files sets apiVersion of manifests of Flux's kinds to the wanted versions. Nothing else of a file changes. A
// kind that
// has a newer version than the wanted one already stays.
func Files(o FileOptions) ([]Rewrite, error) {
	var all []Rewrite
	files := 0
	err := filepath.WalkDir(o.Path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		case name != o.Path && !slices.Contains(o.Extensions, filepath.Ext(name)):
			return nil
		}
		if files++; files > maxFiles {
			return fmt.Errorf("%s has more than %d files. Choose a smaller directory", o.Path, maxFiles)
		}
		found, err := rewriteFile(name, entry, o)
		all = append(all, found...)
		return err
	})
	return all, err
}

func rewriteFile(name string, entry fs.DirEntry, o FileOptions) ([]Rewrite, error) {
	info, err := entry.Info()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes. Exclude it, or rewrite it by hand", name, maxFileBytes)
	}
	before, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	after, found := rewriteManifest(before, o.Versions)
	for i := range found {
		found[i].File = name
	}
	if len(found) == 0 || o.DryRun {
		return found, nil
	}
	return found, replaceFile(name, after, info.Mode().Perm())
}

// replaceFile replaces the content of a file in one step.
func replaceFile(name string, content []byte, mode fs.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), ".sluice-migrate-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // fails after the rename
	_, err = temporary.Write(content)
	if closed := temporary.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(temporary.Name(), mode)
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}

// rewriteManifest returns a YAML stream with the wanted versions, and what changed. It reads lines, so that comments,
// templates and the order of fields stay.
func rewriteManifest(content []byte, versions map[schema.GroupKind]string) ([]byte, []Rewrite) {
	lines := bytes.Split(content, []byte("\n"))
	var found []Rewrite
	at, kind := -1, ""
	finish := func() {
		if at >= 0 && kind != "" {
			if line, r := rewriteLine(string(lines[at]), kind, versions); r != nil {
				r.Line = at + 1
				lines[at] = []byte(line)
				found = append(found, *r)
			}
		}
		at, kind = -1, ""
	}
	for i, line := range lines {
		switch {
		case separatorLine.Match(line):
			finish()
		case apiVersionLine.Match(line):
			at = i
		default:
			if m := kindLine.FindSubmatch(line); m != nil {
				kind = string(m[1])
			}
		}
	}
	finish()
	return bytes.Join(lines, []byte("\n")), found
}

func rewriteLine(line, kind string, versions map[schema.GroupKind]string) (string, *Rewrite) {
	m := apiVersionLine.FindStringSubmatch(line)
	group, version, _ := strings.Cut(m[2], "/")
	wanted := versions[schema.GroupKind{Group: group, Kind: kind}]
	if wanted == "" || !isOlder(version, wanted) {
		return line, nil
	}
	to := group + "/" + wanted
	return m[1] + to + m[3], &Rewrite{Kind: kind, From: m[2], To: to}
}

var versionPattern = regexp.MustCompile(`^v(\d{1,4})(?:(alpha|beta)(\d{1,4}))?$`)

// isOlder reports whether an API version is older than another one.
func isOlder(a, b string) bool {
	x, y := versionPattern.FindStringSubmatch(a), versionPattern.FindStringSubmatch(b)
	if x == nil || y == nil {
		return false
	}
	rank := func(m []string) string {
		stage := m[2]
		if stage == "" {
			stage = "stable" // after alpha and beta
		}
		return fmt.Sprintf("%4s %-6s %4s", m[1], stage, m[3])
	}
	return rank(x) < rank(y)
}
