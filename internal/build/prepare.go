package build

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// prepare generates the kustomization file where kustomize starts, and returns its content: the file of the tree or a
// generated one, merged with the settings. It may be empty, which kustomize would refuse.
func (f *filesystem) prepare(req Request) (*types.Kustomization, error) {
	dir, err := f.directory(req.Path)
	if err != nil {
		return nil, err
	}
	k, file, err := f.kustomization(dir, parseEntry)
	if err != nil {
		return nil, err
	}
	generated := file == ""
	if generated {
		file = path.Join(dir, konfig.DefaultKustomizationFileName())
		if k, err = f.generate(dir); err != nil {
			return nil, err
		}
	}
	if f.empty = !generated && k.Resources != nil && len(k.Resources) == 0; f.empty {
		k.Resources = nil // as after writing and reading the file
	}
	if !generated && len(k.Resources) == 0 {
		k.BuildMetadata = []string{types.OriginAnnotations} // as Flux does, so that the file is never empty
	}
	k.FixKustomization()
	if err := f.merge(k, req, dir); err != nil {
		return nil, err
	}
	if _, err := f.bring(file, k); err != nil {
		return nil, err
	}
	if err := f.check(file, k); err != nil {
		return nil, err
	}
	f.sorted = k.SortOptions != nil
	f.trackOrigins(k)
	b, err := yaml.Marshal(k)
	if err != nil {
		return nil, refusal("%s cannot be written", file).Because(err)
	}
	f.root, f.generated[path.Join(mount, file)], f.parsed[path.Join(mount, file)] = dir, b, k
	return k, nil
}

// directory returns the directory in the tree that spec.path refers to, with symlinks resolved.
func (f *filesystem) directory(specPath string) (string, error) {
	dir := path.Clean("./" + strings.TrimLeft(specPath, "/"))
	if !fs.ValidPath(dir) {
		return "", refusal("spec.path %q reaches out of the source", specPath).
			WithHint("Give a path below the root of the source").Final()
	}
	real, err := f.trace.resolve(f.tree, dir)
	if errors.Is(err, fs.ErrInvalid) {
		return "", refusal("spec.path %q leads over a symlink out of the source", specPath).
			WithHint("Give a path below the root of the source")
	}
	if err != nil || f.trace.kind(f.tree, real) != kindDir {
		return "", f.missing(dir)
	}
	return real, nil
}

// missing returns the error for a spec.path that does not exist. It lists directories that do.
func (f *filesystem) missing(dir string) error {
	parent := dir
	for parent != "." {
		parent = path.Dir(parent)
		if f.trace.kind(f.tree, parent) == kindDir {
			break
		}
	}
	hint := "Correct spec.path, and check that spec.ignore and .sourceignore of the source do not leave it out"
	names, _ := f.trace.listing(f.tree, parent) // without names, the hint is shorter
	var dirs []string
	for _, n := range names {
		if name := path.Join(parent, n); f.trace.kind(f.tree, name) == kindDir {
			dirs = append(dirs, name)
		}
	}
	if len(dirs) > 0 {
		hint += "; the source has: " + strings.Join(dirs[:min(len(dirs), 8)], ", ")
	}
	return fault.New(meta.ArtifactFailedReason, "kustomization path not found: %q is not a directory of the source",
		dir).WithHint("%s", hint)
}

// kustomization reads the kustomization file of a directory without checking it; file is "" if there is none.
func (f *filesystem) kustomization(dir string, parse func(name string, content []byte) (*types.Kustomization, error)) (
	k *types.Kustomization, file string, err error) {
	for _, n := range konfig.RecognizedKustomizationFileNames() {
		name := path.Join(dir, n)
		if f.trace.kind(f.tree, name) != kindFile {
			continue
		}
		b, err := f.read(name)
		if err != nil {
			return nil, name, explainRead(name, err)
		}
		if err = f.weighParsed(name, b); err == nil {
			k, err = parse(name, b)
		}
		return k, name, err
	}
	return nil, "", nil
}

// merge merges the settings of the request into the kustomization of dir.
func (f *filesystem) merge(k *types.Kustomization, req Request, dir string) error {
	for _, s := range []struct {
		field *string
		value string
	}{{field: &k.Namespace, value: req.TargetNamespace}, {field: &k.NamePrefix, value: req.NamePrefix},
		{field: &k.NameSuffix, value: req.NameSuffix}} {
		if s.value != "" {
			*s.field = s.value
		}
	}
	for _, image := range req.Images {
		k.Images = mergeImage(k.Images, image)
	}
	if len(req.BuildMetadata) > 0 {
		k.BuildMetadata = req.BuildMetadata
	}
	k.Patches = append(k.Patches, req.Patches...)
	components, err := f.components(req, dir)
	k.Components = append(k.Components, components...)
	return err
}

// mergeImage merges an image into the entry of the same name, and keeps the fields of the entry that the image does not
// set. A tag replaces a digest, and a digest replaces a tag: they name the same content.
func mergeImage(images []types.Image, image types.Image) []types.Image {
	i := slices.IndexFunc(images, func(i types.Image) bool { return i.Name == image.Name })
	if i < 0 {
		return append(images, image)
	}
	merged := images[i]
	if image.NewName != "" {
		merged.NewName = image.NewName
	}
	if image.NewTag != "" || image.Digest != "" {
		merged.NewTag, merged.Digest = image.NewTag, image.Digest
	}
	images = slices.Clone(images)
	images[i] = merged
	return images
}

// components returns the components of the request that exist.
func (f *filesystem) components(req Request, dir string) (there []string, err error) {
	for _, c := range req.Components {
		full := path.Join(mount, dir, c)
		switch _, outside := inside(full); {
		case isRemote(c) || path.IsAbs(c) || outside != nil:
			return nil, refusal("component %q of spec.components is not a path inside the source", c).
				WithHint("Give a path relative to spec.path").Final()
		case f.IsDir(full):
			there = append(there, c)
		case !req.IgnoreMissingComponents:
			return nil, refusal("component %q of spec.components is not in the source", c).
				WithHint("Correct the path, which is relative to spec.path, or set spec.ignoreMissingComponents")
		}
	}
	return there, nil
}
