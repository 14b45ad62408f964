package values_test

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// objects is a namespace 'team' with one ConfigMap and one Secret, both named 'app'.
type objects struct {
	config, secret, binary map[string]string
	files                  map[string]string // of GitRepository 'env/site'; those in sealed are encrypted
	sealed                 map[string]string
	err                    error
}

func (o objects) File(_ context.Context, ref meta.ValuesReference, _ *redact.Placeholders) (*values.File, error) {
	if ref.Name == "new" {
		return nil, values.ErrNoArtifact
	}
	if ref.Kind != "GitRepository" || ref.Namespace != "env" || ref.Name != "site" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "gitrepositories"}, ref.Name)
	}
	if text, ok := o.sealed[ref.Path]; ok {
		return &values.File{Content: text, Secrets: []string{"hunter2"}, IsSecret: true}, nil
	}
	text, ok := o.files[ref.Path]
	if !ok {
		return nil, &fs.PathError{Op: "read", Path: ref.Path, Err: fs.ErrNotExist}
	}
	return &values.File{Content: text}, nil
}

func file(path, target string) meta.ValuesReference {
	return meta.ValuesReference{Kind: "GitRepository", Namespace: "env", Name: "site", Path: path, TargetPath: target}
}

// TestFiles checks the order of files among other values, and what their errors say.
func TestFiles(t *testing.T) {
	in := objects{config: map[string]string{"values.yaml": "a: 1\nm: {x: 1, z: 1}\n"},
		files: map[string]string{"prod.yaml": "m: {x: 2}\nb: 2\n", "tag": "v1", "broken.yaml": "a: 1\nb: c: d\n",
			"bin": "a\x00b"},
		sealed: map[string]string{"secret.yaml": "pass: hunter2\nuser: admin\n", "bad.yaml": "a: 1\nhunter2: b: c\n"}}
	optional := file("none.yaml", "")
	optional.Optional = true
	elsewhere := file("a", "")
	elsewhere.Name, elsewhere.Optional = "other", true
	got, err := values.Compose(t.Context(), in, "team", []meta.ValuesReference{file("prod.yaml", ""), config("", ""),
		file("tag", "image.tag"), optional, elsewhere, file("secret.yaml", "")},
		&apiextensionsv1.JSON{Raw: []byte(`{"b": 3}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := table{"a": 1.0, "b": 3.0, "m": table{"x": 1.0, "z": 1.0}, "image": table{"tag": "v1"}, "pass": "hunter2",
		"user": "admin"}
	if !reflect.DeepEqual(got.Values, want) || !reflect.DeepEqual(got.Secrets, []string{"hunter2"}) {
		t.Errorf("the values are %#v, the secrets %q", got.Values, got.Secrets)
	}
	missing, fresh := file("a", ""), file("a", "")
	missing.Name, fresh.Name = "other", "new"
	keyed, noPath, unlike := file("a", ""), file("", ""), config("", "")
	keyed.ValuesKey, unlike.Path = "k", "a"
	for want, ref := range map[string]meta.ValuesReference{
		"[0] (GitRepository 'env/site', file 'broken.yaml'): line 2: invalid YAML": file("broken.yaml", ""),
		"line 2: invalid YAML": file("bad.yaml", ""),
		"the artifact has no such file. Correct path, or set optional: true": file("none.yaml", ""),
		"Create it in namespace 'env', or set optional: true":                missing,
		"it has no artifact yet":                                        fresh,
		"the file holds binary data":                                    file("bin", ""),
		"valuesKey is for ConfigMaps and Secrets. Remove it":            keyed,
		"path is missing. Set path to the file in the artifact":         noPath,
		"for sources. Remove them, or set kind to one of GitRepository": unlike,
	} {
		_, err := values.Compose(t.Context(), in, "team", []meta.ValuesReference{ref}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func (o objects) missing(resource string, key types.NamespacedName) error {
	if o.err != nil {
		return o.err
	}
	if key != (types.NamespacedName{Namespace: "team", Name: "app"}) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, key.Name)
	}
	return nil
}

func (o objects) ConfigMap(_ context.Context, key types.NamespacedName) (*corev1.ConfigMap, error) {
	c := &corev1.ConfigMap{Data: o.config, BinaryData: map[string][]byte{}}
	for k, v := range o.binary {
		c.BinaryData[k] = []byte(v)
	}
	return c, o.missing("configmaps", key)
}

func (o objects) Secret(_ context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	s := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range o.secret {
		s.Data[k] = []byte(v)
	}
	return s, o.missing("secrets", key)
}

func config(key, path string) meta.ValuesReference {
	return meta.ValuesReference{Kind: "ConfigMap", Name: "app", ValuesKey: key, TargetPath: path}
}

func secret(key, path string) meta.ValuesReference {
	return meta.ValuesReference{Kind: "Secret", Name: "app", ValuesKey: key, TargetPath: path}
}

type table = map[string]any

func TestCompose(t *testing.T) {
	in := objects{
		config: map[string]string{"values.yaml": "a: 1\nm: {x: 1, z: 1}\nlist: [1, 2]\nkeep: yes\n", "empty": "",
			"number": "5", "text": "'5'", "commas": "a,b={c}", "two": "1,other=2"},
		secret: map[string]string{"values.yaml": "m: {z: 2}\nlist: [3]\nnone: null\n", "password": "hunter2"},
	}
	literal := config("commas", "m.text")
	literal.Literal = true
	optional := meta.ValuesReference{Kind: "Secret", Name: "none", Optional: true}
	optionalKey := config("none", "")
	optionalKey.Optional = true
	tests := map[string]struct {
		refs   []meta.ValuesReference
		inline string
		want   table
	}{
		"nothing":     {want: table{}},
		"inline only": {inline: `{"a": {"b": 1}, "c": 2.5}`, want: table{"a": table{"b": 1.0}, "c": 2.5}},
		"null inline": {inline: `null`, want: table{}},
		"order": {refs: []meta.ValuesReference{config("", ""), secret("", "")}, inline: `{"m": {"x": 3}}`,
			want: table{"a": 1.0, "m": table{"x": 3.0, "z": 2.0}, "list": []any{3.0}, "keep": true, "none": nil}},
		"later replaces earlier": {refs: []meta.ValuesReference{secret("", ""), config("", "")},
			want: table{"a": 1.0, "m": table{"x": 1.0, "z": 1.0}, "list": []any{1.0, 2.0}, "keep": true, "none": nil}},
		"empty document":  {refs: []meta.ValuesReference{config("empty", "")}, want: table{}},
		"optional object": {refs: []meta.ValuesReference{optional}, want: table{}},
		"optional key":    {refs: []meta.ValuesReference{optionalKey}, want: table{}},
		"target path": {refs: []meta.ValuesReference{secret("password", "db.auth.password")},
			want: table{"db": table{"auth": table{"password": "hunter2"}}}},
		"number":        {refs: []meta.ValuesReference{config("number", "n")}, want: table{"n": int64(5)}},
		"quoted number": {refs: []meta.ValuesReference{config("text", "n")}, want: table{"n": "5"}},
		"literal":       {refs: []meta.ValuesReference{literal}, want: table{"m": table{"text": "a,b={c}"}}},
		"two values": {refs: []meta.ValuesReference{config("two", "one")},
			want: table{"one": int64(1), "other": int64(2)}},
		"index": {refs: []meta.ValuesReference{config("number", "l[1].n")},
			want: table{"l": []any{nil, table{"n": int64(5)}}}},
		"escaped dot": {refs: []meta.ValuesReference{config("number", `a\.b`)}, want: table{"a.b": int64(5)}},
		"inline wins": {refs: []meta.ValuesReference{config("number", "n")}, inline: `{"n": 7}`,
			want: table{"n": 7.0}},
		"target path wins": {refs: []meta.ValuesReference{config("number", "m.n")},
			inline: `{"m": {"n": 7}}`, want: table{"m": table{"n": int64(5)}}},
		"map of a document": {refs: []meta.ValuesReference{config("", ""), config("number", "m.x")},
			inline: `{"m": {"x": 7}}`, want: table{"a": 1.0, "m": table{"x": 7.0, "z": 1.0},
				"list": []any{1.0, 2.0}, "keep": true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := values.Compose(t.Context(), in, "team", test.refs,
				&apiextensionsv1.JSON{Raw: []byte(test.inline)})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Values, test.want) {
				t.Errorf("the values are %#v, want %#v", got.Values, test.want)
			}
		})
	}
}

func TestOrigins(t *testing.T) {
	in := objects{
		config: map[string]string{"values.yaml": "a: 1\nm: {x: 1, z: 1}\nlist: [1, 2]\n", "n": "5"},
		secret: map[string]string{"password": "hunter2"},
	}
	refs := []meta.ValuesReference{config("", ""), secret("password", `m.pass\.word`), config("n", "list[0]")}
	_, got, err := values.Trace(t.Context(), in, "team", refs,
		&apiextensionsv1.JSON{Raw: []byte(`{"m": {"x": 2}, "e": {}}`)})
	if err != nil {
		t.Fatal(err)
	}
	document := "ConfigMap 'team/app', key 'values.yaml'"
	want := []values.Origin{
		{Path: "a", From: document},
		{Path: "e", From: "spec.values"},
		{Path: "list", From: document},
		{Path: "list", From: "ConfigMap 'team/app', key 'n', target path list[0]"},
		{Path: `m.pass\.word`, From: `Secret 'team/app', key 'password', target path m.pass\.word`, Secret: true},
		{Path: "m.x", From: "spec.values"},
		{Path: "m.z", From: document},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the origins are\n%v\nwant\n%v", got, want)
	}
}

func TestErrors(t *testing.T) {
	in := objects{
		config: map[string]string{"list": "[1]", "broken": "a: 1\nb: c: d\n", "values.yaml": "m: 1"},
		secret: map[string]string{"broken": "ok: 1\nhunter2: &a [*hunter2]\n", "text": "hunter2", "binary": "\xff\x00",
			"control": "a\x00b", "commas": "p,hunter2", "type": "hunter2: !!int hunter2x\n", "set": "hunter2}"},
		binary: map[string]string{"blob": "x"},
	}
	tests := map[string]struct {
		ref    meta.ValuesReference
		inline string
		want   []string
	}{
		"missing object": {ref: meta.ValuesReference{Kind: "Secret", Name: "none"},
			want: []string{"spec.valuesFrom[0] (Secret 'team/none', key 'values.yaml'): the Secret does not " +
				"exist. Create it in namespace 'team', or set optional: true"}},
		"missing key": {ref: config("no", ""),
			want: []string{"(ConfigMap 'team/app', key 'no'): the ConfigMap has no such key. " +
				"Its keys are: broken, list, values.yaml"}},
		"list": {ref: config("list", ""),
			want: []string{"key 'list'): invalid YAML: the content is not a map"}},
		"broken": {ref: config("broken", ""),
			want: []string{"key 'broken'): line 2: invalid YAML: mapping values are not allowed"}},
		"broken secret": {ref: secret("broken", ""), want: []string{"key 'broken'): ", "invalid YAML: "}},
		"secret text":   {ref: secret("text", ""), want: []string{"the content is not a map", "set targetPath"}},
		"wrong type": {ref: secret("type", ""), want: []string{"invalid YAML: the content cannot be " +
			"parsed. The key must hold a map, such as 'replicas: 2'; for a single value set targetPath"}},
		"binary secret": {ref: secret("binary", ""), want: []string{"key 'binary'): the key holds binary " +
			"data. Values are text in UTF-8"}},
		"control characters": {ref: secret("control", "x"), want: []string{"binary data"}},
		"binary config":      {ref: config("blob", ""), want: []string{"binary data"}},
		"comma": {ref: secret("commas", "x"),
			want: []string{"cannot be set at targetPath 'x': ',' at character 2 has a meaning",
				"Set literal: true to take the value as it is"}},
		"index into text": {ref: config("values.yaml", "m[0].x"), inline: `{"m": "text"}`,
			want: []string{"cannot be set at targetPath 'm[0].x': the path does not fit the values so far, or " +
				"the value is not in the syntax of --set. Check the path: names separated by dots, and indexes " +
				"such as [0] for lists"}},
		"kind": {ref: meta.ValuesReference{Kind: "Pod", Name: "x"},
			want: []string{"kind 'Pod' is not supported. Use ConfigMap, Secret, GitRepository"}},
		"inline: list": {ref: config("values.yaml", ""), inline: `[1]`, want: []string{
			"spec.values is not a map. Write it as 'key: value'"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := values.Compose(t.Context(), in, "team", []meta.ValuesReference{test.ref},
				&apiextensionsv1.JSON{Raw: []byte(test.inline)})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message lacks %q: %s", want, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the message shows a Secret: %s", err)
			}
		})
	}
}

// TestAliasesInValues has values of less than 1 MiB whose aliases stand for gigabytes of text.
func TestAliasesInValues(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 400_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"
	for _, ref := range []meta.ValuesReference{config("", ""), secret("", "")} {
		in := objects{config: map[string]string{"values.yaml": text}, secret: map[string]string{"values.yaml": text}}
		_, err := values.Compose(t.Context(), in, "team", []meta.ValuesReference{ref}, nil)
		if err == nil || !strings.Contains(err.Error(), "its aliases stand for more than 4 MiB of text") {
			t.Errorf("%s: the error is %.300v", ref.Kind, err)
		}
	}
}

func TestUnreadableObject(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "app", errors.New("no"))
	optional := secret("", "")
	optional.Optional = true
	_, err := values.Compose(t.Context(), objects{err: forbidden}, "team", []meta.ValuesReference{optional}, nil)
	if err == nil || !strings.Contains(err.Error(),
		"(Secret 'team/app', key 'values.yaml'): the Secret cannot be read: ") {
		t.Errorf("the error is %v: an optional reference only allows what does not exist", err)
	}
}
