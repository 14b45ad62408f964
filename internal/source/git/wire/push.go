package wire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
)

// noThin is the capability, or rather the lack of one, to take packs whose deltas build on what is not in them.
const noThin capability.Capability = "no-thin"

const (
	maxReport  = 1 << 20 // bytes of an answer to a push
	maxResults = 1000    // references that it tells of
)

// Push is what a remote is asked to take: all of it or nothing, if it can do that.
type Push struct {
	Commands []Command
	Options  map[string]string // as git push -o name=value has them; only the name where there is no value
	Pack     []byte
}

// Command asks that a reference, which is at Old, be at New. The remote compares; Old is zero for one that is
// not there.
type Command struct {
	Name     string
	Old, New plumbing.Hash
}

// Report is what a remote says of a push.
type Report struct {
	Unpack  string            // why it could not take the pack; empty if it could
	Refused map[string]string // why, by reference
	Said    string            // by hooks and for people, cleaned and cut
}

// DialPush opens a conversation to push, and reads the references. The context bounds this call only. The
// error is a fault.
func DialPush(ctx context.Context, remote Remote) (*Conn, error) {
	return dialService(ctx, remote, receivePack, pushing)
}

// Thin tells whether the remote takes deltas that build on objects which it has.
func (c *Conn) Thin() bool { return !c.Supports(noThin) }

// Push asks the remote to take commits. An error is a fault, and leaves open whether it did.
func (c *Conn) Push(ctx context.Context, p Push) (*Report, error) {
	if len(p.Options) > 0 && !c.Supports(capability.PushOptions) {
		return nil, gitFault("%s takes no push options", c.remote.where()).
			WithHint("Remove spec.git.push.options").Final()
	}
	report, err := c.push(ctx, p)
	if err != nil {
		return nil, c.remote.explain(ctx, err, pushing)
	}
	clean := func(s string) string { return Printable(c.remote.withoutSecrets(s)) }
	report.Unpack, report.Said = clean(report.Unpack), clean(report.Said)
	for name, why := range report.Refused {
		report.Refused[name] = clean(why)
	}
	return report, nil
}

func (c *Conn) push(ctx context.Context, p Push) (*Report, error) {
	request, caps, err := c.encodePush(p)
	if err != nil {
		return nil, err
	}
	stream, err := c.link.ask(ctx, request)
	if err != nil {
		return nil, err
	}
	said := &words{}
	kind := sideband.Sideband64k
	switch {
	case caps.Supports(capability.Sideband64k):
	case caps.Supports(capability.Sideband):
		kind = sideband.Sideband
	default:
		return readReport(stream, len(p.Commands))
	}
	return readBands(stream, kind, said, len(p.Commands))
}

// encodePush writes a push as gitprotocol-pack(5) has it.
func (c *Conn) encodePush(p Push) ([]byte, *capability.List, error) {
	update := packp.NewReferenceUpdateRequest()
	caps := update.Capabilities
	wanted := []capability.Capability{capability.ReportStatus, capability.Quiet, capability.OFSDelta}
	if len(p.Commands) > 1 {
		wanted = append(wanted, capability.Atomic)
	}
	if len(p.Options) > 0 {
		wanted = append(wanted, capability.PushOptions)
	}
	if c.Supports(capability.Sideband64k) {
		wanted = append(wanted, capability.Sideband64k)
	} else {
		wanted = append(wanted, capability.Sideband)
	}
	for _, w := range wanted {
		if c.Supports(w) {
			if err := caps.Set(w); err != nil {
				return nil, nil, err
			}
		}
	}
	if c.Supports(capability.Agent) {
		if err := caps.Set(capability.Agent, agent); err != nil {
			return nil, nil, err
		}
	}
	var b bytes.Buffer
	lines := pktline.NewEncoder(&b)
	var errs []error
	for i, command := range p.Commands {
		line := fmt.Sprintf("%s %s %s", command.Old, command.New, command.Name)
		if i == 0 {
			line += "\x00 " + caps.String()
		}
		errs = append(errs, lines.EncodeString(line))
	}
	errs = append(errs, lines.Flush())
	if len(p.Options) > 0 {
		for _, name := range slices.Sorted(maps.Keys(p.Options)) {
			option := name
			if value := p.Options[name]; value != "" {
				option += "=" + value
			}
			errs = append(errs, lines.EncodeString(option))
		}
		errs = append(errs, lines.Flush())
	}
	b.Write(p.Pack)
	return b.Bytes(), caps, errors.Join(errs...)
}

// bandFailure is how the library begins the error of a message on the band for errors, for which it has no type.
const bandFailure = "unexpected error: "

// readBands reads a report that comes with words for people.
func readBands(r io.Reader, kind sideband.Type, said *words, commands int) (*Report, error) {
	bands := sideband.NewDemuxer(kind, &bounded{r, maxReport, errLongReport})
	bands.Progress = said
	report, err := readReport(bands, commands)
	if err != nil {
		if text, ok := strings.CutPrefix(err.Error(), bandFailure); ok {
			err = &pktline.ErrorLine{Text: text}
		}
		if line := (*pktline.ErrorLine)(nil); errors.As(err, &line) {
			return nil, &pktline.ErrorLine{Text: cmp.Or(strings.TrimSpace(said.String()+" "+line.Text),
				"it gives no reason")}
		}
		return nil, err
	}
	_, _ = io.Copy(io.Discard, bands) // what hooks say after all is done
	report.Said = said.String()
	return report, nil
}

var errLongReport = errors.New("the answer to the push is too long")

// readReport reads "unpack ok", or why not, then "ok <reference>" or "ng <reference> <why>" for each.
func readReport(r io.Reader, commands int) (*Report, error) {
	report := &Report{Refused: map[string]string{}}
	lines := pktline.NewScanner(&bounded{r, maxReport, errLongReport})
	malformed := func() error {
		return fmt.Errorf("%w: %q where the result of a push belongs", errNotGit, Printable(string(lines.Bytes())))
	}
	if !lines.Scan() {
		return nil, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
	}
	unpack, ok := strings.CutPrefix(strings.TrimSuffix(string(lines.Bytes()), "\n"), "unpack ")
	if !ok {
		return nil, malformed()
	}
	if unpack != "ok" {
		report.Unpack = cmp.Or(unpack, "it gives no reason")
	}
	for results := 0; lines.Scan(); results++ {
		line := strings.TrimSuffix(string(lines.Bytes()), "\n")
		if line == "" { // the flush that ends the report
			if results < commands {
				return nil, fmt.Errorf("%w: the result of a push is not whole", errNotGit)
			}
			return report, nil
		}
		word, rest, _ := strings.Cut(line, " ")
		name, why, _ := strings.Cut(rest, " ")
		switch {
		case results >= maxResults || name == "":
			return nil, malformed()
		case word == "ng":
			report.Refused[name] = cmp.Or(why, "it gives no reason")
		case word != "ok":
			return nil, malformed()
		}
	}
	return nil, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
