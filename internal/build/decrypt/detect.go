package decrypt

import "regexp"

// sealedValue matches a whole value as SOPS writes it.
var sealedValue = regexp.MustCompile(`^ENC\[AES256_GCM,data:[^,]*,iv:[^,]+,tag:[^,]+,type:[a-z]+\]$`)

// IsEncrypted reports whether content is a file that SOPS encrypted, in any of its formats. If the content does not
// determine the format, name does.
func IsEncrypted(name string, content []byte) bool {
	parts, err := split(name, content)
	return err != nil || parts != nil
}

// IsEncryptedValue reports whether a value is one that SOPS encrypted, such as a value of a file of variables.
func IsEncryptedValue(value string) bool { return sealedValue.MatchString(value) }
