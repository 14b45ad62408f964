package build

import (
	"bytes"
	"errors"
	"path"
	"regexp/syntax"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/regex"
)

// Kustomize converts an object as a whole for each patch, compares each object with the target of each, and visits all
// objects for each image and each field of a replacement. It does not stop when the build ends, so the time for all of
// this is bounded. It is counted in units of about 25 µs, which is the time for one value of an object.
const (
	maxPatching = 40_000_000 // units: about a quarter of an hour
	targetUnits = 10         // for comparing an object with a target
	idUnits     = 1          // for comparing an object with the name in a patch
	visitUnits  = 3          // for visiting an object, besides its values
	unitSize    = 27         // instructions of regular expressions that take a unit for the longest name
	imageSize   = 13         // instructions that are compiled and compared in a unit
	unitText    = 1000       // bytes of a label selector that take a unit, as it is parsed for each object
	longMap     = 10_000     // values of an object from which the time grows with their square
)

// patching is what the time for the patches of a build depends on.
type patching struct {
	targeted, named int // patches with a target, and those that name their object
	visits          int // of all objects: for images, fields of replacements, and other settings
	matching        int // instructions of the regular expressions of all targets
	selecting       int // bytes of their label selectors
	images          int // instructions of the names of images, which are compiled for each image of an object
	objects         int
	values          int64 // of all objects
	units, largest  int64 // for converting all objects once, and the largest one
}

// object counts an object with a number of values.
func (p *patching) object(values int) {
	n := int64(values)
	units := n + n*n/longMap
	p.objects++
	p.values += n
	p.units += units
	p.largest = max(p.largest, units)
}

// time returns the units that all patches and visits take at most.
func (p *patching) time() int64 {
	objects := max(int64(p.objects-p.targeted-p.named), 1) // patches are counted as objects, too
	return int64(p.targeted)*(p.units+objects*targetUnits) + int64(p.named)*(p.largest+objects*idUnits) +
		int64(p.visits)*(p.values+objects*visitUnits) +
		int64(p.images)/imageSize*p.values + (int64(p.matching)/unitSize+int64(p.selecting)/unitText)*objects
}

// countPatches counts the patches and images of a kustomization in dir.
func (f *filesystem) countPatches(dir string, k *types.Kustomization) error {
	f.patching.visits += len(k.Images) + len(k.Replicas) + len(k.Labels)
	for _, i := range k.Images {
		n, err := regex.Size(i.Name)
		if errors.As(err, new(*syntax.Error)) {
			continue // kustomize takes it for a name that no image has
		}
		if err != nil {
			return refusal("the name of an image of the build is invalid").Because(err)
		}
		f.patching.images += n
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
		f.patching.named += documentsIn(text)
		return nil
	}
	f.patching.targeted += documentsIn(text)
	f.patched += bytes.Count(text, []byte{'\n'}) + bytes.Count(text, []byte{','}) + 1
	return f.patching.countTarget(p.Target)
}

// countTarget counts the regular expressions and label selectors of a target. The error says which one is invalid.
func (p *patching) countTarget(s *types.Selector) error {
	n, err := regex.Size(s.Group, s.Version, s.Kind, s.Name, s.Namespace)
	if err != nil {
		return refusal("a target of the build is invalid").Because(err)
	}
	p.matching += n
	p.selecting += len(s.LabelSelector) + len(s.AnnotationSelector)
	return nil
}

// countFields counts the fields that replacements write, and their targets.
func (p *patching) countFields(replacements []types.Replacement) error {
	for _, r := range replacements {
		for _, t := range r.Targets {
			if t == nil {
				continue
			}
			p.visits += max(1, len(t.FieldPaths))
			for _, s := range append(t.Reject, t.Select) {
				if s == nil {
					continue
				}
				if err := p.countTarget(s); err != nil {
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

// checkPatching returns an error if the patches would take too long.
func (f *filesystem) checkPatching(name string) error {
	if f.patching.time() <= maxPatching {
		return nil
	}
	p := f.patching
	return refusal("%d patches, images and fields of replacements would take too long for these objects; %s is one "+
		"file too many", p.targeted+p.named+p.visits, name).
		WithHint("Write the fields into the objects, or split the source into several Kustomizations")
}
