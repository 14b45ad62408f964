package sshsig

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// maxAllowed bounds, in bytes, one file of trusted keys.
const maxAllowed = 4 << 20

// trusted is a key, and when and for what it counts.
type trusted struct {
	key           ssh.PublicKey
	namespaces    []string // patterns; any when empty
	after, before time.Time
}

// allows tells why the key does not count, or nothing.
func (t *trusted) allows(namespace string, now time.Time) error {
	switch {
	case !t.after.IsZero() && now.Before(t.after):
		return fmt.Errorf("the key that signed is not valid before %s", t.after.Format(time.RFC3339))
	case !t.before.IsZero() && !now.Before(t.before):
		return fmt.Errorf("the key that signed is not valid since %s", t.before.Format(time.RFC3339))
	}
	for _, pattern := range t.namespaces {
		if ok, err := path.Match(pattern, namespace); ok && err == nil {
			return nil
		}
	}
	if len(t.namespaces) > 0 {
		return fmt.Errorf("the key that signed is not trusted to sign for %q", namespace)
	}
	return nil
}

// Read returns the keys of files. Their lines are public keys, or lines of authorized_keys, or of allowed_signers as
// ssh-keygen(1) has them: options that bound a key (namespaces, valid-after, valid-before, expiry-time) are
// honoured, and a line that cannot be read is an error. Certificate authorities are refused, since nobody is
// named who may sign.
func Read(files ...[]byte) (*Keys, error) {
	k := &Keys{}
	for _, file := range files {
		if len(file) > maxAllowed {
			return nil, fmt.Errorf("the public keys take more than %d MiB", maxAllowed>>20)
		}
		number, before := 0, len(k.keys)
		for line := range bytes.Lines(file) {
			number++
			line = bytes.TrimSpace(line)
			if len(line) == 0 || line[0] == '#' {
				continue
			}
			t, err := parseLine(string(line))
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			k.keys = append(k.keys, t)
		}
		if len(k.keys) == before {
			return nil, fmt.Errorf("there is no SSH public key")
		}
	}
	return k, nil
}

// parseLine reads "[who] [options] kind key [comment]".
func parseLine(line string) (trusted, error) {
	fields := split(line, " \t")
	for i := 0; i+1 < len(fields) && i < 3; i++ { // at most who and options stand before the key
		raw, err := base64.StdEncoding.DecodeString(fields[i+1])
		if err != nil {
			continue
		}
		key, err := ssh.ParsePublicKey(raw)
		if err != nil || key.Type() != fields[i] {
			continue
		}
		t := trusted{key: key}
		if _, isCertificate := key.(*ssh.Certificate); isCertificate {
			return t, fmt.Errorf("a certificate is no public key: list the key")
		}
		for _, field := range fields[:i] {
			if err := t.options(field); err != nil {
				return t, err
			}
		}
		return t, checkStrength(key)
	}
	return trusted{}, fmt.Errorf("it holds no SSH public key")
}

// options reads those that bound a key. Who signs, and what the key may do when it logs in, makes no difference here.
func (t *trusted) options(field string) error {
	for _, option := range split(field, ",") {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		var err error
		switch strings.ToLower(name) {
		case "cert-authority":
			err = fmt.Errorf("certificate authorities are not trusted: list the keys that sign")
		case "namespaces":
			t.namespaces = strings.Split(value, ",")
		case "valid-after":
			t.after, err = parseTime(value)
		case "valid-before", "expiry-time":
			t.before, err = parseTime(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parseTime reads YYYYMMDD[HHMM[SS]][Z], in UTC: the controller has no other time zone.
func parseTime(s string) (time.Time, error) {
	digits := strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(digits) == len(layout) {
			return time.Parse(layout, digits)
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 20260131 or 20260131235900Z", s)
}

// split cuts at any of the separators that stand outside of double quotes; runs of them count once.
func split(s, separators string) []string {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && strings.ContainsRune(separators, r)
	})
}
