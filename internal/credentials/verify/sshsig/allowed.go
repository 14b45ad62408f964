package sshsig

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// maxAllowed is the maximum size, in bytes, of a file of trusted keys.
const maxAllowed = 4 << 20

// trustedKey is a key with the limits of its trust.
type trustedKey struct {
	key        ssh.PublicKey
	namespaces []string  // patterns; any namespace when empty
	validFrom  time.Time // no limit when zero
	validTo    time.Time // no limit when zero
}

// check returns an error if the key is not trusted for the namespace now.
func (t *trustedKey) check(namespace string, now time.Time) error {
	switch {
	case !t.validFrom.IsZero() && now.Before(t.validFrom):
		return fmt.Errorf("the key that signed is not valid before %s", t.validFrom.Format(time.RFC3339))
	case !t.validTo.IsZero() && !now.Before(t.validTo):
		return fmt.Errorf("the key that signed has been invalid since %s", t.validTo.Format(time.RFC3339))
	}
	for _, pattern := range t.namespaces {
		if ok, err := path.Match(pattern, namespace); ok && err == nil {
			return nil
		}
	}
	if len(t.namespaces) > 0 {
		return fmt.Errorf("the key that signed is not trusted for namespace %q", namespace)
	}
	return nil
}

// Read returns the keys of files. A line is a public key, a line of authorized_keys, or a line of allowed_signers
// (ssh-keygen(1)). The options that limit a key (namespaces, valid-after, valid-before, expiry-time) apply. Read
// returns an error for a line that it cannot parse, for a file without keys, and for certificate authorities.
func Read(files ...[]byte) (*Keys, error) {
	k := &Keys{}
	for _, file := range files {
		if len(file) > maxAllowed {
			return nil, fmt.Errorf("the file of public keys is larger than %d MiB", maxAllowed>>20)
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
			return nil, errors.New("the file contains no SSH public key")
		}
	}
	return k, nil
}

// parseLine parses "[principals] [options] type key [comment]".
func parseLine(line string) (trustedKey, error) {
	fields := split(line, " \t")
	for i := 0; i+1 < len(fields) && i < 3; i++ { // at most principals and options precede the key
		raw, err := base64.StdEncoding.DecodeString(fields[i+1])
		if err != nil {
			continue
		}
		key, err := ssh.ParsePublicKey(raw)
		if err != nil || key.Type() != fields[i] {
			continue
		}
		t := trustedKey{key: key}
		if _, isCertificate := key.(*ssh.Certificate); isCertificate {
			return t, errors.New("certificates are not supported: use the public key")
		}
		for _, field := range fields[:i] {
			if err := t.parseOptions(field); err != nil {
				return t, err
			}
		}
		return t, checkStrength(key)
	}
	return trustedKey{}, errors.New("no SSH public key")
}

// parseOptions parses the options that limit the key. It ignores principals and the options for logins.
func (t *trustedKey) parseOptions(field string) error {
	for _, option := range split(field, ",") {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		var err error
		switch strings.ToLower(name) {
		case "cert-authority":
			err = errors.New("certificate authorities are not supported: use the public keys that sign")
		case "namespaces":
			t.namespaces = strings.Split(value, ",")
		case "valid-after":
			t.validFrom, err = parseTime(value)
		case "valid-before", "expiry-time":
			t.validTo, err = parseTime(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parseTime parses YYYYMMDD[HHMM[SS]][Z]. Times are in UTC with and without the Z.
func parseTime(s string) (time.Time, error) {
	digits := strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(digits) == len(layout) {
			return time.Parse(layout, digits)
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 20260131 or 20260131235900Z", s)
}

// split splits s at separators outside of double quotes. Adjacent separators count as one.
func split(s, separators string) []string {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && strings.ContainsRune(separators, r)
	})
}
