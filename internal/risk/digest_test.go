package risk

import "testing"

func deployment(fields map[string]any) map[string]any {
	o := map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "web", "resourceVersion": "1",
		"uid": "a", "generation": int64(1), "creationTimestamp": "2026-11-23T10:00:00Z"},
		"spec": map[string]any{"replicas": int64(1)}, "status": map[string]any{"replicas": int64(1)}}
	for k, v := range fields {
		o[k] = v
	}
	return o
}

// TestDigest checks that a digest stands for what is written, and not for what the API server sets.
func TestDigest(t *testing.T) {
	change := func(edit func(*Change)) string {
		c := &Change{Owner: Owner{Kind: "Kustomization", Namespace: "apps", Name: "web"}, Revision: "main@sha1:a",
			Objects: []Object{{Action: Configured, Kind: "Deployment", Name: "web", New: deployment(nil)}}}
		edit(c)
		return c.Digest()
	}
	same := change(func(*Change) {})
	for name, tc := range map[string]struct {
		edit func(*Change)
		want bool // the digest is the same
	}{
		"again": {edit: func(*Change) {}, want: true},
		"status": {edit: func(c *Change) {
			c.Objects[0].New = deployment(map[string]any{"status": map[string]any{"replicas": int64(2)}})
		}, want: true},
		"resource version": {edit: func(c *Change) {
			c.Objects[0].New = deployment(map[string]any{"metadata": map[string]any{"name": "web",
				"resourceVersion": "2"}})
		}, want: true},
		"spec": {edit: func(c *Change) {
			c.Objects[0].New = deployment(map[string]any{"spec": map[string]any{"replicas": int64(2)}})
		}},
		"action":   {edit: func(c *Change) { c.Objects[0].Action = Deleted }},
		"owner":    {edit: func(c *Change) { c.Owner.Name = "other" }},
		"revision": {edit: func(c *Change) { c.Revision = "main@sha1:b" }},
		"more": {edit: func(c *Change) {
			c.Objects = append(c.Objects, Object{Action: Created, Kind: "Role", Name: "x"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := change(tc.edit) == same; got != tc.want {
				t.Errorf("the digest is the same: %t, want %t", got, tc.want)
			}
		})
	}
}
