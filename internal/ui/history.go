package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/storage"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of the difference of two releases.
const (
	maxDiffObjects = 500
	maxDiffText    = 512 << 10 // bytes of all objects
	maxVersion     = 1 << 30
)

// version is something that was applied or released before, or the state that a gate was in.
type version struct {
	At      time.Time `json:"at"`
	Name    string    `json:"name"`
	Status  string    `json:"status"`
	By      string    `json:"by,omitempty"`
	Text    string    `json:"text,omitempty"`
	Version int       `json:"version,omitempty"` // of a Helm release, whose manifests can be compared
	Subject string    `json:"subject,omitempty"` // of the commit
	Author  string    `json:"author,omitempty"`
	Commit  string    `json:"commit,omitempty"`  // web page
	Compare string    `json:"compare,omitempty"` // web page with what changed since the version before
}

// historyOf returns what was applied or released before, newest first. Commits are those of a repository.
func historyOf(o reconcile.Object, repository string) []version {
	history := []version{}
	switch o := o.(type) {
	case *kustomizev1.Kustomization:
		for i, h := range o.Status.History {
			v := version{At: h.LastReconciled.Time, Name: h.Metadata["revision"], Status: h.LastReconciledStatus,
				Text: h.Digest, Subject: h.Metadata[meta.CommitSubjectKey], Author: h.Metadata[meta.CommitAuthorKey]}
			commit := commitOf(h)
			if commit != "" {
				v.Commit = githost.CommitPage(repository, commit)
			}
			if i+1 < len(o.Status.History) {
				before := commitOf(o.Status.History[i+1])
				if before != "" && commit != "" && before != commit {
					v.Compare = githost.ComparePage(repository, before, commit)
				}
			}
			history = append(history, v)
		}
	case *helmv2.HelmRelease:
		for _, h := range o.Status.History {
			history = append(history, version{At: h.LastDeployed.Time, Status: h.Status, Version: h.Version,
				Name: fmt.Sprintf("%s %s, version %d", h.ChartName, h.ChartVersion, h.Version), Text: h.Digest})
		}
	case *controlplanev1.ResourceSet:
		for _, h := range o.Status.History {
			history = append(history, version{At: h.LastReconciled.Time, Name: h.Digest, Status: h.LastReconciledStatus,
				Text: fmt.Sprintf("%s objects from %s input sets", h.Metadata["resources"], h.Metadata["inputs"])})
		}
	case *gatingv1.Gate:
		for _, h := range o.Status.History {
			history = append(history, version{At: h.At.Time, Name: string(h.State), By: h.By, Text: h.Message})
		}
	}
	return history
}

// commitPattern matches the commit at the end of a revision such as main@sha1:<commit>.
var commitPattern = regexp.MustCompile(`(?:^|[@:/])(?:sha1:|sha256:)?([0-9a-f]{40}|[0-9a-f]{64})$`)

// commitOf returns the commit of what a Kustomization applied, if it was built from git.
func commitOf(s kustomizev1.Snapshot) string {
	revision := cmp.Or(s.Metadata["originRevision"], s.Metadata["revision"])
	at := commitPattern.FindStringSubmatch(revision)
	if at == nil || strings.HasPrefix(revision, "sha256:") || strings.Contains(revision, "@sha256:") {
		return "" // an artifact, not a commit
	}
	return at[1]
}

// repositoryOf returns the URL of the first source of an object, if the user may see that.
func (s *Server) repositoryOf(ctx context.Context, u *User, i *view.Item) string {
	if len(i.Sources) == 0 {
		return ""
	}
	may, err := s.filter(ctx, u)
	if err != nil {
		return ""
	}
	source := s.Model.Get(i.Sources[0], may)
	if source == nil {
		return ""
	}
	return source.URL
}

// objectChange is what differs in one object.
type objectChange struct {
	Object string `json:"object"`
	Action string `json:"action"`
	Diff   string `json:"diff"`
}

// releaseDiff is what differs between two versions of a Helm release.
type releaseDiff struct {
	From    int            `json:"from"` // 0: nothing was released before
	To      int            `json:"to"`
	Changes []objectChange `json:"changes"`
	Omitted int            `json:"omitted"` // changed objects that are not included
}

