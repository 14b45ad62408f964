package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-gitops/sluice/playground/internal/pki"
)

// certs are what the control plane trusts and is trusted by, in a directory.
type certs struct {
	dir   string
	ca    []byte
	admin pki.Pair
}

func (c certs) file(name string) string { return filepath.Join(c.dir, name) }

// loadCerts reads the certificates in dir, or makes them.
func loadCerts(dir string) (certs, error) {
	c := certs{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, err
	}
	complete := c.file("complete") // written last: without it a process was killed on the way
	if _, err := os.Stat(complete); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(makeCerts(dir), os.WriteFile(complete, nil, 0o600)); err != nil {
			return c, err
		}
	}
	var errs [3]error
	c.ca, errs[0] = os.ReadFile(c.file("ca.crt"))
	c.admin.Cert, errs[1] = os.ReadFile(c.file("admin.crt"))
	c.admin.Key, errs[2] = os.ReadFile(c.file("admin.key"))
	return c, errors.Join(errs[:]...)
}

func makeCerts(dir string) error {
	ca, err := pki.NewAuthority("playground-ca")
	if err != nil {
		return err
	}
	server, err1 := ca.Server("kube-apiserver", "127.0.0.1", "::1", firstService,
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local")
	admin, err2 := ca.Client("admin", "system:masters")
	accounts, err3 := ca.Client("service-account") // its key signs tokens
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return errors.Join(ca.Write(dir, "ca"), server.Write(dir, "server"), admin.Write(dir, "admin"),
		accounts.Write(dir, "service-account"))
}
