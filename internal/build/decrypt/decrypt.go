// Package decrypt decrypts files that are encrypted with SOPS. It uses only the keys that are passed to it: it does not
// search for keys in the environment, in files or in a cluster, and runs no programs. Errors and logs contain no
// decrypted content.
package decrypt

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/keyservice"
	"github.com/getsops/sops/v3/logging"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

func init() {
	for _, l := range logging.Loggers {
		l.SetOutput(io.Discard) // the loggers of SOPS write parts of files to the standard error
	}
}

// maxKeys is the maximum number of keys of one file: each may need a request.
const maxKeys = 100

// Plain is the decrypted content of a file.
type Plain struct {
	Content []byte
	Secrets []string // the decrypted values, as text
}

// File decrypts a file. It returns nil if the file is not encrypted with SOPS. If the content does not determine the
// format, the name does. Errors are faults that list the missing keys. They wrap [ErrService] if a retry may succeed.
func (k *Keys) File(ctx context.Context, name string, content []byte) (*Plain, error) {
	parts, err := split(name, content)
	if err != nil || parts == nil {
		return nil, err
	}
	plain := &Plain{}
	for i, p := range parts {
		if !p.encrypted {
			continue
		}
		tree, err := k.part(ctx, name, p)
		if err != nil {
			return nil, err
		}
		if k.Placeholders != nil {
			k.hide(name, p, tree)
		} else {
			plain.Secrets = append(plain.Secrets, revealed(p, tree)...)
		}
		if parts[i].content, err = p.format.EmitPlainFile(tree.Branches); err != nil {
			return nil, damaged(name)
		}
	}
	plain.Content = join(parts)
	return plain, nil
}

// ErrService is wrapped by errors that a key service caused.
var ErrService = errors.New("a key service failed")

func (k *Keys) part(ctx context.Context, name string, p part) (*sops.Tree, error) {
	tree, err := p.format.LoadEncryptedFile(p.content)
	if err != nil {
		return nil, damaged(name)
	}
	count := 0
	for _, g := range tree.Metadata.KeyGroups {
		count += len(g)
	}
	if count > maxKeys {
		return nil, failed("%s names %d keys; %d are allowed", name, count, maxKeys)
	}
	if err := checkMatching(&tree); err != nil {
		return nil, failed("the regular expressions in %s, which say what is encrypted, take too long", name).
			Because(err).WithHint("Use shorter ones in .sops.yaml, or fewer comments, and encrypt the file again")
	}
	s := &service{ctx: ctx, keys: k}
	dataKey, err := tree.Metadata.GetDataKeyWithKeyServices(
		[]keyservice.KeyServiceClient{keyservice.NewCustomLocalClient(s)}, sops.DefaultDecryptionOrder)
	if err != nil {
		return nil, s.missing(name)
	}
	cipher := aes.NewCipher()
	computed, err := tree.Decrypt(dataKey, cipher)
	if err != nil {
		return nil, changed(name)
	}
	if k.IgnoreMAC {
		return &tree, nil
	}
	declared, err := cipher.Decrypt(tree.Metadata.MessageAuthenticationCode, dataKey,
		tree.Metadata.LastModified.Format(time.RFC3339))
	mac, isText := declared.(string)
	if err != nil || !isText || subtle.ConstantTimeCompare([]byte(mac), []byte(computed)) != 1 {
		return nil, changed(name)
	}
	return &tree, nil
}

// revealed returns the values of a part that were encrypted.
func revealed(p part, plain *sops.Tree) []string {
	sealed, err := p.format.LoadEncryptedFile(p.content)
	if err != nil {
		return nil // cannot happen: the same bytes were loaded before
	}
	var values []string
	for i, b := range sealed.Branches {
		values = append(values, between(b, plain.Branches[i])...)
	}
	return values
}

// between returns the values of a plain tree that are encrypted in a sealed tree of the same structure.
func between(sealed, plain any) []string {
	var values []string
	switch s := sealed.(type) {
	case sops.TreeBranch:
		p, ok := plain.(sops.TreeBranch)
		for i := 0; ok && i < min(len(s), len(p)); i++ {
			values = append(values, between(s[i].Value, p[i].Value)...)
		}
	case []any:
		p, ok := plain.([]any)
		for i := 0; ok && i < min(len(s), len(p)); i++ {
			values = append(values, between(s[i], p[i])...)
		}
	case string:
		if strings.HasPrefix(s, encryptedValue) {
			values = append(values, fmt.Sprint(plain))
		}
	}
	return values
}

