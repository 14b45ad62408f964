// Package values composes the values of a Helm release from ConfigMaps, Secrets and the spec, in the order that
// Flux and Helm use.
package values

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/strvals"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// File is a file of the artifact of a source.
type File struct {
	Content string
	Secrets []string // its values that were encrypted
	// IsSecret reports whether the file was encrypted.
	IsSecret bool
}

// ErrNoArtifact is wrapped by the error of a source that has no artifact yet.
var ErrNoArtifact = errors.New("it has no artifact yet")

// Reader reads the objects and files that valuesFrom refers to.
type Reader interface {
	// File reads a file of a source. Encrypted values become placeholders unless they are nil. The error wraps
	// [fs.ErrNotExist] if the artifact has no such file.
	File(ctx context.Context, ref meta.ValuesReference, p *redact.Placeholders) (*File, error)
	ConfigMap(ctx context.Context, key types.NamespacedName) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error)
}

const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
)

// Composed is what [Compose] returns.
type Composed struct {
	Values  map[string]any
	Secrets []string     // texts that come from Secrets, for output that must not show them
	Memory  *guard.Lease // of the above; release it when they are no longer used
	// Warnings are about values that probably do not mean what they say. They contain nothing of Secrets.
	Warnings []string
}

// Compose merges the values of refs in their order, then inline. A value at a target path also takes precedence over
// inline if its parent is a map that only inline sets, as in Flux: a release that is taken over must keep its values.
// An error names the reference, the key and the position, and no content of a Secret. It is a fault of the budget of
// ctx if the values need too much memory.
func Compose(ctx context.Context, read Reader, namespace string, refs []meta.ValuesReference,
	inline *apiextensionsv1.JSON) (*Composed, error) {
	c := &composer{read: read, namespace: namespace}
	if err := c.compose(ctx, refs, inline); err != nil {
		c.memory.Release()
		return nil, err
	}
	return &Composed{Values: c.result, Secrets: c.secrets, Memory: c.memory, Warnings: c.warnings}, nil
}

// Trace composes values as [Compose] does, and says where each of them came from.
func Trace(ctx context.Context, read Reader, namespace string, refs []meta.ValuesReference,
	inline *apiextensionsv1.JSON) (map[string]any, []Origin, error) {
	c := &composer{read: read, namespace: namespace, isTraced: true}
	err := c.compose(ctx, refs, inline)
	defer c.memory.Release()
	if err != nil {
		return nil, nil, err
	}
	found, err := c.origins(ctx)
	return c.result, found, err
}

func decodeInline(inline *apiextensionsv1.JSON) (map[string]any, error) {
	values := map[string]any{}
	if inline == nil || len(inline.Raw) == 0 {
		return values, nil
	}
	if err := json.Unmarshal(inline.Raw, &values); err != nil {
		return nil, fault.New("", "spec.values is not a map").WithHint("Write it as 'key: value'").Final()
	}
	return values, nil
}

// source is an entry of valuesFrom.
type source struct {
	ref       meta.ValuesReference
	namespace string
	position  string // in the spec
	isSecret  bool   // its content is not shown
}

func (s source) String() string {
	if s.ref.IsFile() {
		return fmt.Sprintf("%s '%s/%s', file '%s'", s.ref.Kind, s.namespace, s.ref.Name, s.ref.Path)
	}
	return fmt.Sprintf("%s '%s/%s', key '%s'", s.ref.Kind, s.namespace, s.ref.Name, s.ref.GetValuesKey())
}

func (s source) fault(format string, args ...any) *fault.Fault {
	return fault.New("", "%s (%s): %s", s.position, s, fmt.Sprintf(format, args...))
}

// read returns the content of the key, and the data of a Secret. It is not found if the reference is optional and the
// object or key is missing.
func (s source) read(ctx context.Context, read Reader) (content string, data map[string][]byte, found bool,
	err error) {
	key := types.NamespacedName{Namespace: s.namespace, Name: s.ref.Name}
	var keys []string
	var binary bool
	switch s.ref.Kind {
	case kindSecret:
		var secret *corev1.Secret
		if secret, err = read.Secret(ctx, key); err == nil {
			data = secret.Data
			content, found, keys = lookUp(data, s.ref.GetValuesKey())
		}
	case kindConfigMap:
		var config *corev1.ConfigMap
		if config, err = read.ConfigMap(ctx, key); err == nil {
			content, found, keys = lookUp(config.Data, s.ref.GetValuesKey())
			_, binary = config.BinaryData[s.ref.GetValuesKey()]
		}
	}
	switch {
	case apierrors.IsNotFound(err) && s.ref.Optional:
		return "", nil, false, nil
	case apierrors.IsNotFound(err):
		return "", nil, false, s.fault("the %s does not exist", s.ref.Kind).
			WithHint("Create it in namespace '%s', or set optional: true", s.namespace)
	case err != nil:
		return "", nil, false, s.fault("the %s cannot be read", s.ref.Kind).Because(err)
	case binary || found && !isText(content):
		return "", nil, false, s.fault("the key holds binary data").WithHint("Values are text in UTF-8").Final()
	case !found && !s.ref.Optional:
		return "", nil, false, s.fault("the %s has no such key", s.ref.Kind).
			WithHint("Its keys are: %s", keyList(keys))
	}
	return content, data, found, nil
}

// fileKinds are the sources whose files can hold values.
var fileKinds = []string{"GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"}

