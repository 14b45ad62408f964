// Package mirror copies what a repository refers to into another registry or an archive: container images, OCI
// artifacts and Helm charts, with their signatures. Digests stay the same and are verified.
package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"oras.land/oras-go/v2/registry"
)

// Kinds of items.
const (
	Image    = "image"     // container image
	Artifact = "artifact"  // of an OCIRepository
	OCIChart = "chart"     // in a registry
	WebChart = "web chart" // in a Helm repository over HTTP(S); becomes a chart in a registry
	Tags     = "tags"      // image of an ImageRepository: listed, but not copied
)

// Item is something that a repository refers to.
type Item struct {
	Kind string `json:"kind"`
	// Repository is the host and path, without a scheme. Of charts it is the repository of the chart.
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"`
	Digest     string `json:"digest,omitempty"`
	// Version is a range of versions: of an OCIRepository, or of a chart.
	Version       string   `json:"version,omitempty"`
	VersionFilter string   `json:"versionFilter,omitempty"`
	Layer         string   `json:"layer,omitempty"`     // media type that an OCIRepository with a range selects
	Chart         string   `json:"chart,omitempty"`     // name
	ChartsURL     string   `json:"chartsURL,omitempty"` // URL of the Helm repository
	PlainHTTP     bool     `json:"plainHTTP,omitempty"` // spec.insecure allows it
	UsedBy        []string `json:"usedBy"`              // objects, as KIND/NAME in FILE
	Namespace     string   `json:"-"`                   // of the object, to find the HelmRepository
	Source        string   `json:"-"`                   // name of the HelmRepository
}

// Name returns the item as people write it.
func (i Item) Name() string {
	switch {
	case i.Kind == WebChart || i.Kind == OCIChart:
		return strings.TrimSuffix(i.ChartsURL, "/") + "/" + i.Chart + " " + cmp.Or(i.Version, "*")
	case i.Digest != "" && i.Tag != "":
		return i.Repository + ":" + i.Tag + "@" + i.Digest
	case i.Digest != "":
		return i.Repository + "@" + i.Digest
	case i.Version != "":
		return i.Repository + " " + i.Version
	case i.Tag != "":
		return i.Repository + ":" + i.Tag
	}
	return i.Repository
}

// ParseImage returns the item of a container image, such as nginx or ghcr.io/org/app:v1@sha256:...
func ParseImage(image string) (Item, error) {
	ref, err := name.ParseReference(image, name.WeakValidation)
	if err != nil {
		return Item{}, fmt.Errorf("%.200q is not an image", image)
	}
	item := Item{Kind: Image, Repository: repositoryOf(ref.Context())}
	rest := image
	if before, digest, ok := strings.Cut(image, "@"); ok {
		rest, item.Digest = before, digest
	}
	if colon := strings.LastIndexByte(rest, ':'); colon > strings.LastIndexByte(rest, '/') {
		item.Tag = rest[colon+1:]
	}
	if item.Tag == "" && item.Digest == "" {
		item.Tag = name.DefaultTag
	}
	return item, nil
}

// repositoryOf returns a repository with the host name that people and registries use.
func repositoryOf(r name.Repository) string {
	host := r.RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	return host + "/" + r.RepositoryStr()
}

// Target returns the repository in a mirror that a repository is copied to: below the prefix, with the host as the
// first part of the path. The colon before a port becomes a dash.
func Target(prefix, repository string) (string, error) {
	if _, path, ok := strings.Cut(repository, "/"); !ok || path == "" {
		return "", fmt.Errorf("%.200q is not a repository", repository)
	}
	return below(prefix, repository)
}

func below(prefix, address string) (string, error) {
	host, path, _ := strings.Cut(address, "/")
	target := strings.TrimSuffix(strings.TrimSuffix(prefix, "/")+"/"+
		strings.ReplaceAll(strings.ToLower(host), ":", "-")+"/"+path, "/")
	if parsed, err := registry.ParseReference(target); err != nil || parsed.Reference != "" || host == "" {
		return "", fmt.Errorf("%.200q has no valid name in the mirror %s", address, prefix)
	}
	return target, nil
}

// merge returns items sorted by kind and name, each once with all of its users.
func merge(items []Item) []Item {
	byKey := map[string]*Item{}
	var keys []string
	for _, item := range items {
		key := item.Kind + " " + item.Name()
		known := byKey[key]
		if known == nil {
			known = &item
			byKey[key], keys = known, append(keys, key)
			continue
		}
		known.PlainHTTP = known.PlainHTTP || item.PlainHTTP
		known.UsedBy = append(known.UsedBy, item.UsedBy...)
	}
	slices.Sort(keys)
	merged := make([]Item, len(keys))
	for i, key := range keys {
		merged[i] = *byKey[key]
		slices.Sort(merged[i].UsedBy)
		merged[i].UsedBy = slices.Compact(merged[i].UsedBy)
	}
	return merged
}
