package preview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5/osfs"
	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/sluice-gitops/sluice/internal/githost"
)

const (
	mirrorCache = 4 * cache.MiByte
	largeObject = 1 << 20 // bytes; larger ones are not kept in memory
	maxPacks    = 100     // each fetch adds one
	maxMirror   = 2 << 30 // bytes on disk
)

// Mirror is a repository on disk that is fetched again and again. It is safe for concurrent use.
type Mirror struct {
	Dir string // is removed and created again as needed
	URL string
	// Login returns the login of a request, as some expire.
	Login func(context.Context) (transport.AuthMethod, error)

	fetching sync.Mutex
	reading  sync.RWMutex // locked for writing while the directory is replaced
}

// Fetch fetches references, and returns the repository for reading until done is called.
func (m *Mirror) Fetch(ctx context.Context, refs ...string) (r *Repository, done func(), err error) {
	m.fetching.Lock()
	defer m.fetching.Unlock()
	if err := m.compact(); err != nil {
		return nil, nil, err
	}
	repo, err := m.open()
	if err != nil {
		return nil, nil, err
	}
	var specs []config.RefSpec
	for _, ref := range refs {
		specs = append(specs, config.RefSpec("+"+ref+":"+ref))
	}
	login, err := m.Login(ctx)
	if err != nil {
		return nil, nil, err
	}
	err = repo.FetchContext(ctx, &git.FetchOptions{RefSpecs: specs, Auth: login, Tags: git.NoTags})
	if err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil, nil, fmt.Errorf("cannot fetch %s: %w", strings.Join(refs, " and "), err)
	}
	m.reading.RLock()
	if repo, err = m.open(); err != nil { // the storage knows only the packs that existed when it was opened
		m.reading.RUnlock()
		return nil, nil, err
	}
	return &Repository{repo: repo}, m.reading.RUnlock, nil
}

// Branches returns the commits of the branches of the remote.
func (m *Mirror) Branches(ctx context.Context) (map[string]string, error) {
	remote := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: git.DefaultRemoteName,
		URLs: []string{m.URL}})
	login, err := m.Login(ctx)
	if err != nil {
		return nil, err
	}
	refs, err := remote.ListContext(ctx, &git.ListOptions{Auth: login})
	if err != nil {
		return nil, fmt.Errorf("cannot list the branches: %w", err)
	}
	out := map[string]string{}
	for _, ref := range refs {
		if ref.Name().IsBranch() {
			out[ref.Name().Short()] = ref.Hash().String()
		}
	}
	return out, nil
}

// open opens the repository, or creates it.
func (m *Mirror) open() (*git.Repository, error) {
	storage := filesystem.NewStorageWithOptions(osfs.New(m.Dir), cache.NewObjectLRU(mirrorCache),
		filesystem.Options{LargeObjectThreshold: largeObject})
	repo, err := git.Open(storage, nil)
	if !errors.Is(err, git.ErrRepositoryNotExists) {
		return repo, err
	}
	if repo, err = git.Init(storage, nil); err == nil {
		_, err = repo.CreateRemote(&config.RemoteConfig{Name: git.DefaultRemoteName, URLs: []string{m.URL}})
	}
	return repo, err
}

// compact removes a mirror that has many packs or is large, unless it is being read. What is still needed is fetched
// again, as one pack.
func (m *Mirror) compact() error {
	packs, size := 0, int64(0)
	err := filepath.WalkDir(m.Dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if strings.HasSuffix(e.Name(), ".pack") {
			packs++
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || err == nil && packs <= maxPacks && size <= maxMirror {
		return nil
	}
	if !m.reading.TryLock() {
		return nil
	}
	defer m.reading.Unlock()
	return os.RemoveAll(m.Dir)
}

// TokenLogin returns the login to fetch a repository with a token; see [githost.Kind.GitLogin].
func TokenLogin(kind githost.Kind, token string) transport.AuthMethod {
	username, password, bearer := kind.GitLogin(token)
	if bearer != "" {
		return &githttp.TokenAuth{Token: bearer}
	}
	return &githttp.BasicAuth{Username: username, Password: password}
}