// hide replaces the values of a decrypted tree that were encrypted by placeholders.
func (k *Keys) hide(name string, p part, plain *sops.Tree) {
	sealed, err := p.format.LoadEncryptedFile(p.content)
	if err != nil {
		plain.Branches = nil // cannot happen: the same bytes were loaded before
		return
	}
	for i, b := range sealed.Branches {
		plain.Branches[i], _ = k.hidden("SOPS/"+name+"/"+strconv.Itoa(i), b, plain.Branches[i]).(sops.TreeBranch)
	}
}

// hidden returns a plain value with placeholders where the sealed value of the same structure is encrypted.
func (k *Keys) hidden(origin string, sealed, plain any) any {
	switch s := sealed.(type) {
	case sops.TreeBranch:
		p, ok := plain.(sops.TreeBranch)
		for i := 0; ok && i < min(len(s), len(p)); i++ {
			p[i].Value = k.hidden(origin+"/"+fmt.Sprint(s[i].Key), s[i].Value, p[i].Value)
		}
	case []any:
		p, ok := plain.([]any)
		for i := 0; ok && i < min(len(s), len(p)); i++ {
			p[i] = k.hidden(origin+"/"+strconv.Itoa(i), s[i], p[i])
		}
	case string:
		if strings.HasPrefix(s, encryptedValue) {
			return k.Placeholders.Value(origin, plain)
		}
	}
	return plain
}

// Redacted replaces a secret string.
const Redacted = redact.Masked

// Redact returns encrypted content in decrypted form, with secret values replaced by placeholders, or by [Redacted] and
// zeros if they are nil.
func Redact(name string, content []byte, placeholders *redact.Placeholders) ([]byte, error) {
	parts, err := split(name, content)
	if err != nil || parts == nil {
		return content, err
	}
	for i, p := range parts {
		if !p.encrypted {
			continue
		}
		tree, err := p.format.LoadEncryptedFile(p.content)
		if err != nil {
			return nil, damaged(name)
		}
		for _, b := range tree.Branches {
			redactBranch("SOPS/"+name, b, placeholders)
		}
		if parts[i].content, err = p.format.EmitPlainFile(tree.Branches); err != nil {
			return nil, damaged(name)
		}
	}
	return join(parts), nil
}

func redactBranch(origin string, b sops.TreeBranch, placeholders *redact.Placeholders) {
	for i := range b {
		b[i].Value = redacted(origin+"/"+fmt.Sprint(b[i].Key), b[i].Value, placeholders)
	}
}

func redacted(origin string, v any, placeholders *redact.Placeholders) any {
	switch v := v.(type) {
	case sops.TreeBranch:
		redactBranch(origin, v, placeholders)
	case []any:
		for i := range v {
			v[i] = redacted(origin+"/"+strconv.Itoa(i), v[i], placeholders)
		}
	case string:
		if !strings.HasPrefix(v, encryptedValue) {
			return v
		}
		if placeholders != nil {
			return placeholders.Value(origin, redacted(origin, v, nil))
		}
		switch v = strings.TrimSuffix(v, "]"); v[strings.LastIndexByte(v, ':')+1:] {
		case "int":
			return 0
		case "float":
			return 0.5
		case "bool":
			return false
		default:
			return Redacted
		}
	}
	return v
}

func failed(format string, args ...any) *fault.Fault {
	return fault.New(meta.BuildFailedReason, format, args...)
}

func damaged(name string) error {
	return failed("%s is encrypted with SOPS, but cannot be read", name).
		WithHint("Check it with 'sops decrypt', and encrypt it again if that fails as well")
}

func changed(name string) error {
	return failed("%s was changed after SOPS encrypted it: its authentication code does not match", name).
		WithHint("Make changes with 'sops edit', or encrypt the file again; with --mac-only-encrypted, plain " +
			"values may be changed afterwards. The controller flag --insecure-sops-ignore-mac disables this check")
}
