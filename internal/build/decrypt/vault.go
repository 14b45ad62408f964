package decrypt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getsops/sops/v3/keyservice"
)

func (k *Keys) withVault(ctx context.Context, key *keyservice.VaultKey, ciphertext []byte) ([]byte, error) {
	if k.Vault == nil {
		return nil, errNotAtHand
	}
	path, err := decryptPath(key.EnginePath, key.KeyName)
	if err != nil {
		return nil, err
	}
	token, err := k.Vault(ctx, key.VaultAddress)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, errNotAtHand // do not send a request without a token
	}
	var answer struct {
		Data struct {
			Plaintext []byte `json:"plaintext"`
		} `json:"data"`
	}
	if err := k.vault(ctx, key.VaultAddress, path, token, map[string]string{"ciphertext": string(ciphertext)},
		&answer); err != nil {
		return nil, err
	}
	return answer.Data.Plaintext, nil
}

// maxAnswer is the maximum size of a response of a key service, in bytes.
const maxAnswer = 1 << 20

// vault sends a request to a Vault or OpenBao server. It does not follow redirects, which would forward the token.
func (k *Keys) vault(ctx context.Context, address, path, token string, ask map[string]string, answer any) error {
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	u := strings.TrimRight(address, "/") + "/v1/" + strings.Trim(path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, u, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address cannot be read")
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("X-Vault-Token", token)
	}
	client := k.client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("cannot be reached: %w", errors.Unwrap(err)) // the caller's message contains the address
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: the server responded with %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s: the server returned an unreadable response", path)
	}
	return nil
}

// VaultLogins lists the Vault and OpenBao servers that service account tokens may be sent to.
type VaultLogins struct {
	Instances []VaultLogin `json:"instances"`
}

// VaultLogin is a server and its login path, such as auth/kubernetes/login.
type VaultLogin struct {
	Address   string `json:"address"`
	LoginPath string `json:"loginPath"`
}

// ParseVaultLogins reads the configuration in YAML.
func ParseVaultLogins(text []byte) (*VaultLogins, error) {
	var v VaultLogins
	if err := read(text, &v); err != nil {
		return nil, err
	}
	for _, i := range v.Instances {
		u, err := url.Parse(i.Address)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || i.LoginPath == "" {
			return nil, fmt.Errorf("instance %q needs the URL of a server as address, and a loginPath", i.Address)
		}
	}
	return &v, nil
}

// Identity returns a token of a service account for an audience, and the account's namespace and name.
type Identity func(ctx context.Context, audience string) (token, namespace, name string, err error)

// Login exchanges a service account token for a token of the server at the address. The audience of the service account
// token is the address of the server; the role is <namespace>_<name of the service account>.
func (k *Keys) Login(ctx context.Context, to *VaultLogins, address string, identity Identity) (string, error) {
	i := slices.IndexFunc(to.Instances, func(l VaultLogin) bool { return SameServer(l.Address, address) })
	if i < 0 {
		return "", Missing("the address is not in the ConfigMap of --sops-vault-configmap")
	}
	at := to.Instances[i]
	token, namespace, name, err := identity(ctx, at.Address)
	if err != nil {
		return "", err
	}
	var answer struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		} `json:"auth"`
	}
	role := namespace + "_" + name
	if err := k.vault(ctx, at.Address, at.LoginPath, "", map[string]string{"role": role, "jwt": token},
		&answer); err != nil {
		return "", fmt.Errorf("login as role %s: %w", role, err)
	}
	return answer.Auth.ClientToken, nil
}
