package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

const (
	maxMerged    = 10 << 20 // bytes of a file that is merged
	maxExtracted = 1 << 30  // bytes of all that an output's archives hold
)

// merge copies as overwrite does, but YAML files are merged into those that stand in their place.
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
		data, err := mergeFiles(b.tree, target, s.tree, name)
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

func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// mergeFiles returns the YAML of one file with that of another merged into it.
func mergeFiles(below *artifact.Tree, belowName string, above *artifact.Tree, aboveName string) ([]byte, error) {
	base, err := readMapping(below, belowName)
	if err != nil {
		return nil, err
	}
	over, err := readMapping(above, aboveName)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(mergeMaps(base, over))
}

// readMapping reads a YAML file that holds one mapping. Numbers stay as they are written.
func readMapping(tree *artifact.Tree, name string) (map[string]any, error) {
	info, err := tree.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxMerged {
		return nil, fmt.Errorf("'%s' has more than %d bytes", name, maxMerged)
	}
	data, err := tree.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseMapping(name, data)
}

func parseMapping(name string, data []byte) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("'%s' is not YAML: %w", name, err)
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("'%s' does not hold a mapping", name)
	}
	return m, nil
}

// mergeMaps returns base with what over says: mappings are merged, all else is replaced.
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

// extract puts what archives hold at a place. What is no archive is passed over, unless it was named.
func (b *builder) extract(s *selection, to string) error {
	if s.file != "" && !isArchive(s.file) {
		return fmt.Errorf("'%s' is not a .tar.gz or .tgz", s.file)
	}
	if s.dir != "" {
		return fmt.Errorf("'%s' is a directory, which cannot be extracted; name the archives in it, such as '%s/*.tgz'",
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
		inner, err := artifact.ReadArchive(f)
		if err != nil {
			return fmt.Errorf("'%s': %w", name, err)
		}
		if b.extracted += inner.Size(); b.extracted > maxExtracted {
			return fmt.Errorf("the archives unpack to more than %d bytes together", int64(maxExtracted))
		}
		return b.add(inner, ".", to)
	})
	if err == nil && !found {
		err = errors.New("no .tar.gz or .tgz is among the files")
	}
	return err
}

func isArchive(name string) bool {
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
}
