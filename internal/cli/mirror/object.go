package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// object collects what an object refers to.
func (f *finder) object(file string, o *unstructured.Unstructured) {
	user := o.GetKind() + "/" + o.GetName() + " in " + file
	var item Item
	var err error
	switch {
	case is(o, sourcev1.GroupVersion.Group, sourcev1.OCIRepositoryKind):
		item, err = ociRepository(o)
	case is(o, sourcev1.GroupVersion.Group, sourcev1.HelmChartKind):
		if text(o, "spec", "sourceRef", "kind") != sourcev1.HelmRepositoryKind {
			return
		}
		item = chart(o, "spec")
	case is(o, helmv2.GroupVersion.Group, helmv2.HelmReleaseKind):
		if text(o, "spec", "chart", "spec", "sourceRef", "kind") != sourcev1.HelmRepositoryKind {
			return
		}
		item = chart(o, "spec", "chart", "spec")
	case is(o, imagev1.GroupVersion.Group, imagev1.ImageRepositoryKind):
		item, err = ParseImage(text(o, "spec", "image"))
		item.Kind, item.Tag = Tags, ""
	case is(o, sourcev1.GroupVersion.Group, sourcev1.HelmRepositoryKind):
	default:
		f.images(user, o)
		return
	}
	if err != nil {
		f.warn(fmt.Sprintf("%s is left out: %v", user, err))
		return
	}
	f.change(o)
	if item.Kind != "" {
		item.UsedBy = []string{user}
		f.items = append(f.items, item)
	}
}

func ociRepository(o *unstructured.Unstructured) (Item, error) {
	repository, ok := strings.CutPrefix(text(o, "spec", "url"), ociScheme)
	if !ok {
		return Item{}, errors.New("spec.url does not begin with oci://")
	}
	item := Item{Kind: Artifact, Repository: repository, Digest: text(o, "spec", "ref", "digest"),
		PlainHTTP: flag(o, "spec", "insecure")}
	switch {
	case item.Digest != "":
	case text(o, "spec", "ref", "semver") != "":
		item.Version, item.VersionFilter = text(o, "spec", "ref", "semver"), text(o, "spec", "ref", "semverFilter")
		item.Layer = text(o, "spec", "layerSelector", "mediaType")
	default:
		item.Tag = cmp.Or(text(o, "spec", "ref", "tag"), "latest")
	}
	return item, nil
}

// chart returns the chart that the fields below a path select. Its repository is not known yet.
func chart(o *unstructured.Unstructured, at ...string) Item {
	field := func(names ...string) string { return text(o, append(append([]string{}, at...), names...)...) }
	return Item{Kind: OCIChart, Chart: field("chart"), Version: field("version"),
		Source:    field("sourceRef", "name"),
		Namespace: cmp.Or(field("sourceRef", "namespace"), o.GetNamespace())}
}

// images collects the images of all containers in an object: in any kind, the lists containers, initContainers and
// ephemeralContainers, and volumes with an image.
func (f *finder) images(user string, o *unstructured.Unstructured) {
	visit(o.Object, 0, func(image string) {
		item, err := ParseImage(image)
		if err != nil {
			f.warn(fmt.Sprintf("an image of %s is left out: %v", user, err))
			return
		}
		item.UsedBy = []string{user}
		f.items = append(f.items, item)
	})
}

// maxDepth bounds the nesting of objects that images are searched in.
const maxDepth = 32

func visit(value any, depth int, use func(image string)) {
	if depth > maxDepth {
		return
	}
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			visit(v, depth+1, use)
		}
	case map[string]any:
		for key, v := range value {
			list, ok := v.([]any)
			if !ok || key != "containers" && key != "initContainers" && key != "ephemeralContainers" {
				visit(v, depth+1, use)
				continue
			}
			for _, container := range list {
				fields, _ := container.(map[string]any)
				if image, ok := fields["image"].(string); ok && image != "" {
					use(image)
				}
			}
		}
	}
}

// resolved returns all items, with the URLs of the Helm repositories that charts are from.
func (f *finder) resolved() []Item {
	var items []Item
	for _, item := range f.items {
		if item.Source == "" {
			items = append(items, item)
			continue
		}
		repository, ok := f.charts[item.Namespace+"/"+item.Source]
		if !ok {
			repository, ok = f.charts["/"+item.Source] // kustomize sets its namespace
		}
		if !ok {
			f.warn(fmt.Sprintf("chart '%s' of %s is left out: HelmRepository '%s' is not declared here", item.Chart,
				item.UsedBy[0], item.Source))
			continue
		}
		item.ChartsURL, item.PlainHTTP = strings.TrimSuffix(repository.url, "/"), repository.insecure
		if rest, isOCI := strings.CutPrefix(item.ChartsURL, ociScheme); isOCI {
			item.Repository = rest + "/" + item.Chart
		} else {
			_, rest, _ := strings.Cut(item.ChartsURL, "://")
			item.Kind, item.Repository = WebChart, rest+"/"+item.Chart
		}
		items = append(items, item)
	}
	return merge(items)
}

func is(o *unstructured.Unstructured, group, kind string) bool {
	return o.GetKind() == kind && strings.HasPrefix(o.GetAPIVersion(), group+"/")
}

func text(o *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, fields...) // an invalid type is as no value
	return s
}

func flag(o *unstructured.Unstructured, fields ...string) bool {
	b, _, _ := unstructured.NestedBool(o.Object, fields...)
	return b
}
