package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

func TestPendingShowsWhatChangesWithinBounds(t *testing.T) {
	const secret = "s3cr3t-registry"
	p := NewProposal(reconcile.Ref{}, 1, "main@sha1:1", nil, &redact.Veil{Secrets: []string{secret}})
	p.Planned = []apply.Change{
		{Ref: apply.Ref{Kind: "ConfigMap", Namespace: "a", Name: "b"}, Action: apply.Configured, Diff: "~ data.x"},
		{Ref: apply.Ref{Kind: "ConfigMap", Namespace: "a", Name: "new"}, Action: apply.Created},
	}
	o := risk.Object{Action: risk.Configured, Images: []risk.Image{{New: "web:2"}, {New: "api:1"}, {New: "web:2"},
		{Old: "gone:1"}, {New: secret + "/x:1"}}}
	p.Change.Objects = []risk.Object{o}
	got := p.Pending(t.Context())
	if got.Diff != "ConfigMap/a/b:\n  ~ data.x" {
		t.Errorf("the diff is %q", got.Diff)
	}
	if want := []string{"***/x:1", "api:1", "web:2"}; !slices.Equal(got.Images, want) {
		t.Errorf("the images are %q, want %q", got.Images, want)
	}

	p.Planned[0].Diff = strings.Repeat("~ data.x: 0 → 1\n", 10_000)
	for n := range 1000 {
		p.Change.Objects[0].Images = append(p.Change.Objects[0].Images, risk.Image{
			New: fmt.Sprintf("web:%d-%s", n, strings.Repeat("x", 1000))})
	}
	got = p.Pending(t.Context())
	if len(got.Diff) > maxSummary || len(got.Images) > maxPendingImages || len(got.Images[9]) > maxPendingImage+10 {
		t.Errorf("the diff has %d bytes; %d images, one of %d bytes", len(got.Diff), len(got.Images),
			len(got.Images[9]))
	}
}
