package build

import (
	"bytes"
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
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// decryptAnnotation is a label or an annotation. Its value "disabled" leaves an object encrypted.
var decryptAnnotation = kustomizev1.GroupVersion.Group + "/decrypt"

// disabled reports whether a label or an annotation of an object has the value "disabled".
func disabled(what string, labels, annotations map[string]string) bool {
	return strings.EqualFold(labels[what], "disabled") || strings.EqualFold(annotations[what], "disabled")
}

// secrets is the state of the decryption in a build.
type secrets struct {
	keys   *decrypt.Keys
	redact bool // replace encrypted values by *** instead of decrypting them
	// placeholders are used instead of ***; may be nil
	placeholders *redact.Placeholders
	redacted     bool              // something was redacted
	leave        map[string]bool   // files that stay encrypted
	plain        map[string][]byte // decrypted content, by file or by field and object
	values       []string          // decrypted values
	failed       []error           // decryption errors
	again        bool              // whether a key service failed
}

func (s *secrets) active() bool { return s.keys != nil || s.redact }

// decrypt decrypts a file when it is read, so that kustomize patches, generates and merges the decrypted content.
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

// decrypted decrypts content and records it by its location, where. If the content does not determine its format, name
// does.
func (f *filesystem) decrypted(where, name string, content []byte) ([]byte, error) {
	if f.secrets.redact {
		plain, err := decrypt.Redact(name, content, f.secrets.placeholders)
		f.secrets.redacted = f.secrets.redacted || !bytes.Equal(plain, content)
		return plain, err
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

// optsOut reports whether an object in a file is marked to stay encrypted.
func optsOut(content []byte) bool {
	if !strings.Contains(string(content), decryptAnnotation) {
		return false
	}
	out := false
	_ = documents(content, func(doc *yaml.Node) error { // a file that cannot be parsed has no marks
		var o struct {
			Metadata struct {
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
		}
		if yamlsize.Decode(doc, &o) == nil {
			out = out || disabled(decryptAnnotation, o.Metadata.Labels, o.Metadata.Annotations)
		}
		return nil
	})
	return out
}

// leaveEncrypted records the input files of generators whose objects stay encrypted.
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

// decryptValues decrypts values of Secrets that are files encrypted with SOPS.
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
	// the field of the Secret was encrypted, and is redacted already
	if f.secrets.redact && field == "data" && text == decrypt.Redacted {
		return base64.StdEncoding.EncodeToString([]byte(text)), nil
	}
	if field == "data" {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return text, nil // the API server reports it
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

// usesSecrets reports whether something in the build comes from a secret.
func (f *filesystem) usesSecrets(req Request) bool {
	return len(f.secrets.plain) > 0 || f.secrets.redacted || req.Substitution.hasSecrets()
}

// veiled builds again with placeholders for what comes from secrets. Nothing is decrypted.
func (f *filesystem) veiled(req Request) (*Result, error) {
	again := newFilesystem(f.ctx, req.Tree)
	again.remote = f.remote
	again.secrets = secrets{keys: f.secrets.keys, redact: f.secrets.active()}
	if f.secrets.redact {
		again.secrets.placeholders = redact.NewPlaceholders() // to find what is made of ***
	}
	req.Substitution = req.Substitution.withPlaceholders()
	return again.build(req)
}

// withoutSecrets builds again with placeholders, and returns the error of that build, which cannot contain a secret.
func (f *filesystem) withoutSecrets(req Request) error {
	if _, err := f.veiled(req); err != nil {
		return err
	}
	if len(f.secrets.plain) == 0 && !f.secrets.redacted {
		return refusal("the build fails because of variables from Secrets: %s. The error is not shown, because it may "+
			"contain a secret", strings.Join(slices.Sorted(maps.Keys(req.Substitution.Secret)), ", ")).
			WithHint("Check that their values fit where they are used")
	}
	return refusal("the build fails because of content decrypted from %s. The error is not shown, because it may "+
		"contain a secret",
		strings.Join(slices.Sorted(maps.Keys(f.secrets.plain)), ", ")).
		WithHint("Decrypt the files and run the build locally to see the error")
}

// veil returns what hides the secrets of a result.
func (f *filesystem) veil(req Request, result *Result) *redact.Veil {
	veil := &redact.Veil{Secrets: result.Secrets}
	if f.usesSecrets(req) {
		veil.Render = func() (objects, placeholders []*unstructured.Unstructured, err error) {
			veiled, err := f.veiled(req)
			return result.Objects, veiled.Objects, err
		}
	}
	return veil
}
