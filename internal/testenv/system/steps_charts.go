package system

import (
	"bytes"

	"github.com/Masterminds/semver/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Charts gives HelmCharts of a namespace without controllers their artifacts, in place of a repository and
// source-controller.
type Charts struct {
	*Steps
	archives map[string]map[string][]byte // by name and version of the chart
}

// NewCharts returns charts of which no version is published.
func NewCharts(s *Steps) *Charts { return &Charts{Steps: s, archives: map[string]map[string][]byte{}} }

// Publish publishes a version of a chart.
func (c *Charts) Publish(chart, version string, archive []byte) {
	if c.archives[chart] == nil {
		c.archives[chart] = map[string][]byte{}
	}
	c.archives[chart][version] = archive
}

// Fetch gives a HelmChart the artifact of the newest published version that its spec allows. It reports whether that
// changed the HelmChart; it does not if there is no such HelmChart or version.
func (c *Charts) Fetch(name string) bool {
	c.Helper()
	chart := &sourcev1.HelmChart{}
	if err := c.Get(chart, name); apierrors.IsNotFound(err) {
		return false
	} else if err != nil {
		c.Fatal(err)
	}
	version := c.newest(chart.Spec)
	if version == "" || chart.Status.ObservedGeneration == chart.Generation &&
		chart.Status.Artifact.HasRevision(version) {
		return false
	}
	key := artifact.Key{Kind: sourcev1.HelmChartKind, Namespace: chart.Namespace, Name: chart.Name}
	a, err := c.Store.PutFile(c.Context(), key, ".tgz", bytes.NewReader(c.archives[chart.Spec.Chart][version]), version,
		chart.Status.Artifact)
	if err != nil {
		c.Fatal(err)
	}
	c.setArtifact(chart, a)
	return true
}

// newest returns the newest published version that a spec allows; empty if there is none.
func (c *Charts) newest(spec sourcev1.HelmChartSpec) string {
	c.Helper()
	allowed, err := semver.NewConstraint(spec.Version)
	if err != nil {
		c.Fatal(err)
	}
	var newest *semver.Version
	for text := range c.archives[spec.Chart] {
		if v := semver.MustParse(text); allowed.Check(v) && (newest == nil || v.GreaterThan(newest)) {
			newest = v
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Original()
}
