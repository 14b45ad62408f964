package build

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kinds "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
)

// plain builds kustomizations that only list manifests, and at most set a namespace, without kustomize. Kustomize
// compares every object with every other one and needs about a minute for a few thousand objects. It returns ok = false
// if the kustomization needs kustomize.
func (f *filesystem) plain(dir string, k *types.Kustomization) (objects []*unstructured.Unstructured, ok bool,
	err error) {
	l, bare := &lister{filesystem: f, within: map[string]bool{}}, *k
	if bare.Namespace = ""; !l.list(dir, &bare) {
		return nil, false, nil
	}
	factory := provider.NewDefaultDepProvider().GetResourceFactory()
	files, seen := map[*unstructured.Unstructured]string{}, map[resid.ResId]string{}
	var problems []error
	for _, full := range l.manifests {
		content, err := f.ReadFile(full)
		if err != nil {
			problems = append(problems, explainRead(show(full), err))
			continue
		}
		if bytes.Contains(content, []byte(steering)) {
			return nil, false, nil
		}
		resources, err := factory.SliceFromBytes(content)
		if err != nil {
			problems = append(problems, cmp.Or(malformed(show(full), content),
				error(refusal("%s cannot be read", show(full)).Because(brief(err)))))
		}
		for _, r := range resources {
			id := r.CurId()
			id.Namespace = id.EffectiveNamespace()
			if was, again := seen[id]; again && was != r.GetNamespace() {
				return nil, false, nil // the same to kustomize, which takes no namespace for "default"
			}
			seen[id] = r.GetNamespace()
			// as kustomize does: values become strings, and an empty map is removed
			_ = r.SetAnnotations(r.GetAnnotations())
			if k.Namespace != "" && !movable[kinds.FromAPIVersionAndKind(r.GetApiVersion(), r.GetKind()).GroupKind()] {
				return nil, false, nil
			}
			text, err := asJSON(r)
			named := identity{kind: r.GetKind(), namespace: r.GetNamespace(), name: r.GetName()}
			object, err := f.object(named, text, err)
			if err != nil && f.refused != nil {
				return nil, true, f.explain(err)
			}
			problems = append(problems, err)
			if object != nil && k.Namespace != "" {
				object.SetNamespace(k.Namespace)
			}
			objects, files[object] = append(objects, object), show(full)
		}
	}
	if join(problems) == nil {
		f.origins.files = files
		return objects, true, nil
	}
	if found := join(f.wrongFiles()); found != nil {
		return nil, true, found
	}
	return nil, true, join(problems)
}

// asJSON is MarshalJSON of a resource without its detour: that writes the object as YAML first, and parses it again. It
// is for objects as they were parsed: a replacement by kustomize can leave a text with the tag of a number, which this
// cannot decode, but which the detour reads as a text.
func asJSON(r *resource.Resource) ([]byte, error) {
	content := map[string]any{}
	if err := r.YNode().Decode(&content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// steering is part of the names of annotations that change how kustomize processes an object.
const steering = "config.kubernetes.io/"

// movable is the set of kinds for which a change of the namespace changes only metadata.namespace.
var movable = map[kinds.GroupKind]bool{
	{Kind: "ConfigMap"}: true, {Kind: "Secret"}: true, {Kind: "Service"}: true, {Kind: "ServiceAccount"}: true,
	{Kind: "PersistentVolumeClaim"}:     true,
	{Group: "apps", Kind: "Deployment"}: true, {Group: "apps", Kind: "StatefulSet"}: true,
	{Group: "apps", Kind: "DaemonSet"}: true,
	{Group: "batch", Kind: "Job"}:      true, {Group: "batch", Kind: "CronJob"}: true,
	{Group: "policy", Kind: "PodDisruptionBudget"}: true,
	{Group: "networking.k8s.io", Kind: "Ingress"}:  true, {Group: "networking.k8s.io", Kind: "NetworkPolicy"}: true,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: true,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:      true,
}

// lister collects the files that plain kustomizations list.
type lister struct {
	*filesystem
	within    map[string]bool // directories that are being listed, to detect cycles
	manifests []string        // full paths
}

// list reports whether the kustomization and all its bases only list files.
func (l *lister) list(dir string, k *types.Kustomization) bool {
	if !onlyLists(k) || l.within[dir] || !l.one(dir) {
		return false
	}
	l.within[dir] = true
	defer delete(l.within, dir)
	for _, r := range k.Resources {
		full := path.Join(mount, dir, r)
		if !l.IsDir(full) {
			l.manifests = append(l.manifests, full)
			continue
		}
		real, base := l.base(full)
		if base == nil || len(base.Resources) == 0 || !l.list(real, base) {
			return false
		}
	}
	return true
}

// base reads the kustomization of a directory; it is nil if it cannot be read.
func (l *lister) base(full string) (dir string, k *types.Kustomization) {
	name, err := inside(full)
	if err != nil {
		return "", nil
	}
	if dir, err = l.trace.resolve(l.tree, name); err != nil {
		return "", nil
	}
	k = &types.Kustomization{}
	for _, n := range konfig.RecognizedKustomizationFileNames() {
		if file := path.Join(mount, dir, n); l.Exists(file) {
			content, err := l.ReadFile(file)
			if err != nil || k.Unmarshal(content) != nil {
				return "", nil
			}
			break
		}
	}
	k.FixKustomization()
	if len(k.EnforceFields()) > 0 {
		return "", nil
	}
	return dir, k
}

// one reports whether there is exactly one kustomization file in a directory.
func (l *lister) one(dir string) bool {
	found := 0
	for _, n := range konfig.RecognizedKustomizationFileNames() {
		if l.Exists(path.Join(mount, dir, n)) {
			found++
		}
	}
	return found == 1
}

// onlyLists reports whether a kustomization only lists resources.
func onlyLists(k *types.Kustomization) bool {
	bare := types.Kustomization{TypeMeta: k.TypeMeta, MetaData: k.MetaData, Resources: k.Resources}
	return k.Kind == types.KustomizationKind && reflect.DeepEqual(*k, bare)
}
