package git

import (
	"os"
	"path/filepath"
	"sync"
)

// proofs records which owners of a mirror have listed the references of the remote with their own login. Only these
// may read what others have fetched. A proof is the content of the owner's file, so that it survives a restart.
type proofs struct {
	dir string

	mu     sync.Mutex
	owners map[string]bool
}

const proven = "proven\n" // content of the file of an owner

// load reads the proof of an owner from the disk.
func (p *proofs) load(owner string) {
	content, err := os.ReadFile(filepath.Join(p.dir, userPrefix+owner))
	p.owners[owner] = err == nil && string(content) == proven
}

// has reports whether the owner has a proof.
func (p *proofs) has(owner string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owners[owner]
}

// set adds or removes the proof of an owner. If a proof cannot be written, the owner needs a new one after a restart.
// If a removed one cannot be written, the file is removed: an owner without a file has no proof.
func (p *proofs) set(owner string, has bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owners[owner] == has {
		return
	}
	p.owners[owner] = has
	content, file := "", filepath.Join(p.dir, userPrefix+owner)
	if has {
		content = proven
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		_ = os.Remove(file)
	}
}

// forget removes the proof of an owner that no longer uses the mirror. The caller removes the file.
func (p *proofs) forget(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owners, owner)
}

// isAnonymous reports whether a remote is accessed without a login: then each owner sees what all see.
func isAnonymous(r Remote) bool {
	c := r.Credentials
	return r.Identity == "" && c.Username == "" && c.Password == "" && c.BearerToken == "" && c.Identity == nil &&
		len(c.ClientCert) == 0 && len(c.ClientKey) == 0
}
