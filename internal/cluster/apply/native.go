package apply

import (
	"errors"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// builtIn has the Go types of the built-in kinds. It is our own, since libraries add kinds to the one of client-go.
var builtIn = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

// nativeForm returns an object of a built-in kind as its Go type encodes it, and the paths of the fields that the type
// does not have. Flux applies objects in this form, so that it owns fields that the type always encodes, such as
// spec.strategy of a Deployment, and not those that it leaves out, such as an empty list. With the same form, an object
// that Flux applied does not change. It returns nil for other kinds, and for objects that do not fit their type: the
// API server says what is wrong with them. It may modify the object.
func nativeForm(o *unstructured.Unstructured) (native *unstructured.Unstructured, unknown []string) {
	if !hasNativeForm(o) {
		return nil, nil
	}
	typed, err := builtIn.New(o.GroupVersionKind())
	if err != nil {
		return nil, nil // not a built-in kind
	}
	if _, ok := typed.(metav1.Object); !ok {
		return nil, nil
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		return nil, nil
	}
	unknown = unknownFields(err)
	setProtocols(typed)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, nil
	}
	native = &unstructured.Unstructured{Object: fields}
	native.SetGroupVersionKind(o.GroupVersionKind())
	unstructured.RemoveNestedField(native.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(native.Object, "status")
	return native, unknown
}

// UnknownField is a field of a declared object that its kind does not have.
type UnknownField struct {
	Path  string // such as spec.template.spec.containers[0].resource
	Where string // its file and line; only the file, or "", if that is not known
}

// String returns the path and the place.
func (f UnknownField) String() string {
	if f.Where == "" {
		return f.Path
	}
	return f.Path + " in " + f.Where
}

// makeNative brings the objects that an apply compares into their native form. It costs nothing for those that are up
// to date. It returns an error if an object has unknown fields and the request refuses them.
func (r *run) makeNative() error {
	if !r.req.Native {
		return nil
	}
	var problems []error
	for _, s := range r.steps {
		if IsExcluded(s.manifest, r.req.Owner) || !r.req.Resync && r.lookup(r.req.Owner, s.object).upToDate {
			continue
		}
		s.makeNative(r.req)
		if r.req.StrictFields && len(s.unknown) > 0 {
			problems = append(problems, r.refuseUnknown(s))
		}
	}
	return refused(problems)
}

func (o *object) makeNative(req Request) {
	if !req.Native || o.isNative {
		return
	}
	native, unknown := nativeForm(o.manifest)
	if native != nil {
		o.manifest, o.unknown = native, unknown
	}
	o.isNative = true
}

func (r *run) refuseUnknown(s *step) error {
	var fields []string
	for _, f := range r.unknownFields(s) {
		fields = append(fields, f.String())
	}
	return problem("%s sets unknown fields: %s", s.ref, strings.Join(fields, ", ")).
		WithHint("Correct or remove them. %s does not have them in %s", s.ref.Kind, s.manifest.GetAPIVersion())
}

// unknownFields returns the fields that were left out of an object, also by the apply that it is up to date with.
func (r *run) unknownFields(s *step) (fields []UnknownField) {
	paths := s.unknown
	if r.req.Native && !s.isNative {
		paths = r.lookup(r.req.Owner, s.object).leftOut
	}
	for _, p := range paths {
		f := UnknownField{Path: p}
		if r.req.Locate != nil {
			f.Where = r.req.Locate(s.source, p)
		}
		fields = append(fields, f)
	}
	return fields
}

// UnknownFields returns the paths of the fields that an object's built-in kind does not have.
func UnknownFields(o *unstructured.Unstructured) []string {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "status")
	_, unknown := nativeForm(o)
	return unknown
}

// hasNativeForm reports whether objects of a kind are converted. Roles are not, as in Flux: the type would drop a
// mistyped field that limits a rule, such as resourceName.
func hasNativeForm(o *unstructured.Unstructured) bool {
	isRole := o.GetKind() == "Role" || o.GetKind() == "ClusterRole"
	return !isRole || o.GroupVersionKind().Group != rbacv1.GroupName
}

// unknownFields returns the paths that a strict decoding error names.
func unknownFields(err error) (paths []string) {
	strict, _ := errors.AsType[interface {
		error
		Errors() []error
	}](err)
	if strict == nil {
		return nil
	}
	for _, e := range strict.Errors() {
		path, _ := strings.CutPrefix(e.Error(), `unknown field "`)
		paths = append(paths, strings.TrimSuffix(path, `"`))
	}
	return slices.Compact(paths)
}

// setProtocols sets the default protocol of ports, which is part of the merge key of their lists. Without it, the API
// server does not find a port that it has applied:
// https://github.com/kubernetes-sigs/structured-merge-diff/issues/130.
func setProtocols(typed runtime.Object) {
	switch o := typed.(type) {
	case *corev1.Pod:
		setPodProtocols(&o.Spec)
	case *appsv1.Deployment:
		setPodProtocols(&o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		setPodProtocols(&o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		setPodProtocols(&o.Spec.Template.Spec)
	case *appsv1.ReplicaSet:
		setPodProtocols(&o.Spec.Template.Spec)
	case *batchv1.Job:
		setPodProtocols(&o.Spec.Template.Spec)
	case *batchv1.CronJob:
		setPodProtocols(&o.Spec.JobTemplate.Spec.Template.Spec)
	case *corev1.Service:
		for n := range o.Spec.Ports {
			if o.Spec.Ports[n].Protocol == "" {
				o.Spec.Ports[n].Protocol = corev1.ProtocolTCP
			}
		}
	}
}

func setPodProtocols(spec *corev1.PodSpec) {
	for _, c := range spec.Containers {
		for n := range c.Ports {
			if c.Ports[n].Protocol == "" {
				c.Ports[n].Protocol = corev1.ProtocolTCP
			}
		}
	}
}
