package campaign

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
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
	logins := map[string]string{} // by source
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
			name := fmt.Sprintf("pair-%d-%d", i, j)
			n.login(name, form, v)
			logins[name] = form + " " + string(v)
		}
		mismatched(n, i, random)
	})
	testenv.Eventually(t, "all pairs are fetched, and no mismatched key is accepted", func() error {
		c.mustLive()
		return n.pairsDone()
	})
	mirrors := n.mirrors(c, logins)
	different := len(slices.Compact(slices.Sorted(maps.Values(logins))))
	if mirrors != different {
		t.Errorf("%d mirrors of %d different logins", mirrors, different)
	}
	e.note("%d mirrors of %d different logins, %d mismatched keys refused", mirrors, different, e.count)
}

// mirrors returns the number of mirrors, and fails the test if sources with different logins share one. Short random
// logins may be equal.
func (n *tenant) mirrors(c *controller, logins map[string]string) int {
	n.Helper()
	var sources sourcev1.GitRepositoryList
	if err := n.client.List(context.Background(), &sources, client.InNamespace(n.namespace)); err != nil {
		n.Fatal(err)
	}
	names := map[string]string{}
	for _, g := range sources.Items {
		names["user-"+string(g.UID)] = g.Name
	}
	users, err := filepath.Glob(filepath.Join(c.storage, "mirrors", "*", "user-*"))
	if err != nil {
		n.Fatal(err)
	}
	first := map[string]string{}
	for _, u := range users {
		dir, name := filepath.Dir(u), names[filepath.Base(u)]
		if first[dir] == "" {
			first[dir] = name
		}
		if logins[name] != logins[first[dir]] {
			n.Errorf("%s and %s share the mirror %s", first[dir], name, dir)
		}
	}
	return len(first)
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
