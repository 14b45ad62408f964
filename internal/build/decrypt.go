package build

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/decrypt"
)

// decryptAnnotation set to disabled, as a label or an annotation, leaves an object encrypted.
var decryptAnnotation = kustomizev1.GroupVersion.Group + "/decrypt"

// disabled tells whether an object opts out.
func disabled(what string, labels, annotations map[string]string) bool {
	return strings.EqualFold(labels[what], "disabled") || strings.EqualFold(annotations[what], "disabled")
}

// secrets is what a build decrypts.
type secrets struct {
	keys   *decrypt.Keys
	redact bool              // put *** in place of what would be decrypted
	leave  map[string]bool   // files that stay encrypted
	plain  map[string][]byte // what was decrypted, by file; what was in objects by the object
	values []string          // those that were encrypted
	failed []error           // what could not be decrypted
	again  bool              // whether a key service failed
}

func (s *secrets) active() bool { return s.keys != nil || s.redact }

// decrypt decrypts a file as it is read, so that kustomize patches, generates and merges what it is about.
func (f *filesystem) decrypt(name string, content []byte) ([]byte, error) {
	if plain, ok := f.secrets.plain[name]; ok {
		return plain, nil
	}
	if !f.secrets.active() || f.secrets.leave[name] || optsOut(content) {
		return content, nil
	}
	plain, err := f.decrypted(name, name, content)
	if err != nil {
		f.secrets.failed = append(f.secrets.failed, err)
	}
	return plain, err
}

// decrypted decrypts a content, and remembers it by where it stood; name decides over the format where it
// leaves it open.
func (f *filesystem) decrypted(where, name string, content []byte) ([]byte, error) {
	if f.secrets.redact {
		return decrypt.Redact(name, content)
	}
	plain, err := f.secrets.keys.File(f.ctx, name, content)
	switch {
	case err != nil:
		f.secrets.again = f.secrets.again || errors.Is(err, decrypt.ErrService)
		return nil, err
	case plain == nil:
		return content, nil
	case f.secrets.plain == nil:
		f.secrets.plain = map[string][]byte{}
	}
	f.secrets.plain[where] = plain.Content
	f.secrets.values = append(f.secrets.values, plain.Secrets...)
	return plain.Content, nil
}

// optsOut tells whether an object in a file says that it stays encrypted.
func optsOut(content []byte) bool {
	if !strings.Contains(string(content), decryptAnnotation) {
		return false
	}
	out := false
	_ = documents(content, func(doc *yaml.Node) error { // what cannot be read says nothing
		var o struct {
			Metadata struct {
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
		}
		if doc.Decode(&o) == nil {
			out = out || disabled(decryptAnnotation, o.Metadata.Labels, o.Metadata.Annotations)
		}
		return nil
	})
	return out
}

// leaveEncrypted notes the inputs of generators whose objects stay encrypted.
func (f *filesystem) leaveEncrypted(k *types.Kustomization, dir string) {
	leave := func(options *types.GeneratorOptions, sources types.KvPairSources) {
		for _, o := range []*types.GeneratorOptions{options, k.GeneratorOptions} {
			if o == nil || !disabled(decryptAnnotation, o.Labels, o.Annotations) {
				continue
			}
			for _, name := range appendSources(nil, sources) {
				if f.secrets.leave == nil {
					f.secrets.leave = map[string]bool{}
				}
				f.secrets.leave[path.Join(dir, name)] = true
			}
		}
	}
	for _, g := range k.ConfigMapGenerator {
		leave(g.Options, g.KvPairSources)
	}
	for _, g := range k.SecretGenerator {
		leave(g.Options, g.KvPairSources)
	}
}

func isSecret(o *unstructured.Unstructured) bool {
	return o.GetAPIVersion() == "v1" && o.GetKind() == "Secret"
}

// decryptValues decrypts values of Secrets that are files which SOPS encrypted.
func (f *filesystem) decryptValues(objects []*unstructured.Unstructured) error {
	if !f.secrets.active() {
		return nil
	}
	var problems []error
	for _, o := range objects {
		if !isSecret(o) || disabled(decryptAnnotation, o.GetLabels(), o.GetAnnotations()) {
			continue
		}
		for _, field := range []string{"data", "stringData"} {
			values, ok := o.Object[field].(map[string]any)
			if !ok {
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(values)) {
				text, ok := values[key].(string)
				if !ok {
					continue
				}
				var err error
				values[key], err = f.decryptValue(o, field, key, text)
				problems = append(problems, err)
			}
		}
	}
	return join(problems)
}

func (f *filesystem) decryptValue(o *unstructured.Unstructured, field, key, text string) (string, error) {
	content := []byte(text)
	// in a Secret that was encrypted field by field
	if f.secrets.redact && field == "data" && text == decrypt.Redacted {
		return base64.StdEncoding.EncodeToString([]byte(text)), nil
	}
	if field == "data" {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return text, nil // the API server says so
		}
		content = raw
	}
	where := fmt.Sprintf("%s.%s of Secret/%s/%s", field, key, o.GetNamespace(), o.GetName())
	plain, err := f.decrypted(where, key, content)
	if err != nil {
		err = refusal("%s.%s of %s", field, key, f.show(o)).Because(err)
		f.secrets.failed = append(f.secrets.failed, err)
		return text, err
	}
	if field == "data" {
		return base64.StdEncoding.EncodeToString(plain), nil
	}
	return string(plain), nil
}

// withoutSecrets builds again with *** in place of what is decrypted, and returns what goes wrong then: an
// error that cannot hold a secret, since the build that it comes from knows none.
func (f *filesystem) withoutSecrets(req Request) error {
	again := newFilesystem(f.ctx, req.Tree)
	again.remote = f.remote
	again.secrets = secrets{keys: f.secrets.keys, redact: true}
	if _, err := again.build(req); err != nil {
		return err
	}
	return refusal("the build fails on something that is decrypted from %s. What is wrong is not told, as it may "+
		"hold a secret",
		strings.Join(slices.Sorted(maps.Keys(f.secrets.plain)), ", ")).
		WithHint("Build it with the decrypted files where nobody else sees them")
}
