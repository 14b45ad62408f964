package testenv

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// TypedForm encodes an object with encoding/json by the type of client-go, as a client with Go types does. It is
// written apart from what Sluice does. Roles are as they are declared.
func TypedForm(t testing.TB, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	typed, err := scheme.Scheme.New(o.GroupVersionKind())
	if runtime.IsNotRegisteredError(err) || strings.HasSuffix(o.GetKind(), "Role") {
		return o
	}
	data, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(data, typed)
	}
	if err == nil {
		data, err = json.Marshal(typed)
	}
	out := &unstructured.Unstructured{}
	if err == nil {
		err = yaml.Unmarshal(data, &out.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	setProtocols(out.Object)
	if plain, ok, _ := unstructured.NestedStringMap(out.Object, "stringData"); ok {
		for key, value := range plain {
			data, _ := json.Marshal([]byte(value))
			_ = unstructured.SetNestedField(out.Object, strings.Trim(string(data), `"`), "data", key)
		}
		delete(out.Object, "stringData")
	}
	return out
}

// setProtocols sets the protocol of every port of a container or a Service.
func setProtocols(v any) {
	switch v := v.(type) {
	case map[string]any:
		_, isContainer := v["containerPort"]
		_, isPort := v["port"].(int64)
		_, isFloat := v["port"].(float64)
		if _, ok := v["protocol"]; !ok && (isContainer || (isPort || isFloat) && v["targetPort"] != nil) {
			v["protocol"] = "TCP"
		}
		for _, item := range v {
			setProtocols(item)
		}
	case []any:
		for _, item := range v {
			setProtocols(item)
		}
	}
}
