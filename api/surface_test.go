package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	gatingv1alpha1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/config"
)

// additions are the fields of the storage version that are missing in its list. Most of them are listed for
// older versions only. Without a conversion webhook, the API server drops fields that the storage version
// does not have.
var additions = map[string][]string{
	"Bucket": {".spec.accessFrom", ".status.artifact.checksum"},
	"GitRepository": {
		".spec.accessFrom", ".spec.gitImplementation", ".status.artifact.checksum",
		".status.includedArtifacts[].checksum", ".status.url", ".status.contentConfigChecksum",
	},
	"HelmChart": {
		".spec.accessFrom", ".spec.valuesFile", ".status.artifact.checksum",
		".spec.verify.trustedRootSecretRef", // as for OCIRepository: private Sigstore instances sign charts, too
	},
	"HelmRepository": {".status.artifact.checksum"},
	"OCIRepository":  {".status.artifact.checksum"},
	"HelmRelease": {".spec.decryption", ".spec.dependsOn[].apiVersion", ".spec.dependsOn[].kind",
		".spec.dependsOn[].ready", ".spec.valuesFrom[].namespace", ".spec.valuesFrom[].path",
		".spec.chart.spec.valuesFile", ".spec.postRenderers[].kustomize.patchesJson6902",
		".spec.postRenderers[].kustomize.patchesStrategicMerge", ".status.lastAppliedRevision"},
	"Kustomization": {".spec.dependsOn[].apiVersion", ".spec.dependsOn[].kind", ".spec.dependsOn[].ready",
		".spec.patchesJson6902", ".spec.patchesStrategicMerge", ".spec.validation", ".status.snapshot",
		".status.history[].times",
		".status.history[].live"},
	"Receiver": {".spec.action", ".status.url"},
	// The listed versions have no status: only events would report a failed Provider.
	"Alert":    {".status", ".spec.summary"},
	"Provider": {".status", ".spec.interval", ".spec.proxy"},
	"ImagePolicy": {".spec.policy.createdAt", ".spec.policy.cel", ".status.latestImage",
		".status.observedPreviousImage"},
	"ImageUpdateAutomation": {".spec.batch", ".spec.bindings", ".spec.pullRequest", ".status.pullRequest"},
	// The kernel writes these on every kind.
	"ArtifactGenerator": {".status.observedGeneration"},
	"ResourceSet":       {".status.observedGeneration"},
	"ExternalArtifact":  {".status.observedGeneration", ".status.lastHandledReconcileAt", ".status.artifact.checksum"},
}

// complete are the groups in which every listed kind and version must be served.
var complete = []string{
	"source.toolkit.fluxcd.io", "source.extensions.fluxcd.io", "kustomize.toolkit.fluxcd.io",
	"notification.toolkit.fluxcd.io", "image.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io",
}

// TestSurface checks the generated definitions against the lists of every field that users of these APIs rely on.
func TestSurface(t *testing.T) {
	crds := definitions(t)
	for _, list := range surfaceLists(t) {
		crd, version := served(crds, list)
		if group, _, _ := strings.Cut(list.version, "/"); crd == nil {
			if slices.Contains(complete, group) {
				t.Errorf("%s %s is not served", list.version, list.kind)
			}
			continue // complete lists the groups of which every kind must be served
		}
		t.Run(strings.ReplaceAll(list.version, "/", "-")+" "+list.kind, func(t *testing.T) {
			if want := list.facts["plural"]; crd.Spec.Names.Plural != want {
				t.Errorf("plural is %q, want %q", crd.Spec.Names.Plural, want)
			}
			for _, want := range strings.FieldsFunc(list.facts["short"], func(r rune) bool { return r == ',' }) {
				if !slices.Contains(crd.Spec.Names.ShortNames, want) {
					t.Errorf("short names are %q, without %q", crd.Spec.Names.ShortNames, want)
				}
			}
			var columns []string
			for _, c := range version.AdditionalPrinterColumns {
				if c.Priority > 0 {
					continue // shown by -o wide only: added by Sluice
				}
				columns = append(columns, fmt.Sprintf("%s %s %s", c.Name, c.JSONPath, c.Type))
			}
			if !slices.Equal(columns, list.columns) {
				t.Errorf("columns are %q, want %q", columns, list.columns)
			}
			have := map[string]field{}
			walk(have, "", version.Schema.OpenAPIV3Schema, false)
			for _, path := range slices.Sorted(maps.Keys(list.fields)) {
				compare(t, path, have, list.fields[path])
			}
			for _, path := range slices.Sorted(maps.Keys(have)) {
				if _, listed := list.fields[path]; !listed && version.Storage && !expected(list, version, path) {
					t.Errorf("%s is not listed: name additions in this test", path)
				}
			}
		})
	}
}

// records are the kinds that are not reconciled and have no status.
var records = []string{gatingv1alpha1.GateApprovalKind}

