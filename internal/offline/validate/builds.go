package validate

import (
	"bytes"
	"cmp"
	"context"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// buildsAlone reports whether a kustomization file is not that of a component.
func (r *run) buildsAlone(name string) bool {
	content, err := r.Files.ReadFile(name)
	var k struct{ APIVersion, Kind string }
	return err == nil && (yaml.Unmarshal(content, &k) != nil || k.Kind != "Component") &&
		!strings.HasPrefix(k.APIVersion, kustomizev1.GroupVersion.Group) // an object of Sluice in a file of this name
}

// buildKustomizations builds the Kustomizations of Sluice that the files declare, whose directory is in the files.
func (r *run) buildKustomizations(ctx context.Context) error {
	b := localbuild.New(localbuild.Options{Offline: true, Strict: r.Strict}, nil, nil)
	for _, name := range r.found.manifests {
		content, err := r.Files.ReadFile(name)
		if err != nil {
			return err
		}
		if !bytes.Contains(content, []byte(kustomizev1.GroupVersion.Group)) || r.found.inCharts(name) {
			continue
		}
		objects, err := manifest.Decode(content)
		if err != nil {
			continue // reported when the file is read
		}
		for _, o := range objects {
			k := &kustomizev1.Kustomization{}
			if o.GroupVersionKind().GroupKind() != kustomizationKind || manifest.Convert(o, k) != nil || !r.isLocal(k) {
				continue
			}
			k.Namespace = cmp.Or(k.Namespace, "default")
			b.UseSource(k, r.Files)
			built, err := b.BuildObject(ctx, k)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r.failed(BuildFailed, name, "Kustomization/"+k.Namespace+"/"+k.Name, err)
				continue
			}
			r.addBuild(path.Clean(k.Spec.Path), built.Result)
		}
	}
	return nil
}

var kustomizationKind = kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind).GroupKind()

// isLocal reports whether the directory of a Kustomization is in the files. Which repository a source has is not known,
// so a directory of the same name counts.
func (r *run) isLocal(k *kustomizev1.Kustomization) bool {
	info, err := r.Files.Stat(path.Clean(strings.TrimPrefix(path.Clean("/"+k.Spec.Path), "/") + "/."))
	return err == nil && info.IsDir() && path.Clean(k.Spec.Path) != "."
}

// buildDirectories builds the directories with a kustomization file that no other build has read.
func (r *run) buildDirectories(ctx context.Context) error {
	type attempt struct {
		dir    string
		result *build.Result
		err    error
	}
	var all []attempt
	for _, dir := range r.found.kustomizations {
		if r.coversKustomization(dir) || r.found.inCharts(dir) {
			continue
		}
		result, err := build.Build(ctx, build.Request{Tree: r.Files, Path: dir, Redact: true})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		all = append(all, attempt{dir, result, err})
	}
	for _, a := range all {
		isBase := slices.ContainsFunc(all, func(other attempt) bool {
			return other.dir != a.dir && other.err == nil && other.result.Trace.HasRead(r.kustomizationIn(a.dir))
		})
		switch {
		case isBase:
		case a.err != nil:
			r.failed(BuildFailed, r.kustomizationIn(a.dir), "", a.err)
			r.cover(a.result.Trace)
		default:
			r.addBuild(a.dir, a.result)
		}
	}
	return nil
}

// kustomizationIn returns the kustomization file of a directory.
func (r *run) kustomizationIn(dir string) string {
	for _, base := range konfig.RecognizedKustomizationFileNames() {
		if name := path.Join(dir, base); r.found.isKustomization[name] {
			return name
		}
	}
	return dir
}

func (r *run) coversKustomization(dir string) bool { return r.isCovered[r.kustomizationIn(dir)] }

// cover notes the files that a build has read.
func (r *run) cover(t *build.Trace) {
	for _, name := range r.found.manifests {
		r.isCovered[name] = r.isCovered[name] || t.HasRead(name)
	}
	for name := range r.found.isKustomization {
		r.isCovered[name] = r.isCovered[name] || t.HasRead(name)
	}
}

func (r *run) addBuild(name string, result *build.Result) {
	r.cover(result.Trace)
	r.units = append(r.units, &unit{name: name, objects: result.Objects,
		locate: func(o *unstructured.Unstructured, field string) (string, int) {
			return splitLine(result.Locate(o, field))
		}})
}

// splitLine splits a place such as "deploy.yaml, line 7".
func splitLine(place string) (file string, line int) {
	file, number, _ := strings.Cut(place, ", line ")
	line, _ = strconv.Atoi(number) // 0 if there is none
	return file, line
}

// inMessage finds a place that an error begins with or names.
var inMessage = regexp.MustCompile(`(\S+\.(?:ya?ml|json))(?:, line (\d+)|:(\d+))`)

// failed adds the problem of a build or a render.
func (r *run) failed(rule, file, object string, err error) {
	p := Problem{Rule: rule, File: file, Object: object, Message: err.Error()}
	if f := fault.As(err); f != nil && f.Terminal && fault.Reason(err, "") == meta.BuildFailedReason {
		p.Message = strings.TrimPrefix(p.Message, object+": ")
	}
	if m := inMessage.FindStringSubmatch(p.Message); m != nil {
		if _, err := r.Files.Stat(m[1]); err == nil {
			p.File = m[1]
			p.Line, _ = strconv.Atoi(cmp.Or(m[2], m[3]))
		}
	}
	r.add(p)
}

// renderCharts renders the charts with their own values.
func (r *run) renderCharts(ctx context.Context) error {
	for _, dir := range r.found.charts {
		tree, err := r.Files.At(dir)
		if err != nil {
			return err
		}
		obj := &helmv2.HelmRelease{}
		obj.Name, obj.Namespace = "release", "default"
		b := localrelease.New(localrelease.Options{Chart: tree, Offline: true, Renderer: r.Renderer}, nil,
			func(string) {})
		rendered, err := b.BuildObject(ctx, obj, false)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.failed(RenderFailed, path.Join(dir, "Chart.yaml"), "", err)
			continue
		}
		r.units = append(r.units, &unit{name: path.Join(dir, "Chart.yaml"),
			objects: slices.Concat(rendered.CRDs, rendered.Hooks, rendered.Objects), locate: r.templateOf(dir)})
	}
	return nil
}

// templateOf returns the function that finds the template of an object: the only one of a chart with its kind. The line
// is that of the last name in the path of the field, if the template has it once.
func (r *run) templateOf(dir string) func(*unstructured.Unstructured, string) (string, int) {
	return func(o *unstructured.Unstructured, field string) (string, int) {
		kind := regexp.MustCompile(`(?m)^kind:\s*"?` + regexp.QuoteMeta(o.GetKind()) + `"?\s*$`)
		found, content := "", ""
		for _, name := range r.found.manifests {
			if !isBelow(name, dir) || !strings.Contains(name, "/templates/") && !strings.HasPrefix(name, "templates/") {
				continue
			}
			b, err := r.Files.ReadFile(name)
			if err != nil || !kind.Match(b) {
				continue
			}
			if found != "" {
				return "", 0
			}
			found, content = name, string(b)
		}
		last := regexp.MustCompile(`(?m)^[\s-]*` + regexp.QuoteMeta(field[strings.LastIndexByte(field, '.')+1:]) + `:`)
		if at := last.FindAllStringIndex(content, 2); field != "" && len(at) == 1 {
			return found, 1 + strings.Count(content[:at[0][1]], "\n")
		}
		return found, 0
	}
}
