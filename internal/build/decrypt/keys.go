package decrypt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/oauth2"
	"sigs.k8s.io/yaml"

	trusted "github.com/sluice-gitops/sluice/internal/credentials/verify/openpgp"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Keys holds the keys and credentials for decryption. A field that is nil or empty is not used.
type Keys struct {
	// Ignored are the entries of the Secret that are not keys, for hints.
	Ignored []string

	Age     []age.Identity
	OpenPGP openpgp.EntityList

	// Credentials for key services, requested when a file needs them.
	AWS   func(ctx context.Context, region string) (aws.CredentialsProvider, error)
	Azure func(ctx context.Context) (azcore.TokenCredential, error)
	GCP   func(ctx context.Context) (oauth2.TokenSource, error)
	// Vault returns a token for the Vault or OpenBao server at an address. The address comes from the
	// encrypted file, so the function must return tokens only for trusted addresses.
	Vault func(ctx context.Context, address string) (string, error)

	// VaultServers are the addresses of the servers that the administrator trusts with tokens of Secrets that do not
	// name their server.
	VaultServers []string

	// IgnoreMAC accepts files whose plain parts were changed after encryption. Encrypted values are still
	// authenticated one by one.
	IgnoreMAC bool

	// Placeholders replace the decrypted values, for renders of changes that were not reviewed. May be nil.
	Placeholders *redact.Placeholders

	Transport http.RoundTripper // of all requests; http.DefaultTransport when nil
}

// Names of entries in a Secret, as documented.
const (
	ageSuffix     = ".agekey"
	openPGPSuffix = ".asc"
	vaultEntry    = "sops.vault-token"

	vaultAddressEntry = "sops.vault-address" // the only server that the token is sent to

	awsEntry   = "sops.aws-kms"
	azureEntry = "sops.azure-kv"
	gcpEntry   = "sops.gcp-kms"
)

// FromSecret reads keys from the data of a Secret and ignores other entries, which it lists.
func FromSecret(data map[string][]byte, transport http.RoundTripper) (*Keys, error) {
	k := &Keys{Transport: transport}
	for _, entry := range slices.Sorted(maps.Keys(data)) {
		var err error
		switch value := data[entry]; {
		case strings.HasSuffix(entry, ageSuffix):
			err = k.addAge(value)
		case strings.HasSuffix(entry, openPGPSuffix):
			err = k.addOpenPGP(value)
		case entry == vaultEntry:
			k.addVault(strings.TrimSpace(string(value)), string(data[vaultAddressEntry]))
		case entry == vaultAddressEntry: // read with the token
		case entry == awsEntry:
			err = k.addAWS(value)
		case entry == azureEntry:
			err = k.addAzure(value)
		case entry == gcpEntry:
			err = k.addGCP(value)
		default:
			k.Ignored = append(k.Ignored, entry)
		}
		if err != nil {
			return nil, failed("the entry %s cannot be read", entry).Because(err)
		}
	}
	return k, nil
}

// addVault adds a token for one server. Without its address, [Keys.VaultServers] say which servers get the token.
func (k *Keys) addVault(token, address string) {
	k.Vault = func(_ context.Context, named string) (string, error) {
		servers := k.VaultServers
		if address != "" {
			servers = []string{address}
		}
		if !slices.ContainsFunc(servers, func(s string) bool { return SameServer(s, named) }) {
			return "", Missing("the Secret does not say that its " + vaultEntry + " is for this server. Set its " +
				"entry " + vaultAddressEntry + " to the address of the server, if the token is for it")
		}
		return token, nil
	}
}

// Fallback sets the fields that are not set to the values of others.
func (k *Keys) Fallback(others *Keys) {
	if len(k.Age) == 0 {
		k.Age = others.Age
	}
	if len(k.OpenPGP) == 0 {
		k.OpenPGP = others.OpenPGP
	}
	if k.AWS == nil {
		k.AWS = others.AWS
	}
	if k.Azure == nil {
		k.Azure = others.Azure
	}
	if k.GCP == nil {
		k.GCP = others.GCP
	}
	if k.Vault == nil {
		k.Vault = others.Vault
	}
}

// addAge reads age private keys, one per line: X25519 and post-quantum hybrid keys. Plugin keys are refused, because
// plugins are programs.
func (k *Keys) addAge(text []byte) error {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		var identity age.Identity
		var err error
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "AGE-SECRET-KEY-PQ-1"):
			identity, err = age.ParseHybridIdentity(line)
		case strings.HasPrefix(line, "AGE-SECRET-KEY-1"):
			identity, err = age.ParseX25519Identity(line)
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return errors.New("a line is not an age private key; it must start with AGE-SECRET-KEY-1 or " +
				"AGE-SECRET-KEY-PQ-1")
		}
		k.Age = append(k.Age, identity)
	}
	return nil
}

// addOpenPGP reads ASCII-armored private keys without a password.
func (k *Keys) addOpenPGP(text []byte) error {
	r := bytes.NewReader(text)
	for {
		block, err := armor.Decode(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.New("it is not an OpenPGP key in armor")
		}
		ring, err := trusted.ReadKeys(block.Body)
		if err != nil {
			return errors.New("it holds no OpenPGP key that can be read")
		}
		k.OpenPGP = append(k.OpenPGP, ring...)
	}
	usable := false
	for _, e := range k.OpenPGP {
		if e.PrivateKey != nil && e.PrivateKey.Encrypted {
			return errors.New("the private key has a password; export it without one")
		}
		usable = usable || e.PrivateKey != nil
	}
	if !usable {
		return errors.New("it holds no private key; export it with 'gpg --export-secret-keys --armor'")
	}
	return nil
}

// read parses an entry in YAML or JSON. Its errors do not contain the entry.
func read(text []byte, into any) error {
	if yamlsize.Check(text) != nil || yaml.Unmarshal(text, into) != nil {
		return errors.New("it is not valid YAML or JSON")
	}
	return nil
}

// Missing returns the error for a source that has no credentials.
func Missing(hint string) error { return &notAtHand{hint} }

type notAtHand struct{ hint string }

func (n *notAtHand) Error() string { return n.hint }
func (n *notAtHand) Is(target error) bool {
	return target == errNotAtHand
}
