package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-gitops/sluice/playground/internal/pki"
)

// certs are what the control plane trusts and is trusted by, in a directory.
type certs struct {
	dir   string
	ca    []byte
	admin string // a token: the API server would verify the signature of a certificate again for each request
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
	var errs [2]error
	c.ca, errs[0] = os.ReadFile(c.file("ca.crt"))
	c.admin, errs[1] = loadToken(c.file(tokens))
	return c, errors.Join(errs[:]...)
}

// tokens is the file with the token of the administrator, in the format of --token-auth-file.
const tokens = "tokens.csv"

// loadToken reads the token in a file, or makes one in one step: a directory may be that of an earlier playground,
// which had a certificate instead.
func loadToken(file string) (string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		content = fmt.Appendf(nil, "%s,admin,admin,system:masters\n", rand.Text())
		unfinished := file + ".new"
		err = errors.Join(os.WriteFile(unfinished, content, 0o600), os.Rename(unfinished, file))
	}
	token, _, _ := strings.Cut(string(content), ",")
	return token, err
}

func makeCerts(dir string) error {
	ca, err := pki.NewAuthority("playground-ca")
	if err != nil {
		return err
	}
	server, err1 := ca.Server("kube-apiserver", "127.0.0.1", "::1", firstService,
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local")
	accounts, err2 := ca.Client("service-account") // its key signs tokens
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return errors.Join(ca.Write(dir, "ca"), server.Write(dir, "server"), accounts.Write(dir, "service-account"))
}
