package postrender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"sort"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// fileAnnotation names the file of an object while kustomize changes it. It is the annotation that Helm uses.
const fileAnnotation = "postrenderer.helm.sh/postrender-filename"

// document is an object of a rendered file.
type document struct {
	file   string
	object map[string]any
	text   string // as it was rendered; empty if the object was changed
}

func (d *document) isHook() bool { return d.annotation(release.HookAnnotation) != "" }

// annotation returns an annotation, or "" if it is not a text.
func (d *document) annotation(key string) string {
	value, _, _ := unstructured.NestedString(d.object, "metadata", "annotations", key)
	return value
}

// parse returns the objects of files in the order in which Helm reads them, and the files that hold none: notes and
// templates that only others include.
func parse(files []render.File) (documents []*document, others []render.File, err error) {
	sorted := slices.Clone(files)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
	for _, f := range sorted {
		if strings.HasPrefix(path.Base(f.Name), "_") || strings.HasSuffix(f.Name, "NOTES.txt") {
			others = append(others, f)
			continue
		}
		texts := releaseutil.SplitManifests(f.Content)
		var keys []string
		for key := range texts {
			keys = append(keys, key)
		}
		sort.Sort(releaseutil.BySplitManifestsOrder(keys))
		for _, key := range keys {
			d := &document{file: f.Name, text: texts[key]}
			if err := d.decode(); err != nil {
				return nil, nil, err
			}
			if d.object != nil {
				documents = append(documents, d)
			}
		}
	}
	return documents, others, nil
}

// decode reads the object as Helm does when it applies it. It stays nil for a document without content.
func (d *document) decode() error {
	var value any
	if err := utilyaml.Unmarshal([]byte(d.text), &value); err != nil {
		return fmt.Errorf("%s: a manifest is not valid YAML: %w", d.file, err)
	}
	object, ok := value.(map[string]any)
	if value != nil && !ok {
		return fmt.Errorf("%s: a manifest is %T, not an object: %.100s", d.file, value, d.text)
	}
	if len(object) > 0 {
		d.object = object
	}
	return nil
}

// write returns the files of documents.
func write(documents []*document) ([]render.File, error) {
	var files []render.File
	byName := map[string]int{}
	for _, d := range documents {
		text := d.text
		if text == "" {
			var err error
			if text, err = encode(d.object); err != nil {
				return nil, fmt.Errorf("%s: cannot encode a manifest: %w", d.file, err)
			}
		}
		at, ok := byName[d.file]
		if !ok {
			byName[d.file] = len(files)
			files = append(files, render.File{Name: d.file, Content: text})
			continue
		}
		files[at].Content += "\n---\n" + text
	}
	return files, nil
}

// encode returns an object as YAML, if Helm reads the same object from it, and as JSON otherwise: encoders of YAML lose
// some texts, and Helm adds and removes newlines at the end of a document.
func encode(object map[string]any) (string, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	text, err := yaml.JSONToYAML(b)
	if err == nil && !bytes.HasPrefix(text, []byte("---")) && !bytes.Contains(text, []byte("\n---")) &&
		isRead(text, object) && isRead(bytes.TrimSpace(text), object) && isRead(append(text, '\n'), object) {
		return string(text), nil
	}
	return string(b) + "\n", nil
}

// isRead reports whether an object is read from a text.
func isRead(text []byte, object map[string]any) bool {
	var value any
	return utilyaml.Unmarshal(text, &value) == nil && reflect.DeepEqual(value, any(object))
}

// takeFile removes the annotation that names the file of an object, and returns it. A patch may have removed it.
func takeFile(object map[string]any, i int) string {
	annotations, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", "annotations")
	all, ok := annotations.(map[string]any)
	if !ok {
		return fmt.Sprintf("generated-by-postrender-%d.yaml", i)
	}
	file, ok := all[fileAnnotation].(string)
	delete(all, fileAnnotation)
	if len(all) == 0 {
		unstructured.RemoveNestedField(object, "metadata", "annotations")
	}
	if !ok {
		return fmt.Sprintf("generated-by-postrender-%d.yaml", i)
	}
	return file
}

// checkForKustomize returns an error for objects that kustomize refuses: two of one name, of which Helm allows one to
// be a hook, and a key that is there twice.
func checkForKustomize(documents []*document) error {
	known := map[string]*document{}
	for _, d := range documents {
		o := unstructured.Unstructured{Object: d.object}
		name := fmt.Sprintf("%s '%s'", o.GetKind(), o.GetName())
		if key := duplicateKey(d.text); key != "" {
			return fault.New("", "%s in %s has the key '%s' twice", name, d.file, key).
				WithHint("Remove one of them from the template of the chart: kustomize does not accept both")
		}
		gvk := o.GroupVersionKind()
		id := fmt.Sprintf("%s %s %s", gvk.GroupKind(), o.GetNamespace(), o.GetName())
		other := known[id]
		known[id] = d
		if other != nil && other.isHook() != d.isHook() {
			return fault.New("", "%s is a hook in %s and also an object of the release in %s", name,
				hookOf(other, d).file, hookOf(d, other).file).
				WithHint("Set spec.postRenderStrategy: separate, so that hooks are changed on their own")
		}
	}
	return nil
}

// hookOf returns a if it is a hook, and b otherwise.
func hookOf(a, b *document) *document {
	if a.isHook() {
		return a
	}
	return b
}
