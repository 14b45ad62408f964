package gate_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// person commits and has a key.
type person struct {
	public      []byte
	fingerprint string
	file        string // with the private key
}

func newPerson(t *testing.T) person {
	t.Helper()
	private, public := sshkeys.New(t)
	key, _, _, _, err := ssh.ParseAuthorizedKey(public)
	if err != nil {
		t.Fatal(err)
	}
	p := person{public: public, fingerprint: ssh.FingerprintSHA256(key), file: filepath.Join(t.TempDir(), "key")}
	if err := os.WriteFile(p.file, private, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// commitSigned commits a file to main of repository app, with the signature of a person, in the name of any author.
func (s *harness) commitSigned(by person, value string) string {
	s.Helper()
	unsigned := s.Git.CommitTo("app", "refs/heads/draft", map[string]string{"a.yaml": system.ConfigMap("a", value)})
	return s.sign(by, unsigned+"^{tree}")
}

// sign commits a tree to main of repository app, with the signature of a person.
func (s *harness) sign(by person, tree string) string {
	s.Helper()
	signed := s.Git.Run("app", "-c", "gpg.format=ssh", "-c", "user.signingkey="+by.file, "commit-tree", "-S", "-m",
		"Change a", tree)
	s.Git.SetRef("app", "refs/heads/main", signed)
	return signed
}

// brokenTree returns a tree that no artifact can be made of.
func (s *harness) brokenTree() string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "tree")
	blob, err := hex.DecodeString(s.Git.Run("app", "rev-parse", "main:a.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("100644 ..\x00"), blob...), 0o600); err != nil {
		s.Fatal(err)
	}
	return s.Git.Run("app", "hash-object", "-w", "--literally", "-t", "tree", file)
}

// TestRulesSeeVerifiedSigners has a gate that lets through what one person signed. All commits name the same author, as
// whoever may push can.
func TestRulesSeeVerifiedSigners(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	trusted, other := newPerson(t), newPerson(t)
	s.Secret("signers", map[string]string{"trusted.pub": string(trusted.public), "other.pub": string(other.public)})
	s.gateWithRules(gatingv1.Closed, gatingv1.Rule{Name: "signed", Outcome: gatingv1.OutcomePass,
		Expression: "'" + trusted.fingerprint + "' in change.signers"})
	s.commitSigned(trusted, "1")
	s.ruled("app")

	t.Log("without verification, the signature is not verified: the signers are not known")
	s.heldBecause("its rule 'signed' cannot be evaluated: no such key: signers")

	t.Log("a commit of another person, in the name of the same author, is held")
	g := &sourcev1.GitRepository{}
	s.Update(g, "app", func() {
		g.Spec.Verification = &sourcev1.GitRepositoryVerification{Mode: "HEAD",
			SecretRef: meta.LocalObjectReference{Name: "signers"}}
	})
	held := s.commitSigned(other, "2")
	s.RequestFetch("app")
	s.GitRepositoryReady("app", held)
	s.heldBecause("is closed, and none of its rules applies")

	t.Log("a commit of the person that cannot be stored says nothing about the one that is")
	s.sign(trusted, s.brokenTree())
	s.RequestFetch("app")
	s.NotReady(g, "app", "GitOperationFailed", "malformed")
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	s.heldBecause("is closed, and none of its rules applies")

	t.Log("that of the person passes")
	passed := s.commitSigned(trusted, "3")
	s.RequestFetch("app")
	s.Ready("app", passed)
	s.ConfigMapHas("a", "3")

	t.Log("files of another repository are not signed by the person")
	s.Git.Commit("other", map[string]string{"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("other", func(g *sourcev1.GitRepository) { g.Spec.URL = s.Git.URL + "/other" })
	include := []sourcev1.GitRepositoryInclude{{GitRepositoryRef: meta.LocalObjectReference{Name: "other"}}}
	s.Update(g, "app", func() { g.Spec.Include = include })
	s.heldBecause("its rule 'signed' cannot be evaluated: no such key: signers")
	s.Update(g, "app", func() { g.Spec.Include = nil })
	s.Ready("app", passed)

	t.Log("a signature by a key that is not trusted is not fetched")
	s.commitSigned(newPerson(t), "4")
	s.RequestFetch("app")
	s.NotReady(g, "app", "InvalidCommitSignature", "")
	s.ConfigMapHas("a", "3")
}
