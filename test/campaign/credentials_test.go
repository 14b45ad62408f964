package campaign

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestCampaignCredentials creates pairs of GitRepositories whose credentials differ in one byte, and key files that
// name the public key of another tenant. No two may share a mirror.
func TestCampaignCredentials(t *testing.T) {
	const short, full = 12, 1000
	e := begin(t, short, full)
	n := newTenant(t, testenv.NewGit(t))
	n.commit("1")
	c := start(t, settings{namespace: n.namespace, isAlone: true, flags: []string{"--log-level", "error"}})
	c.runs()
	e.each(func(i int, random *rand.Rand) {
		value := make([]byte, 1+random.IntN(40))
		for j := range value {
			value[j] = byte('!' + random.IntN(90))
		}
		other := bytes.Clone(value)
		at := random.IntN(len(other))
		other[at] = '!' + (other[at]-'!'+byte(1+random.IntN(89)))%90
		form := []string{"password", "username", "bearerToken"}[random.IntN(3)]
		for j, v := range [][]byte{value, other} {
			n.login(fmt.Sprintf("pair-%d-%d", i, j), form, v)
		}
		mismatched(n, i, random)
	})
	testenv.Eventually(t, "all pairs are fetched, and no mismatched key is accepted", func() error {
		c.mustLive()
		return n.pairsDone()
	})
	shared, mirrors := 0, 0
	users, err := filepath.Glob(filepath.Join(c.storage, "mirrors", "*", "user-*"))
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]int{}
	for _, u := range users {
		owners[filepath.Dir(u)]++
	}
	for dir, count := range owners {
		mirrors++
		if count > 1 {
			shared++
			t.Errorf("%d sources share the mirror %s", count, dir)
		}
	}
	if mirrors < 2*e.count {
		t.Errorf("%d mirrors of %d pairs", mirrors, e.count)
	}
	e.note("%d mirrors, %d shared, %d mismatched keys refused", mirrors, shared, e.count)
}

// login creates a source with a login.
func (n *tenant) login(name, form string, value []byte) {
	n.Helper()
	data := map[string][]byte{form: value}
	if form != "bearerToken" {
		data = map[string][]byte{"username": []byte("git"), "password": []byte("password")}
		data[form] = value
	}
	n.create(&corev1.Secret{ObjectMeta: n.named(name), Data: data}, n.source(name, func(g *sourcev1.GitRepository) {
		g.Spec.SecretRef = &meta.LocalObjectReference{Name: name}
	}))
}

// mismatched creates a source with the private key of one tenant and the public key of another in one file.
func mismatched(n *tenant, i int, random *rand.Rand) {
	n.Helper()
	var own, victim [ed25519.SeedSize]byte
	for j := range own {
		own[j], victim[j] = byte(random.UintN(256)), byte(random.UintN(256))
	}
	public := ed25519.NewKeyFromSeed(victim[:]).Public().(ed25519.PublicKey)
	block, err := ssh.MarshalPrivateKey(append(ed25519.PrivateKey(own[:]), public...), "")
	if err != nil {
		n.Fatal(err)
	}
	name := fmt.Sprintf("mismatched-%d", i)
	host := "AAAAC3NzaC1lZDI1NTE5AAAAI" + hex.EncodeToString(victim[:])[:43]
	n.create(&corev1.Secret{ObjectMeta: n.named(name), Data: map[string][]byte{
		"identity": pem.EncodeToMemory(block), "known_hosts": []byte("127.0.0.1 ssh-ed25519 " + host)}},
		n.source(name, func(g *sourcev1.GitRepository) {
			g.Spec.URL, g.Spec.SecretRef = "ssh://git@127.0.0.1:1/"+n.repo, &meta.LocalObjectReference{Name: name}
		}))
}

// pairsDone returns an error unless all pairs are Ready and all mismatched keys refused.
func (n *tenant) pairsDone() error {
	var list sourcev1.GitRepositoryList
	if err := n.client.List(context.Background(), &list, client.InNamespace(n.namespace)); err != nil {
		return err
	}
	for _, g := range list.Items {
		ready := apimeta.FindStatusCondition(g.Status.Conditions, "Ready")
		if ready == nil {
			return errors.New(g.Name + " has no status")
		}
		isMismatched := strings.HasPrefix(g.Name, "mismatched-")
		if isMismatched && !strings.Contains(ready.Message, "does not belong to the private key") ||
			!isMismatched && ready.Status != "True" {
			return fmt.Errorf("%s: %s", types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, ready.Message)
		}
	}
	return nil
}