// checkFields checks that the fields of an entry fit its kind.
func (s source) checkFields() error {
	switch {
	case !s.ref.IsFile() && (s.ref.Path != "" || s.ref.Namespace != ""):
		return s.fault("path and namespace are for sources").
			WithHint("Remove them, or set kind to one of %s", strings.Join(fileKinds, ", ")).Final()
	case !s.ref.IsFile():
		return nil
	case !slices.Contains(fileKinds, s.ref.Kind):
		return s.fault("kind '%s' is not supported", s.ref.Kind).
			WithHint("Use ConfigMap, Secret, %s", strings.Join(fileKinds, ", ")).Final()
	case s.ref.Path == "":
		return s.fault("path is missing").WithHint("Set path to the file in the artifact").Final()
	case s.ref.ValuesKey != "":
		return s.fault("valuesKey is for ConfigMaps and Secrets").WithHint("Remove it").Final()
	}
	return nil
}

// readFile returns the content of a file. It is nil if the reference is optional and the source or file is missing.
func (s source) readFile(ctx context.Context, read Reader) (*File, error) {
	file, err := read.File(ctx, s.ref, nil)
	var f *fault.Fault
	switch {
	case err == nil && !isText(file.Content):
		return nil, s.fault("the file holds binary data").WithHint("Values are text in UTF-8").Final()
	case err == nil:
		return file, nil
	case s.ref.Optional && (apierrors.IsNotFound(err) || errors.Is(err, fs.ErrNotExist)):
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, s.fault("the %s does not exist", s.ref.Kind).
			WithHint("Create it in namespace '%s', or set optional: true", s.namespace)
	case errors.Is(err, fs.ErrNotExist):
		return nil, s.fault("the artifact has no such file").WithHint("Correct path, or set optional: true")
	case errors.As(err, &f) && f.Reason == meta.AccessDeniedReason:
		return nil, err
	}
	return nil, s.fault("the file cannot be read").Because(err)
}

// lookUp returns the value of a key, and all keys.
func lookUp[T string | []byte](data map[string]T, key string) (content string, found bool, keys []string) {
	for k := range data {
		keys = append(keys, k)
	}
	value, found := data[key]
	return string(value), found, keys
}

func isText(content string) bool {
	if !utf8.ValidString(content) {
		return false
	}
	return !strings.ContainsFunc(content, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}

// holder is what holds the values of an entry.
func (s source) holder() string {
	if s.ref.IsFile() {
		return "file"
	}
	return "key"
}

// document parses the content of a key or file without target path.
func (s source) document(content string) (map[string]any, error) {
	if err := yamlsize.Check([]byte(content)); err != nil {
		return nil, s.fault("%s", err).Final()
	}
	values, err := common.ReadValues([]byte(content))
	if err != nil {
		place, reason := yamlProblem(err, s.isSecret)
		return nil, s.fault("%sinvalid YAML: %s", place, reason).
			WithHint("The %s must hold a map, such as 'replicas: 2'; for a single value set targetPath", s.holder())
	}
	return values, nil
}

// set merges the content of a key with a target path into values.
func (s source) set(content string, values map[string]any) (err error) {
	defer func() { // for example a map where the path has an index
		if recover() != nil {
			err = s.pathFault(content)
		}
	}()
	switch text := content; {
	case s.ref.Literal:
		err = strvals.ParseLiteralInto(s.ref.TargetPath+"="+text, values)
	case isQuoted(text, "'") || isQuoted(text, `"`):
		err = strvals.ParseIntoString(s.ref.TargetPath+"="+strings.Trim(text, `'"`), values)
	default:
		err = strvals.ParseInto(s.ref.TargetPath+"="+text, values)
	}
	if err != nil { // its text contains parts of the value
		return s.pathFault(content)
	}
	return nil
}

// setsOthers returns a warning if content sets other values than that at the target path, such as 'dc=a,dc=b' does.
func (s source) setsOthers(content string) string {
	if s.ref.Literal || !strings.Contains(content, ",") || !strings.Contains(content, "=") {
		return ""
	}
	alone := map[string]any{}
	root, _, _ := strings.Cut(s.ref.TargetPath, ".")
	root, _, _ = strings.Cut(root, "[")
	if s.set(content, alone) != nil || alone[root] == nil || len(alone) == 1 {
		return ""
	}
	return fmt.Sprintf("%s: the value for targetPath '%s' sets other values too, because ',' and '=' have a meaning "+
		"in the syntax of --set. Set literal: true to take it as it is", s, s.ref.TargetPath)
}

func isQuoted(text, quote string) bool {
	return strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote)
}

// pathFault says why content cannot be set at the target path, without the content.
func (s source) pathFault(content string) error {
	f := s.fault("the value cannot be set at targetPath '%s'", s.ref.TargetPath)
	if strings.ContainsAny(s.ref.TargetPath, "[]") && !s.ref.Literal {
		f = f.Because(errors.New("the path does not fit the values so far, or the value is not in the syntax of --set"))
	}
	if at := strings.IndexAny(content, ",{}"); at >= 0 && !s.ref.Literal {
		return s.fault("the value cannot be set at targetPath '%s': '%c' at character %d has a meaning in the syntax "+
			"of --set", s.ref.TargetPath, content[at], utf8.RuneCountInString(content[:at])+1).
			WithHint("Set literal: true to take the value as it is").Final()
	}
	return f.WithHint("Check the path: names separated by dots, and indexes such as [0] for lists").Final()
}
