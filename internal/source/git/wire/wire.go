// Package wire is a client of git's protocols over HTTP(S) and SSH. It lists the references of a remote, fetches packs
// and pushes packs. It stores nothing and resolves no reference. Errors are faults, and contain no credentials.
package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// agent is the name of this client in the protocol.
const agent = "git/sluice"

const (
	maxAdvertisement = 64 << 20 // bytes of the list of references
	refMemory        = 4        // bytes for each of them
)

// Remote is a repository and the access to it.
type Remote struct {
	URL         string // http, https or ssh
	Credentials auth.GitCredentials
	// Identity replaces credentials in comparisons, for credentials that are renewed.
	Identity string
	ProxyURL string         // the proxy of the environment when empty
	Egress   *egress.Policy // shared by the process; a new one for each conversation when nil
	Scratch  string         // directory for temporary files; that of the system when empty
	SSH      *SSHAlgorithms // allowed algorithms; the default of the library when nil
}

func (r Remote) egress() *egress.Policy { return cmp.Or(r.Egress, &egress.Policy{}) }

// SSHAlgorithms are the allowed algorithms, the preferred ones first. An empty list is the default of the library.
type SSHAlgorithms struct{ HostKeys, KeyExchanges []string }

// Stats are the counts of a conversation.
type Stats struct {
	Requests      int64 // HTTP requests, or SSH connections
	BytesReceived int64
}

// Conn is a conversation with a remote: it reads the references, then does at most one fetch or push.
type Conn struct {
	// Refs are the references of the remote.
	Refs *packp.AdvRefs

	remote Remote
	link   link
	counts *counts
	lease  *guard.Lease // of the references
}

// link is the transport of a conversation.
type link interface {
	// open starts the conversation and returns the first message of the service.
	open(ctx context.Context) (io.Reader, error)
	// send sends a request and returns the answer.
	send(ctx context.Context, request []byte) (io.Reader, error)
	// close ends the conversation.
	close()
}

// counts are the current Stats.
type counts struct{ requests, bytes atomic.Int64 }

// The services of a git server.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// Dial opens a conversation to fetch, and reads the references. ctx applies to this call only. The error is a fault.
func Dial(ctx context.Context, remote Remote) (*Conn, error) {
	c, err := dialService(ctx, remote, uploadPack, listing)
	if err == nil && c.Refs.IsEmpty() {
		c.Close()
		return nil, remote.explain(ctx, errEmpty, listing)
	}
	return c, err
}

func dialService(ctx context.Context, remote Remote, service string, operation task) (*Conn, error) {
	c := &Conn{remote: remote, counts: &counts{}, Refs: packp.NewAdvRefs()}
	var err error
	if c.link, err = newLink(remote, service, c.counts); err != nil {
		return nil, err
	}
	if err := c.readRefs(ctx); err != nil {
		c.Close()
		return nil, remote.explain(ctx, err, operation)
	}
	return c, nil
}

// readRefs reads the references of the remote.
func (c *Conn) readRefs(ctx context.Context) error {
	r, err := c.link.open(ctx)
	if err != nil {
		return err
	}
	c.lease = guard.NewLease(ctx, "the references of a git repository")
	start := &beginning{Reader: guard.Metered(ctx, r, refMemory, c.lease)}
	err = c.Refs.Decode(&limited{Reader: start, left: maxAdvertisement,
		err: errors.New("the list of references is too long")})
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs):
		return nil
	case err != nil && bytes.Contains(start.read, []byte("object-format=sha256")):
		return errObjectFormat
	}
	return err
}

// beginning is a reader that keeps the first bytes that were read, in which a server names its capabilities.
type beginning struct {
	io.Reader
	read []byte
}

// maxBeginning is the number of bytes that a beginning keeps: more than the line with the capabilities has.
const maxBeginning = 8 << 10

func (b *beginning) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read = append(b.read, p[:min(n, maxBeginning-len(b.read))]...)
	return n, err
}

// Close ends the conversation.
func (c *Conn) Close() {
	c.link.close()
	c.lease.Release()
}

// Stats returns the current counts.
func (c *Conn) Stats() Stats { return Stats{c.counts.requests.Load(), c.counts.bytes.Load()} }

// Supports reports whether the remote has a capability.
func (c *Conn) Supports(name capability.Capability) bool { return c.Refs.Capabilities.Supports(name) }

// Request describes a fetch.
type Request struct {
	Want []plumbing.Hash
	// Single requests commits without their history. The remote must support capability.Shallow.
	Single bool
	// Depth limits the history; zero does not. The remote must support capability.Shallow.
	Depth int
	// WithoutTrees requests commits without their trees and files, if the remote supports it.
	WithoutTrees bool
	// Have are commits that we have, each with its whole tree. The deltas of the pack may refer to their objects.
	Have []plumbing.Hash
	// Shallow are commits that we have without their parents.
	Shallow []plumbing.Hash
}

// depth returns the maximum depth of the history; zero if it is not limited.
func (r Request) depth() int {
	if r.Single {
		return 1
	}
	return r.Depth
}

// maxBoundary is the maximum number of commits that a history of limited depth may end at.
const maxBoundary = 200_000

// maxShallow returns the maximum number of lines in the shallow section of an answer. A history of depth 1 ends at the
// wanted commits, and at most those that were shallow before are named besides. Where a deeper one ends depends on its
// branches.
func (r Request) maxShallow() int {
	if r.depth() > 1 {
		return maxBoundary
	}
	return len(r.Want) + len(r.Shallow)
}

