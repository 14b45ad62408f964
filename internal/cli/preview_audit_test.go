package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// auditedKinds are the kinds of the objects of TestPreviewIsTrue, by resource.
var auditedKinds = map[string]string{"configmaps": "ConfigMap", "secrets": "Secret", "kustomizations": "Kustomization",
	"helmreleases": "HelmRelease"}

// applied returns what the audit log of the API server says was applied in a namespace, in the words of a preview: the
// requests of the field managers that apply objects, and all deletions, without dry-runs.
func applied(t *testing.T, log *testenv.AuditLog, namespace string) map[string]bool {
	t.Helper()
	last := map[string]risk.Action{}
	for _, r := range log.Requests(t, testenv.Request{Namespace: namespace}) {
		kind := auditedKinds[r.Resource]
		if kind == "" || r.Subresource != "" || r.Code >= http.StatusBadRequest ||
			strings.Contains(r.URI, "dryRun=") || strings.HasPrefix(r.Name, "sh.helm.release.") {
			continue
		}
		object := kind + "/" + r.Name
		isApply := strings.Contains(r.URI, "fieldManager="+apply.DefaultFieldManager) ||
			strings.Contains(r.URI, "fieldManager="+kube.FieldManager)
		switch {
		case r.Verb == "delete" && last[object] == risk.Created:
			delete(last, object)
		case r.Verb == "delete":
			last[object] = risk.Deleted
		case !isApply || r.Verb != "patch" && r.Verb != "create":
		case r.Code == http.StatusCreated && last[object] == risk.Deleted:
			last[object] = risk.Recreated
		case r.Code == http.StatusCreated:
			last[object] = risk.Created
		case last[object] == "":
			last[object] = risk.Configured
		}
	}
	out := map[string]bool{}
	for object, action := range last {
		out[fmt.Sprintf("%s %s", action, object)] = true
	}
	return out
}