// diffVersions compares two versions of a release, as Helm stored them, or names the page that compares two revisions
// of a Kustomization at the git host. Parameters: from and to.
func (s *Server) diffVersions(ctx context.Context, u *User, r *http.Request) (any, error) {
	k, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	if ks, ok := o.(*kustomizev1.Kustomization); ok {
		q := r.URL.Query()
		return compareCommits(ks, s.repositoryOf(ctx, u, view.Of(k, o)), q.Get("from"), q.Get("to"))
	}
	hr, ok := o.(*helmv2.HelmRelease)
	if !ok {
		return nil, badRequest("only versions of a HelmRelease are kept in the cluster")
	}
	if hr.Spec.KubeConfig != nil {
		return nil, badRequest("the versions of this release are kept in another cluster, which this page cannot read")
	}
	q := r.URL.Query()
	d := releaseDiff{Changes: []objectChange{}}
	if d.To, err = number(q.Get("to"), 1, maxVersion); err != nil {
		return nil, err
	}
	if q.Get("from") != "0" {
		if d.From, err = number(q.Get("from"), 1, maxVersion); err != nil {
			return nil, err
		}
	}
	done, err := s.heavy.take(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	before, err := storedObjects(ctx, u, hr, d.From)
	if err != nil {
		return nil, err
	}
	after, err := storedObjects(ctx, u, hr, d.To)
	if err != nil {
		return nil, err
	}
	d.compare(before, after)
	return d, nil
}

// compareCommits returns the page that compares two revisions of the history at the git host.
func compareCommits(ks *kustomizev1.Kustomization, repository string, revisions ...string) (any, error) {
	var commits []string
	for _, revision := range revisions {
		i := slices.IndexFunc(ks.Status.History, func(h kustomizev1.Snapshot) bool {
			return h.Metadata["revision"] == revision
		})
		if i < 0 {
			return nil, badRequest("revision %q is not in the history", excerpt.Bytes(revision, maxConditionRow))
		}
		commits = append(commits, commitOf(ks.Status.History[i]))
	}
	page := ""
	if !slices.Contains(commits, "") {
		page = githost.ComparePage(repository, commits[0], commits[1])
	}
	if page == "" {
		return nil, badRequest("the source is not at a git host whose pages compare commits")
	}
	return map[string]string{"compare": page}, nil
}

// storedObjects returns the objects of a version of a release, by reference. It reads with the rights of the user.
func storedObjects(ctx context.Context, u *User, hr *helmv2.HelmRelease,
	number int) (map[apply.Ref]*unstructured.Unstructured, error) {
	objects := map[apply.Ref]*unstructured.Unstructured{}
	if number == 0 {
		return objects, nil
	}
	i := slices.IndexFunc(hr.Status.History, func(h helmv2.Snapshot) bool { return h.Version == number })
	if i < 0 {
		return nil, badRequest("version %d is not in the history of this release", number)
	}
	namespace := cmp.Or(hr.Status.StorageNamespace, hr.GetStorageNamespace())
	stored, err := storage.New(u.Cluster.CoreV1().Secrets(namespace)).Get(
		fmt.Sprintf("sh.helm.release.v1.%s.v%d", hr.Status.History[i].Name, number))
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, &httpError{status: http.StatusNotFound, text: fmt.Sprintf("version %d is not kept any more: "+
			"spec.maxHistory sets how many are", number)}
	}
	if err != nil {
		return nil, err
	}
	rel, ok := stored.(*release.Release)
	if !ok {
		return nil, badRequest("version %d was stored in a format that this page cannot read", number)
	}
	lease, err := yamlsize.Acquire(ctx, "reading a stored release", []byte(rel.Manifest))
	if err != nil {
		return nil, badRequest("the manifests of version %d cannot be read: %v", number, err)
	}
	defer lease.Release()
	list, err := kube.Decode(strings.NewReader(rel.Manifest))
	if err != nil {
		return nil, badRequest("the manifests of version %d cannot be read: %v", number, err)
	}
	for _, o := range list {
		gvk := o.GroupVersionKind()
		objects[apply.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	}
	return objects, nil
}

// compare records the objects that differ, by reference.
func (d *releaseDiff) compare(before, after map[apply.Ref]*unstructured.Unstructured) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	refs := slices.SortedFunc(maps.Keys(all), func(a, b apply.Ref) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.Group, b.Group))
	})
	size := 0
	for _, ref := range refs {
		c := objectChange{Object: ref.String(), Action: string(apply.Configured),
			Diff: diff.Text(before[ref], after[ref])}
		switch {
		case before[ref] == nil:
			c.Action = string(apply.Created)
		case after[ref] == nil:
			c.Action = string(apply.Deleted)
		case c.Diff == "":
			continue
		}
		if size += len(c.Diff); len(d.Changes) == maxDiffObjects || size > maxDiffText {
			d.Omitted++
			continue
		}
		d.Changes = append(d.Changes, c)
	}
}
