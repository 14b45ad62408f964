package alert

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
)

// documentOf is an Alert or a Provider as spec.commitStatusExpr reads it; nil of what is not there.
func documentOf(kind string, obj client.Object) map[string]any {
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil // an expression that reads it says so
	}
	document["apiVersion"], document["kind"] = v1beta3.GroupVersion.String(), kind // the cache leaves them out
	return document
}
