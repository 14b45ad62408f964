package ui

import (
	"context"
	"io"
	"mime"
	"net/http"
	"path"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Bounds of downloads of artifacts.
const (
	maxDownloads     = 4 // at a time
	maxUserDownloads = 2
	downloadTimeout  = 10 * time.Minute
)

// Artifacts opens verified artifacts.
type Artifacts interface {
	Open(ctx context.Context, key artifact.Key, a meta.Artifact) (io.ReadCloser, error)
}

// artifact sends the artifact of a source to a user who may read the source.
func (s *Server) artifact(w http.ResponseWriter, r *http.Request) {
	u, err := s.Login.User(r)
	if err != nil {
		failLogin(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), downloadTimeout)
	defer cancel()
	done, err := s.downloads.take(ctx, u.Name)
	if err != nil {
		s.sendError(w, err)
		return
	}
	defer done()
	content, name, err := s.openArtifact(ctx, u, r)
	if err != nil {
		s.sendError(w, err)
		return
	}
	defer content.Close() // only read
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTimeout)); err != nil {
		s.sendError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	_, _ = io.Copy(w, content) // the client is gone if this fails
}

// openArtifact opens the artifact of the source of a request, and returns the name of its file.
func (s *Server) openArtifact(ctx context.Context, u *User, r *http.Request) (io.ReadCloser, string, error) {
	k, key, err := pathOf(r)
	if err != nil {
		return nil, "", err
	}
	o := k.New()
	source, ok := o.(sourcev1.Source)
	if !ok || s.Artifacts == nil {
		return nil, "", badRequest("a %s has no artifact to download", k.Name())
	}
	if err := u.Client.Get(ctx, key, o); err != nil {
		return nil, "", err
	}
	a := source.GetArtifact()
	if a == nil {
		return nil, "", NewError(http.StatusNotFound, "it has no artifact yet")
	}
	content, err := s.Artifacts.Open(ctx, artifact.Key{Kind: k.Name(), Namespace: key.Namespace,
		Name: key.Name}, *a)
	return content, key.Name + "-" + path.Base(a.Path), err
}
