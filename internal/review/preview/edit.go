package preview

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Compare makes the options compare a base with the merge of a branch into it, or with edited files if there is no
// branch. The rules are those of the base, as a change must not choose its own.
func (o *Options) Compare(r *Repository, base, branch string, edits map[string][]byte) (err error) {
	if branch == "" && edits != nil {
		o.From, o.To, err = r.Edits(base, edits)
	} else {
		o.From, o.To, err = r.Snapshots(base, branch)
	}
	if err == nil {
		o.Rules, err = o.From.Rules()
	}
	return err
}

// Edits returns the files of a branch before and after files of it are written; a file without content is removed.
// Paths are clean and from the root.
func (r *Repository) Edits(from string, files map[string][]byte) (before, after *Snapshot, err error) {
	c, err := r.commit(from)
	if err != nil {
		return nil, nil, err
	}
	if before, err = r.snapshot(from, c); err != nil {
		return nil, nil, err
	}
	content := edited{Content: blobs{r.repo, r.Cache}, own: map[string][]byte{}}
	root := before.tree.Root()
	for name, text := range files {
		entry := artifact.Entry{Name: path.Base(name)}
		if text != nil {
			sum := sha256.Sum256(text)
			entry.Mode, entry.ID = 0o644, "edit:"+hex.EncodeToString(sum[:])
			content.own[entry.ID] = text
		}
		root = withEntry(root, strings.Split(name, "/"), entry)
	}
	return before, newSnapshot("the files", artifact.NewTree(root, content)), nil
}

// withEntry returns a directory with an entry at a path, or without it if the entry has no ID.
func withEntry(d *artifact.Dir, at []string, entry artifact.Entry) *artifact.Dir {
	entries := entriesOf(d)
	name := at[0]
	if len(at) > 1 {
		sub := withEntry(entries[name].Dir, at[1:], entry)
		entry = artifact.Entry{Name: name, Mode: modes[filemode.Dir], ID: sub.ID, Dir: sub}
		if len(sub.Entries) == 0 {
			entry.ID = ""
		}
	} else if old := entries[name]; old.Dir == nil && old.Mode.IsRegular() && old.ID != "" {
		entry.Mode = old.Mode
	}
	delete(entries, name)
	if entry.ID != "" {
		entries[name] = entry
	}
	all := make([]artifact.Entry, 0, len(entries))
	for _, e := range entries {
		all = append(all, e)
	}
	return artifact.NewDir(all)
}

// edited is the content of a repository with files of its own. It implements [artifact.Content].
type edited struct {
	artifact.Content
	own map[string][]byte // by ID
}

// Size implements [artifact.Content].
func (e edited) Size(id string) (int64, error) {
	if text, ok := e.own[id]; ok {
		return int64(len(text)), nil
	}
	return e.Content.Size(id)
}

// Read implements [artifact.Content].
func (e edited) Read(id string) ([]byte, error) {
	if text, ok := e.own[id]; ok {
		return text, nil
	}
	return e.Content.Read(id)
}