// storedAs are the kinds that are not stored as v1: the definitions of Flux 2.9 have no v1 of them, and can only
// replace ours if no object is stored as such.
var storedAs = map[string]string{notificationv1.AlertKind: "v1beta3", notificationv1.ProviderKind: "v1beta3"}

// TestVersions checks that every version is served with a status subresource, and which version is stored.
func TestVersions(t *testing.T) {
	for kind, crd := range definitions(t) {
		hasV1 := slices.ContainsFunc(crd.Spec.Versions,
			func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == "v1" })
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				t.Errorf("%s %s is not served", kind, v.Name)
			}
			if hasV1 && v.Storage != (v.Name == cmp.Or(storedAs[kind], "v1")) {
				t.Errorf("%s %s: storage is %t", kind, v.Name, v.Storage)
			}
			if !slices.Contains(records, kind) && (v.Subresources == nil || v.Subresources.Status == nil) {
				t.Errorf("%s %s has no status subresource", kind, v.Name)
			}
		}
	}
}

// TestCategoriesOfFlux checks what `kubectl get all`, `fluxcd` and the categories of a purpose list.
func TestCategoriesOfFlux(t *testing.T) {
	crds := definitions(t)
	for category, kinds := range map[string]string{
		"fluxcd-sources": "GitRepository OCIRepository HelmRepository HelmChart Bucket ExternalArtifact " +
			"ArtifactGenerator",
		"fluxcd-appliers": "Kustomization HelmRelease ResourceSet", "fluxcd-notifications": "Alert Provider Receiver",
		"fluxcd-images": "ImageRepository ImagePolicy ImageUpdateAutomation",
	} {
		for _, kind := range strings.Fields(kinds) {
			if got := crds[kind].Spec.Names.Categories; !slices.Equal(got, []string{"all", "fluxcd", category}) {
				t.Errorf("%s has the categories %q, want all, fluxcd and %s", kind, got, category)
			}
		}
	}
}

// TestNothingIsPruned checks that every version has the fields of all versions: the API server drops what the version
// of a request lacks.
func TestNothingIsPruned(t *testing.T) {
	for kind, crd := range definitions(t) {
		all := map[string]field{}
		for _, v := range crd.Spec.Versions {
			walk(all, "", v.Schema.OpenAPIV3Schema, false)
		}
		for _, v := range crd.Spec.Versions {
			own := map[string]field{}
			walk(own, "", v.Schema.OpenAPIV3Schema, false)
			for _, path := range slices.Sorted(maps.Keys(all)) {
				if _, ok := own[path]; !ok {
					t.Errorf("%s %s: %s would be dropped by a write", kind, v.Name, path)
				}
			}
		}
	}
}

func compare(t *testing.T, path string, have map[string]field, want field) {
	t.Helper()
	got, ok := have[path]
	if !ok {
		t.Errorf("%s is missing", path)
		return
	}
	if got.kind != want.kind {
		t.Errorf("%s is of type %s, want %s", path, got.kind, want.kind)
	}
	for _, key := range slices.Sorted(maps.Keys(want.limits)) {
		if key != "enum" && !isOwnKindByDefault(path, key) && !slices.Equal(got.limits[key], want.limits[key]) {
			t.Errorf("%s: %s is %q, want %q", path, key, got.limits[key], want.limits[key])
		}
	}
	for _, value := range want.limits["enum"] {
		if !slices.Contains(got.limits["enum"], value) {
			t.Errorf("%s: the value %q is rejected", path, value)
		}
	}
	for key, limit := range got.limits {
		if _, listed := want.limits[key]; !listed && key != "default" && !isDurationCheck(key, limit) &&
			!isRegionCheck(path, key) {
			t.Errorf("%s: %s %q is stricter than what users rely on", path, key, limit)
		}
	}
}

// isOwnKindByDefault reports whether a field is required in the list, and not by us: a dependency without a kind is of
// the kind that depends on it.
func isOwnKindByDefault(path, key string) bool {
	return key == "required" && (path == ".spec.dependsOn[].apiVersion" || path == ".spec.dependsOn[].kind")
}

// everywhere are the fields that Sluice adds to every version.
var everywhere = []string{".spec.gates", ".status.gates", ".status.pending", ".status.heldBy", ".status.admitted",
	".status.reverted", ".status.previous", ".spec.driftDetection"}

// expected reports whether a field that is missing in the list is a known addition.
func expected(list surfaceList, version *apiextensionsv1.CustomResourceDefinitionVersion, path string) bool {
	if !strings.HasPrefix(path, ".spec") && !strings.HasPrefix(path, ".status") {
		return true
	}
	if slices.ContainsFunc(everywhere, func(added string) bool { return strings.HasPrefix(path, added) }) {
		return true
	}
	return version.Storage && slices.ContainsFunc(additions[list.kind],
		func(added string) bool { return strings.HasPrefix(path, added) })
}

