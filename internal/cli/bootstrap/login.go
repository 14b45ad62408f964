package bootstrap

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
)

// LoginKind is how the cluster logs in to the repository.
type LoginKind int

// The kinds of login.
const (
	Password    LoginKind = iota // a username and a password, or a token
	DeployKey                    // an SSH key, which the bootstrap creates unless one is given
	DeployToken                  // a token that the host creates
)

// Login is the cluster's login for the repository.
type Login struct {
	Kind       LoginKind
	Data       map[string][]byte // of the Secret: what is given of it
	Key        sshkey.Spec       // for DeployKey
	Writable   bool              // the deploy key may push
	KnownHosts []byte            // of the SSH host; those that the host shows when empty
	Silent     bool              // do not ask whether a person added the deploy key
}

// Keys in the data of Secrets.
const (
	identityKey   = "identity"
	publicKey     = "identity.pub"
	passphraseKey = "password"
	knownHostsKey = "known_hosts"
)

// storeLogin stores the login in the Secret that the GitRepository refers to.
func (r *run) storeLogin(ctx context.Context) error {
	switch r.Login.Kind {
	case Password:
		return r.putSecret(ctx, r.Login.Data)
	case DeployKey:
		return r.storeDeployKey(ctx)
	case DeployToken:
		return r.storeDeployToken(ctx)
	}
	return nil
}

// findKnownHosts sets the keys of the SSH host of a URL: those that were given, those that the cluster trusts already,
// or those that the host shows, which are printed.
func (r *run) findKnownHosts(ctx context.Context, rawURL string) error {
	switch {
	case len(r.Login.KnownHosts) > 0:
		r.state.knownHosts = r.Login.KnownHosts
		return nil
	case len(r.state.secret[knownHostsKey]) > 0 && hostOf(r.state.source) == hostOf(rawURL):
		r.state.knownHosts = r.state.secret[knownHostsKey]
		return nil
	}
	address, err := sshAddress(rawURL)
	if err != nil {
		return err
	}
	r.Output.Live("asking %s for its host keys", address)
	keys, err := sshkey.Scan(ctx, address)
	if err != nil {
		return failed("the SSH host of the repository cannot be reached").Because(err).WithHint("%s", r.addressHint())
	}
	r.Output.Step("%s has these host keys, which the cluster will trust. Compare them with those that its owner "+
		"publishes:", hostOf(rawURL))
	for _, fingerprint := range keys.Fingerprints {
		r.Output.Step("  %s", fingerprint)
	}
	r.state.knownHosts = keys.KnownHosts
	return nil
}

// addressHint says how to correct the address of the SSH server.
func (r *run) addressHint() string {
	if r.Repository.Host == nil {
		return "Correct the host or the port in --url, or check that this machine can reach it"
	}
	return "Set --ssh-hostname to the name and port of the SSH server, or check that this machine can reach it"
}

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// storeDeployKey stores the key, and adds it to the repository. The host gets a new key before the cluster uses it, so
// that the cluster never loses its access.
func (r *run) storeDeployKey(ctx context.Context) error {
	data, isNew, err := r.deployKey()
	if err != nil {
		return err
	}
	public := data[publicKey]
	r.keep = strings.TrimSpace(string(public))
	switch {
	case r.Repository.Host == nil && len(r.Login.Data[identityKey]) > 0:
		return r.putSecret(ctx, data)
	case r.Repository.Host == nil:
		return r.askForKey(ctx, data, isNew)
	}
	changed, err := r.Repository.Host.Client.EnsureDeployKey(ctx, githost.DeployKey{
		Title: r.title() + " " + digest(public), Key: r.keep, Writable: r.Login.Writable})
	if err != nil {
		return err
	}
	if changed {
		r.Output.Done("deploy key added to the repository")
	}
	return r.putSecret(ctx, data)
}

