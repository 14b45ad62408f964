package build

import (
	"bytes"
	"errors"
	"path"
	"regexp/syntax"
	"slices"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/regex"
)

// Kustomize converts an object as a whole for each patch, compares each object with the target of each, and visits all
// objects for each image and each field of a replacement. In each kustomization, it compares all objects below it with
// each other. It does not stop when the build ends, so the time for all of this is bounded. It is counted in units of
// about 25 µs, which is the time for one value of an object.
const (
	maxEffort   = 40_000_000 // units: about a quarter of an hour
	targetUnits = 10         // for comparing an object with a target
	idUnits     = 1          // for comparing an object with the name in a patch
	visitUnits  = 3          // for visiting an object, besides its values
	unitSize    = 27         // instructions of regular expressions that take a unit for the longest name
	imageSize   = 13         // instructions that are compiled and compared in a unit
	unitText    = 1000       // bytes of a label selector that take a unit, as it is parsed for each object
	unitPairs   = 20         // pairs of objects that are compared in a unit
	longMap     = 10_000     // values of an object from which the time grows with their square
)

// effort is what the time for a build depends on.
type effort struct {
	targeted, named int   // patches with a target, and those that name their object
	visits          int   // of all objects: for images, fields of replacements, and other settings
	matching        int   // instructions of the regular expressions of all targets
	selecting       int   // bytes of their label selectors
	images          int   // instructions of the names of images, which are compiled for each image of an object
	values          int64 // of all objects
	units, largest  int64 // for converting all objects once, and the largest one
	// levels is how many kustomizations list one another above the objects of a directory.
	levels  map[string]int
	deepest int
}

// level records the directories that the kustomization in dir lists. Kustomize reads it before those.
func (e *effort) level(dir string, listed []string) {
	if e.levels == nil {
		e.levels = map[string]int{}
	}
	below := max(e.levels[path.Clean(dir)], 1) + 1
	e.deepest = max(e.deepest, below-1)
	for _, l := range listed {
		l = path.Clean(l)
		e.levels[l] = max(e.levels[l], below)
	}
}

// document counts a document with a number of values.
func (e *effort) document(values int) {
	n := int64(values)
	units := n + n*n/longMap
	e.values += n
	e.units += units
	e.largest = max(e.largest, units)
}

// time returns the units that all of this takes at most for a number of objects and patches. compares says whether
// objects are compared with each other, which plain lists are not.
func (e *effort) time(read int, compares bool) int64 {
	objects := max(int64(read-e.targeted-e.named), 1)
	pairs := int64(0)
	if compares {
		pairs = int64(e.deepest) * objects * objects
	}
	return pairs/unitPairs + int64(e.visits)*(e.values+objects*visitUnits) +
		int64(e.targeted)*(e.units+objects*targetUnits) + int64(e.named)*(e.largest+objects*idUnits) +
		int64(e.images)/imageSize*e.values + (int64(e.matching)/unitSize+int64(e.selecting)/unitText)*objects
}

// countPatches counts the patches and images of a kustomization in dir.
func (f *filesystem) countPatches(dir string, k *types.Kustomization) error {
	f.effort.visits += len(k.Images) + len(k.Replicas) + len(k.Labels)
	for _, i := range k.Images {
		n, err := regex.Size(i.Name)
		if errors.As(err, new(*syntax.Error)) {
			continue // kustomize takes it for a name that no image has
		}
		if err != nil {
			return refusal("the name of an image of the build is invalid").Because(err)
		}
		f.effort.images += n
	}
	for _, p := range patchesOf(k) {
		if err := f.countPatch(dir, p); err != nil {
			return err
		}
	}
	for _, p := range k.PatchesStrategicMerge { //nolint:staticcheck // old but in use
		patch := types.Patch{Path: string(p)}
		if inPlace(string(p)) {
			patch = types.Patch{Patch: string(p)}
		}
		if err := f.countPatch(dir, patch); err != nil {
			return err
		}
	}
	return nil
}

// countPatch counts a patch of a kustomization in dir, and its values if it may be for many objects.
func (f *filesystem) countPatch(dir string, p types.Patch) error {
	text := []byte(p.Patch)
	if p.Path != "" {
		text = f.peek(path.Join(dir, p.Path))
	}
	if p.Target == nil {
		f.effort.named += documentsIn(text)
		return nil
	}
	f.effort.targeted += documentsIn(text)
	f.patched += bytes.Count(text, []byte{'\n'}) + bytes.Count(text, []byte{','}) + 1
	return f.effort.countTarget(p.Target)
}

// countTarget counts the regular expressions and label selectors of a target. The error says which one is invalid.
func (e *effort) countTarget(s *types.Selector) error {
	n, err := regex.Size(s.Group, s.Version, s.Kind, s.Name, s.Namespace)
	if err != nil {
		return refusal("a target of the build is invalid").Because(err)
	}
	e.matching += n
	e.selecting += len(s.LabelSelector) + len(s.AnnotationSelector)
	return nil
}

// countFields counts the fields that replacements write, and their targets.
func (e *effort) countFields(replacements []types.Replacement) error {
	for _, r := range replacements {
		for _, t := range r.Targets {
			if t == nil {
				continue
			}
			e.visits += max(1, len(t.FieldPaths))
			for _, s := range slices.Concat(t.Reject, []*types.Selector{t.Select}) {
				if s == nil {
					continue
				}
				if err := e.countTarget(s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// peek returns the content of a file before kustomize reads it; nil if kustomize will report an error.
func (f *filesystem) peek(name string) []byte {
	if info, err := f.tree.Stat(name); err != nil || info.Size() > maxFile {
		return nil
	}
	content, _ := f.tree.ReadFile(name)
	return content
}

// documentsIn returns the number of documents in a text, at most.
func documentsIn(text []byte) int { return bytes.Count(text, []byte("\n---")) + 1 }

// checkEffort returns an error if kustomize would take too long.
func (f *filesystem) checkEffort(name string) error {
	if f.effort.time(f.objects(), f.share != 0) <= maxEffort {
		return nil
	}
	return refusal("%d patches, images and fields of replacements in %d levels of kustomizations would take too long "+
		"for these objects; %s is one file too many", f.effort.targeted+f.effort.named+f.effort.visits,
		f.effort.deepest, name).
		WithHint("Write the fields into the objects, or split the source into several Kustomizations")
}