// field is the definition of one field in a schema or a list.
type field struct {
	kind   string
	limits map[string][]string
}

func walk(into map[string]field, path string, s *apiextensionsv1.JSONSchemaProps, required bool) {
	f := field{kind: cmp.Or(s.Type, "any"), limits: map[string][]string{}}
	set := func(key, value string) { f.limits[key] = append(f.limits[key], value) }
	if required {
		set("required", "")
	}
	if s.Pattern != "" {
		set("pattern", s.Pattern)
	}
	if s.Format != "" {
		set("format", s.Format)
	}
	limits := map[string]*int64{"minLength": s.MinLength, "maxLength": s.MaxLength, "minItems": s.MinItems,
		"maxItems": s.MaxItems}
	for key, n := range limits {
		if n != nil {
			set(key, strconv.FormatInt(*n, 10))
		}
	}
	if s.Minimum != nil {
		set("minimum", strconv.FormatFloat(*s.Minimum, 'f', -1, 64))
	}
	if s.Default != nil {
		set("default", pythonic(s.Default.Raw))
	}
	for _, e := range s.Enum {
		set("enum", strings.Trim(string(e.Raw), `"`))
	}
	for _, rule := range s.XValidations {
		set("rule", rule.Rule)
	}
	if s.XPreserveUnknownFields != nil {
		set("free-form", "")
	}
	into[path] = f
	for name, sub := range s.Properties {
		walk(into, path+"."+name, &sub, slices.Contains(s.Required, name))
	}
	if s.Items != nil {
		walk(into, path+"[]", s.Items.Schema, false)
	}
	if s.AdditionalProperties != nil {
		walk(into, path+"{}", s.AdditionalProperties.Schema, false)
	}
}

// pythonic formats a default value as the lists do.
func pythonic(raw []byte) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return string(raw)
	}
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	}
	return literal(v)
}

// literal formats a nested value as the lists do.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return "'" + strings.ReplaceAll(v, `\`, `\\`) + "'"
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, literal(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, literal(key)+": "+literal(v[key]))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// surfaceList is the list of one version of a kind.
type surfaceList struct {
	version, kind string
	facts         map[string]string
	columns       []string
	fields        map[string]field
}

func surfaceLists(t *testing.T) []surfaceList {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "surface", "*", "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	var lists []surfaceList
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, parseList(strings.Split(strings.TrimRight(string(b), "\n"), "\n")))
	}
	return lists
}

// parseList parses a header line "# group/version Kind key=value…", lines "# column …", and one tab-separated
// line for each field.
func parseList(lines []string) surfaceList {
	head := strings.Fields(lines[0])
	list := surfaceList{version: head[1], kind: head[2], facts: map[string]string{}, fields: map[string]field{}}
	for _, fact := range head[3:] {
		key, value, _ := strings.Cut(fact, "=")
		list.facts[key] = value
	}
	for _, line := range lines[1:] {
		if column, ok := strings.CutPrefix(line, "# column "); ok {
			list.columns = append(list.columns, column)
			continue
		}
		cells := strings.Split(line, "\t")
		f := field{kind: cells[1], limits: map[string][]string{}}
		for _, limit := range strings.Split(cells[2], "; ") {
			key, value, _ := strings.Cut(limit, "=")
			switch key {
			case "":
			case "enum":
				f.limits[key] = strings.Split(value, "|")
			default:
				f.limits[key] = append(f.limits[key], value)
			}
		}
		list.fields[cells[0]] = f
	}
	return list
}

// definitions returns the generated definitions by kind.
func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := fs.Glob(config.Files, "crd/*.io_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		b, err := config.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(b, crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		crds[crd.Spec.Names.Kind] = crd
	}
	return crds
}

func served(crds map[string]*apiextensionsv1.CustomResourceDefinition,
	list surfaceList) (*apiextensionsv1.CustomResourceDefinition, *apiextensionsv1.CustomResourceDefinitionVersion) {
	crd := crds[list.kind]
	if crd == nil {
		return nil, nil
	}
	for i, v := range crd.Spec.Versions {
		if crd.Spec.Group+"/"+v.Name == list.version && v.Served {
			return crd, &crd.Spec.Versions[i]
		}
	}
	return nil, nil
}

// isRegionCheck reports whether a limit is part of the check of regions, which become a part of a host name.
func isRegionCheck(path, key string) bool {
	return path == ".spec.region" && (key == "pattern" || key == "maxLength")
}

// isDurationCheck reports whether a limit is part of [meta.Duration], which only rejects text that is not a duration.
func isDurationCheck(key string, limit []string) bool {
	return key == "rule" && slices.Equal(limit, []string{"duration(self) >= duration('0s')"}) ||
		key == "maxLength" && slices.Equal(limit, []string{"64"})
}
