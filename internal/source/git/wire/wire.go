// Package wire speaks the client's side of git's protocols over HTTP(S) and SSH: what references a remote
// has, a pack of what is asked for, and a pack with what the references shall be. It stores nothing, resolves
// nothing, and its errors are made for the person who reads them: no credential stands in one.
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

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
)

// agent is how this client calls itself.
const agent = "git/sluice"

// maxAdvertisement bounds, in bytes, the list of a remote's references.
const maxAdvertisement = 64 << 20

// Remote is where a repository is and how to get in.
type Remote struct {
	URL         string // http, https or ssh
	Credentials auth.GitCredentials
	// who logs in, for credentials that are renewed: it stands for them where they are compared
	Identity string
	ProxyURL string         // the environment's proxy when empty
	Egress   *egress.Policy // shared by the process; a new one for each conversation when nil
	Scratch  string         // directory for a file that lives for a moment; the system's when empty
	SSH      *SSHAlgorithms // what SSH may use; the library's choice when nil
}

func (r Remote) egress() *egress.Policy { return cmp.Or(r.Egress, &egress.Policy{}) }

// SSHAlgorithms are those that SSH may use, the preferred ones first; the library's choice where there are none.
type SSHAlgorithms struct{ HostKeys, KeyExchanges []string }

// Stats counts what went over the wire.
type Stats struct {
	Requests      int64 // HTTP requests, or SSH connections
	BytesReceived int64
}

// Conn is one conversation with a remote: its references, then at most one fetch or push.
type Conn struct {
	// Refs are the references that the remote has.
	Refs *packp.AdvRefs

	remote Remote
	link   link
	counts *counts
}

// link carries bytes to the service and back.
type link interface {
	// open starts the conversation and returns what the service says first.
	open(ctx context.Context) (io.Reader, error)
	// ask sends a request and returns the answer.
	ask(ctx context.Context, request []byte) (io.Reader, error)
	// close ends the conversation.
	close()
}

// counts are Stats in the making.
type counts struct{ requests, bytes atomic.Int64 }

// The services of a git server.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// Dial opens a conversation to fetch, and reads the references. The context bounds this call only. The error
// is a fault.
func Dial(ctx context.Context, remote Remote) (*Conn, error) {
	c, err := dialService(ctx, remote, uploadPack, listing)
	if err == nil && c.Refs.IsEmpty() {
		c.Close()
		return nil, remote.explain(ctx, errEmpty, listing)
	}
	return c, err
}

func dialService(ctx context.Context, remote Remote, service string, doing task) (*Conn, error) {
	c := &Conn{remote: remote, counts: &counts{}, Refs: packp.NewAdvRefs()}
	var err error
	if c.link, err = newLink(remote, service, c.counts); err != nil {
		return nil, err
	}
	if err := c.advertised(ctx); err != nil {
		c.link.close()
		return nil, remote.explain(ctx, err, doing)
	}
	return c, nil
}

func (c *Conn) advertised(ctx context.Context) error {
	r, err := c.link.open(ctx)
	if err != nil {
		return err
	}
	err = c.Refs.Decode(&bounded{r, maxAdvertisement, errors.New("the list of references is too long")})
	if errors.Is(err, packp.ErrEmptyAdvRefs) {
		return nil
	}
	return err
}

// Close ends the conversation.
func (c *Conn) Close() { c.link.close() }

// Stats returns what went over the wire so far.
func (c *Conn) Stats() Stats { return Stats{c.counts.requests.Load(), c.counts.bytes.Load()} }

// Supports tells whether the remote is capable of something.
func (c *Conn) Supports(what capability.Capability) bool { return c.Refs.Capabilities.Supports(what) }

// Request says what to fetch.
type Request struct {
	Want []plumbing.Hash
	// Single asks for the one commit without its history, of a remote that supports capability.Shallow.
	Single bool
	// Have are commits that are held, each with all of its tree; the pack builds on them.
	Have []plumbing.Hash
	// Shallow are commits that are held without their parents.
	Shallow []plumbing.Hash
}

