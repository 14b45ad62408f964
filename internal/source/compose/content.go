package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

const (
	maxMerged    = 10 << 20 // bytes of a merged file
	maxExtracted = 1 << 30  // bytes of all files extracted for an output
)

// merge adds the selected files like overwrite, but merges YAML files into existing ones.
func (b *builder) merge(s *selection, to string) error {
	merged := map[string]artifact.File{}
	err := s.tree.Walk(func(name string, e *artifact.Entry) error {
		target := to
		if s.file == "" {
			target = path.Join(to, name)
		}
		if !isYAML(target) || !e.Mode.IsRegular() {
			return nil
		}
		info, err := b.tree.Stat(target)
		if err != nil || !info.Mode().IsRegular() {
			return nil // nothing to merge with
		}
		data, err := mergeFiles(b.ctx, b.tree, target, s.tree, name)
		merged[target] = artifact.File{Mode: info.Mode(), Data: data}
		return err
	})
	if err != nil {
		return err
	}
	result, err := artifact.NewMemory(merged)
	if err != nil {
		return err
	}
	if err := b.overwrite(s, to); err != nil || len(merged) == 0 {
		return err
	}
	return b.add(result, ".", ".")
}

// isYAML reports whether a file name has an extension of YAML.
func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// mergeFiles returns the YAML of the file below with that of the file above merged into it.
func mergeFiles(ctx context.Context, below *artifact.Tree, belowName string, above *artifact.Tree,
	aboveName string) ([]byte, error) {
	baseText, err := readMerged(below, belowName)
	if err != nil {
		return nil, err
	}
	overText, err := readMerged(above, aboveName)
	if err != nil {
		return nil, err
	}
	lease, err := yamlsize.Acquire(ctx, "merging YAML files", baseText, overText)
	if err != nil {
		return nil, fmt.Errorf("'%s' cannot be merged into '%s': %w", aboveName, belowName, err)
	}
	defer lease.Release()
	base, err := parseMapping(belowName, baseText)
	if err != nil {
		return nil, err
	}
	over, err := parseMapping(aboveName, overText)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(mergeMaps(base, over))
}

// readMerged reads a file to merge.
func readMerged(tree *artifact.Tree, name string) ([]byte, error) {
	info, err := tree.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxMerged {
		return nil, fmt.Errorf("'%s' exceeds %d bytes", name, maxMerged)
	}
	return tree.ReadFile(name)
}

// parseMapping parses YAML that contains a mapping. Numbers keep their text form.
func parseMapping(name string, data []byte) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("'%s' is not YAML: %w", name, err)
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("'%s' does not contain a mapping", name)
	}
	return m, nil
}

// mergeMaps returns base with the values of over: mappings are merged, other values are replaced.
func mergeMaps(base, over map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(over))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range over {
		below, ok1 := out[k].(map[string]any)
		above, ok2 := v.(map[string]any)
		if ok1 && ok2 {
			v = mergeMaps(below, above)
		}
		out[k] = v
	}
	return out
}

// extract adds the contents of the selected archives. Other files are skipped, unless From is a single file.
func (b *builder) extract(s *selection, to string) error {
	if s.file != "" && !isArchive(s.file) {
		return fmt.Errorf("'%s' is not a .tar.gz or .tgz", s.file)
	}
	if s.dir != "" {
		return fmt.Errorf("'%s' is a directory, which cannot be extracted; select the archives in it, such as "+
			"'%s/*.tgz'",
			s.dir, s.dir)
	}
	found := false
	err := s.tree.Walk(func(name string, e *artifact.Entry) error {
		if !isArchive(name) || !e.Mode.IsRegular() {
			return nil
		}
		found = true
		f, err := s.tree.Open(name)
		if err != nil {
			return err
		}
		inner, err := artifact.ReadArchive(b.ctx, f)
		if err != nil {
			return fmt.Errorf("'%s': %w", name, err)
		}
		if b.extracted += inner.Size(); b.extracted > maxExtracted {
			return fmt.Errorf("the contents of the archives exceed %d bytes", int64(maxExtracted))
		}
		return b.add(inner, ".", to)
	})
	if err == nil && !found {
		err = errors.New("no file is a .tar.gz or .tgz archive")
	}
	return err
}

// isArchive reports whether a file name has an extension of archives.
func isArchive(name string) bool {
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
}