// deployKey returns the data of the Secret with the given key, the one that the cluster has, or a new one.
func (r *run) deployKey() (data map[string][]byte, isNew bool, err error) {
	data = map[string][]byte{knownHostsKey: r.state.knownHosts}
	from := r.Login.Data
	if len(from[identityKey]) == 0 {
		from = r.state.secret
		_, err := sshkey.Public(from[identityKey], string(from[passphraseKey]))
		isNew = err != nil || r.RotateKey
	}
	if isNew {
		private, err := sshkey.Generate(r.Login.Key)
		if err != nil {
			return nil, false, failed("cannot create an SSH key").Because(err).
				WithHint("Correct --ssh-key-algorithm, --ssh-ecdsa-curve or --ssh-rsa-bits").Final()
		}
		from = map[string][]byte{identityKey: private}
	}
	for _, key := range []string{identityKey, passphraseKey} {
		if len(from[key]) > 0 {
			data[key] = from[key]
		}
	}
	data[publicKey], err = sshkey.Public(data[identityKey], string(data[passphraseKey]))
	return data, isNew, err
}

// askForKey shows the public key to a person, who adds it to the repository. A first key is stored before, so that the
// next run shows the same.
func (r *run) askForKey(ctx context.Context, data map[string][]byte, isNew bool) error {
	if !isNew && r.state.applied != "" { // it works
		return r.putSecret(ctx, data)
	}
	isRotation := isNew && r.state.applied != "" && len(r.state.secret[identityKey]) > 0
	if !isRotation {
		if err := r.putSecret(ctx, data); err != nil {
			return err
		}
	}
	r.Output.Step("public key: %s", r.keep)
	if !r.Login.Silent && !r.Output.Confirm("Does the repository have this deploy key?") {
		return failed("the cluster cannot read the repository without the deploy key").
			WithHint("Add the public key above to the repository, and run the command again").Final()
	}
	if isRotation {
		return r.putSecret(ctx, data)
	}
	return nil
}

// digest returns the first digits of a digest, to tell keys of one name apart.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:4])
}

// storeDeployToken creates a token, unless the cluster has one that the host accepts.
func (r *run) storeDeployToken(ctx context.Context) error {
	h := r.Repository.Host.Client
	username := string(r.state.secret["username"])
	data := maps.Clone(r.Login.Data)
	if username != "" && len(r.state.secret["password"]) > 0 && !r.RotateKey {
		ok, err := h.HasDeployToken(ctx, r.title(), username)
		if err != nil {
			return err
		}
		if ok {
			r.keep = username
			data["username"], data["password"] = r.state.secret["username"], r.state.secret["password"]
			return r.putSecret(ctx, data)
		}
	}
	t, err := h.CreateDeployToken(ctx, r.title())
	if err != nil {
		return err
	}
	r.Output.Done("deploy token '%s' created", t.Username)
	r.keep = t.Username
	data["username"], data["password"] = []byte(t.Username), []byte(t.Token)
	return r.putSecret(ctx, data)
}

// putSecret creates the Secret, or replaces its data if they differ.
func (r *run) putSecret(ctx context.Context, data map[string][]byte) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.SecretName}}
	what := fmt.Sprintf("Secret '%s/%s'", r.Namespace, r.SecretName)
	if r.state.secret == nil {
		s.Data = data
		if err := r.Client.Create(ctx, s); err != nil {
			return clusterFault("cannot create "+what, err)
		}
		r.Output.Done("%s created", what)
		r.state.secret = data
		return nil
	}
	if maps.EqualFunc(r.state.secret, data, bytes.Equal) {
		return nil
	}
	if err := r.Client.Get(ctx, keyOf(s), s); err != nil {
		return clusterFault("cannot get "+what, err)
	}
	s.Data = data
	if err := r.Client.Update(ctx, s); err != nil {
		return clusterFault("cannot update "+what, err)
	}
	r.Output.Done("%s updated", what)
	r.state.secret = data
	return nil
}

// cleanUp removes keys and tokens of earlier runs, which the cluster does not use anymore.
func (r *run) cleanUp(ctx context.Context) error {
	if r.Repository.Host == nil || r.keep == "" {
		return nil
	}
	remove := r.Repository.Host.Client.RemoveDeployKeys
	if r.Login.Kind == DeployToken {
		remove = r.Repository.Host.Client.RemoveDeployTokens
	}
	n, err := remove(ctx, r.title(), r.keep)
	if n > 0 {
		r.Output.Done("removed %d earlier keys of this cluster from the repository", n)
	}
	return err
}