// Answer is what the remote sends.
type Answer struct {
	Shallow []plumbing.Hash // commits that come without their parents
	Pack    io.Reader       // thin: its deltas may build on objects of the commits in Request.Have

	conn *Conn
	ctx  context.Context
}

// Fetch asks for a pack. The context bounds the reading of the pack, too. The error is a fault.
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
	stream, err := c.link.ask(ctx, body)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(stream)
	answer := &Answer{conn: c, ctx: ctx, Pack: r}
	if answer.Shallow, err = readAnswer(r, request.Single); err != nil {
		return nil, err
	}
	switch {
	case caps.Supports(capability.Sideband64k):
		answer.Pack = sideband.NewDemuxer(sideband.Sideband64k, r)
	case caps.Supports(capability.Sideband):
		answer.Pack = sideband.NewDemuxer(sideband.Sideband, r)
	}
	answer.Pack = &bounded{answer.Pack, maxPack, fmt.Errorf("%w of more than %d MiB", errTooMuch, maxPack>>20)}
	return answer, nil
}

// Explain turns an error of reading the pack into a fault.
func (a *Answer) Explain(err error) error { return a.conn.remote.explain(a.ctx, err, fetching) }

// encode writes a request as gitprotocol-pack(5) has it. All is said at once, so that one exchange does.
func (c *Conn) encode(request Request) ([]byte, *capability.List, error) {
	upload := packp.NewUploadRequest()
	caps := upload.Capabilities
	for _, choice := range [][]capability.Capability{
		{capability.MultiACKDetailed, capability.MultiACK}, // nothing is gained, but Azure DevOps insists
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
	if request.Single || len(request.Shallow) > 0 {
		if err := caps.Set(capability.Shallow); err != nil {
			return nil, nil, err
		}
		upload.Shallows = request.Shallow
	}
	if request.Single {
		upload.Depth = packp.DepthCommits(1)
	}
	if err := upload.Validate(); err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	haves := packp.UploadHaves{Haves: request.Have}
	err := errors.Join(upload.Encode(&b), haves.Encode(&b, false), pktline.NewEncoder(&b).EncodeString("done\n"))
	return b.Bytes(), caps, err
}

// readAnswer reads what comes before the pack: the history's ends, if a depth was asked for, and the acknowledgements.
func readAnswer(r *bufio.Reader, depth bool) (shallow []plumbing.Hash, err error) {
	lines := pktline.NewScanner(r) // reads no further than the line
	for depth && lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			depth = false // the flush that ends the section
			break
		}
		word, hash, _ := bytes.Cut(line, []byte(" "))
		switch {
		case string(word) == "unshallow":
		case string(word) != "shallow" || len(hash) != 40:
			return nil, fmt.Errorf("%w: %q where the ends of the history belong", errNotGit, Printable(string(line)))
		default:
			shallow = append(shallow, plumbing.NewHash(string(hash)))
		}
	}
	for final := false; !depth && !final && lines.Scan(); {
		final, err = acknowledged(lines.Bytes())
		if err != nil {
			return nil, err
		}
		for final { // some servers repeat themselves
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

// acknowledged tells whether the line is the last before the pack: "NAK", or "ACK <hash>" with no word behind it.
func acknowledged(line []byte) (final bool, err error) {
	words := bytes.Fields(line)
	switch {
	case len(words) == 1 && string(words[0]) == "NAK":
		return true, nil
	case len(words) >= 2 && string(words[0]) == "ACK":
		return len(words) == 2, nil
	}
	return false, fmt.Errorf("%w: %q where an acknowledgement belongs", errNotGit, Printable(string(line)))
}

// bounded fails when more comes than may.
type bounded struct {
	io.Reader
	left int64
	err  error
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.err
	}
	return n, err
}