// Answer is the answer to a Request.
type Answer struct {
	Shallow []plumbing.Hash // commits that are sent without their parents
	Pack    io.Reader       // thin: bases of deltas may be objects of the commits in Request.Have

	conn *Conn
	ctx  context.Context
}

// Fetch requests a pack of at most maxPack bytes. ctx also applies to reading the pack. The error is a fault.
func (c *Conn) Fetch(ctx context.Context, request Request, maxPack int64) (*Answer, error) {
	answer, err := c.fetch(ctx, request, maxPack)
	if err != nil {
		return nil, c.remote.explain(ctx, err, fetching)
	}
	return answer, nil
}

func (c *Conn) fetch(ctx context.Context, request Request, maxPack int64) (*Answer, error) {
	body, caps, err := c.encode(request)
	if err != nil {
		return nil, err
	}
	stream, err := c.link.send(ctx, body)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(stream)
	answer := &Answer{conn: c, ctx: ctx, Pack: r}
	if answer.Shallow, err = readAnswer(r, request.depth() > 0, request.maxShallow()); err != nil {
		return nil, err
	}
	switch {
	case caps.Supports(capability.Sideband64k):
		answer.Pack = sideband.NewDemuxer(sideband.Sideband64k, r)
	case caps.Supports(capability.Sideband):
		answer.Pack = sideband.NewDemuxer(sideband.Sideband, r)
	}
	answer.Pack = &limited{Reader: answer.Pack, left: maxPack,
		err: fmt.Errorf("%w of more than %d MiB", errTooLarge, maxPack>>20)}
	return answer, nil
}

// Explain returns the fault for an error of reading the pack.
func (a *Answer) Explain(err error) error { return a.conn.remote.explain(a.ctx, err, fetching) }

// encode returns a request in the format of gitprotocol-pack(5). It is one message, so that one round trip suffices.
func (c *Conn) encode(request Request) ([]byte, *capability.List, error) {
	upload := packp.NewUploadRequest()
	caps := upload.Capabilities
	for _, choice := range [][]capability.Capability{
		{capability.MultiACKDetailed, capability.MultiACK}, // not used, but required by Azure DevOps
		{capability.Sideband64k, capability.Sideband},
		{capability.ThinPack}, {capability.OFSDelta}, {capability.NoProgress},
	} {
		for _, option := range choice {
			if c.Supports(option) {
				if err := caps.Set(option); err != nil {
					return nil, nil, err
				}
				break
			}
		}
	}
	if c.Supports(capability.Agent) {
		if err := caps.Set(capability.Agent, agent); err != nil {
			return nil, nil, err
		}
	}
	upload.Wants = request.Want
	if request.depth() > 0 || len(request.Shallow) > 0 {
		if err := caps.Set(capability.Shallow); err != nil {
			return nil, nil, err
		}
		upload.Shallows = request.Shallow
	}
	if depth := request.depth(); depth > 0 {
		upload.Depth = packp.DepthCommits(depth)
	}
	if request.WithoutTrees && c.Supports(capability.Filter) {
		if err := caps.Set(capability.Filter); err != nil {
			return nil, nil, err
		}
		upload.Filter = packp.FilterTreeDepth(0)
	}
	if err := upload.Validate(); err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	haves := packp.UploadHaves{Haves: request.Have}
	err := errors.Join(upload.Encode(&b), haves.Encode(&b, false), pktline.NewEncoder(&b).EncodeString("done\n"))
	return b.Bytes(), caps, err
}

// readAnswer reads what precedes the pack: at most as many lines of shallow commits, if a depth was requested, and the
// acknowledgements.
func readAnswer(r *bufio.Reader, depth bool, most int) (shallow []plumbing.Hash, err error) {
	lines := pktline.NewScanner(r) // does not read beyond the line
	for n := 0; depth && lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			depth = false // a flush packet ends the section
			break
		}
		if n == most {
			return nil, fmt.Errorf("%w: more than %d", errShallow, most)
		}
		word, hash, _ := bytes.Cut(line, []byte(" "))
		switch {
		case string(word) == "unshallow":
		case string(word) != "shallow" || len(hash) != 40:
			return nil, fmt.Errorf("%w: got %q instead of a shallow commit", errNotGit, Printable(string(line)))
		default:
			shallow = append(shallow, plumbing.NewHash(string(hash)))
		}
	}
	for final := false; !depth && !final && lines.Scan(); {
		final, err = parseAcknowledgement(lines.Bytes())
		if err != nil {
			return nil, err
		}
		for final { // some servers repeat the acknowledgement
			ahead, err := r.Peek(7)
			if err != nil || string(ahead[4:]) != "ACK" && string(ahead[4:]) != "NAK" {
				return shallow, nil
			}
			lines.Scan()
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: the answer ends before the pack", errNotGit)
}

// parseAcknowledgement reports whether the line is the last one before the pack: "NAK", or "ACK <hash>" without a
// status.
func parseAcknowledgement(line []byte) (final bool, err error) {
	words := bytes.Fields(line)
	switch {
	case len(words) == 1 && string(words[0]) == "NAK":
		return true, nil
	case len(words) >= 2 && string(words[0]) == "ACK":
		return len(words) == 2, nil
	}
	return false, fmt.Errorf("%w: got %q instead of an acknowledgement", errNotGit, Printable(string(line)))
}

// limited is a reader that returns err if there is more data than allowed.
type limited struct {
	io.Reader
	left int64
	err  error
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, l.err
	}
	return n, err
}
