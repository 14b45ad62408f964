package sshkey

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"

	"golang.org/x/crypto/ssh/agent"
)

// maxAgentKeys is the maximum number of keys of an agent that are used. Servers end a connection after a few attempts.
const maxAgentKeys = 6

// Agent returns the keys of the SSH agent at a socket, without their private parts: the agent signs. The keys can be
// used until closeAgent is called. Their digests are of the public keys.
func Agent(socket string) (keys []*Private, closeAgent func() error, err error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot reach the SSH agent: %w", err)
	}
	signers, err := agent.NewClient(conn).Signers()
	if err == nil && len(signers) == 0 {
		err = errors.New("it has no keys")
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot use the SSH agent: %w", err), conn.Close())
	}
	for _, s := range signers[:min(len(signers), maxAgentKeys)] {
		keys = append(keys, &Private{signer: s, digest: sha256.Sum256(s.PublicKey().Marshal())})
	}
	return keys, conn.Close, nil
}
