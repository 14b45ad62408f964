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

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// noThin is the capability of remotes that accept no thin packs.
const noThin capability.Capability = "no-thin"

const (
	maxReport  = 1 << 20 // bytes of the answer to a push
	maxResults = 1000    // references in it
)

// Push describes a push. It is atomic if the remote supports it.
type Push struct {
	Commands []Command
	Options  map[string]string // as of git push -o name=value; a value may be empty
	Pack     []byte
}

// Command moves a reference from Old to New. The remote compares Old, which is zero for a new reference.
type Command struct {
	Name     string
	Old, New plumbing.Hash
}

// Report is the answer to a push.
type Report struct {
	Unpack  string            // why the remote could not unpack the pack; empty on success
	Refused map[string]string // by reference: why the remote refused to update it
	Output  string            // of hooks, for people; sanitized and shortened
}

// DialPush opens a conversation to push, and reads the references. ctx applies to this call only. The error is a fault.
func DialPush(ctx context.Context, remote Remote) (*Conn, error) {
	return dialService(ctx, remote, receivePack, pushing)
}

// Thin reports whether the remote accepts thin packs.
func (c *Conn) Thin() bool { return !c.Supports(noThin) }

// Push sends a push. The error is a fault; the remote may have accepted the push nevertheless.
func (c *Conn) Push(ctx context.Context, p Push) (*Report, error) {
	if len(p.Options) > 0 && !c.Supports(capability.PushOptions) {
		return nil, gitFault("%s does not support push options", c.remote.where()).
			WithHint("Remove spec.git.push.options").Final()
	}
	report, err := c.push(ctx, p)
	if err != nil {
		return nil, c.remote.explain(ctx, err, pushing)
	}
	clean := func(s string) string { return Printable(c.remote.withoutSecrets(s)) }
	report.Unpack, report.Output = clean(report.Unpack), clean(report.Output)
	for name, cause := range report.Refused {
		report.Refused[name] = clean(cause)
	}
	return report, nil
}

func (c *Conn) push(ctx context.Context, p Push) (*Report, error) {
	request, caps, err := c.encodePush(p)
	if err != nil {
		return nil, err
	}
	stream, err := c.link.send(ctx, request)
	if err != nil {
		return nil, err
	}
	output := &excerpt.Head{Most: maxOutput}
	kind := sideband.Sideband64k
	switch {
	case caps.Supports(capability.Sideband64k):
	case caps.Supports(capability.Sideband):
		kind = sideband.Sideband
	default:
		return readReport(stream, len(p.Commands))
	}
	return readBands(stream, kind, output, len(p.Commands))
}

// encodePush returns a push in the format of gitprotocol-pack(5).
func (c *Conn) encodePush(p Push) ([]byte, *capability.List, error) {
	update := packp.NewReferenceUpdateRequest()
	caps := update.Capabilities
	capabilities := []capability.Capability{capability.ReportStatus, capability.Quiet, capability.OFSDelta}
	if len(p.Commands) > 1 {
		capabilities = append(capabilities, capability.Atomic)
	}
	if len(p.Options) > 0 {
		capabilities = append(capabilities, capability.PushOptions)
	}
	if c.Supports(capability.Sideband64k) {
		capabilities = append(capabilities, capability.Sideband64k)
	} else {
		capabilities = append(capabilities, capability.Sideband)
	}
	for _, name := range capabilities {
		if c.Supports(name) {
			if err := caps.Set(name); err != nil {
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

// bandErrorPrefix is the prefix of the library's error for a message on the error band. It has no type for it.
const bandErrorPrefix = "unexpected error: "

// readBands reads a report in a sideband, and the output for people.
func readBands(r io.Reader, kind sideband.Type, output *excerpt.Head, commands int) (*Report, error) {
	bands := sideband.NewDemuxer(kind, &limited{Reader: r, left: maxReport, err: errLongReport})
	bands.Progress = output
	report, err := readReport(bands, commands)
	if err != nil {
		if text, ok := strings.CutPrefix(err.Error(), bandErrorPrefix); ok {
			err = &pktline.ErrorLine{Text: text}
		}
		if line := (*pktline.ErrorLine)(nil); errors.As(err, &line) {
			return nil, &pktline.ErrorLine{Text: cmp.Or(strings.TrimSpace(output.String()+" "+line.Text),
				"no reason given")}
		}
		return nil, err
	}
	_, _ = io.Copy(io.Discard, bands) // output of hooks after the report
	report.Output = output.String()
	return report, nil
}

var errLongReport = errors.New("the answer to the push is too long")

// readReport reads "unpack ok" or "unpack <error>", then "ok <reference>" or "ng <reference> <error>" for each.
func readReport(r io.Reader, commands int) (*Report, error) {
	report := &Report{Refused: map[string]string{}}
	lines := pktline.NewScanner(&limited{Reader: r, left: maxReport, err: errLongReport})
	malformed := func() error {
		return fmt.Errorf("%w: got %q instead of the result of a push", errNotGit, Printable(string(lines.Bytes())))
	}
	if !lines.Scan() {
		return nil, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
	}
	unpack, ok := strings.CutPrefix(strings.TrimSuffix(string(lines.Bytes()), "\n"), "unpack ")
	if !ok {
		return nil, malformed()
	}
	if unpack != "ok" {
		report.Unpack = cmp.Or(unpack, "no reason given")
	}
	for results := 0; lines.Scan(); results++ {
		line := strings.TrimSuffix(string(lines.Bytes()), "\n")
		if line == "" { // a flush packet ends the report
			if results < commands {
				return nil, fmt.Errorf("%w: the result of the push is incomplete", errNotGit)
			}
			return report, nil
		}
		word, rest, _ := strings.Cut(line, " ")
		name, cause, _ := strings.Cut(rest, " ")
		switch {
		case results >= maxResults || name == "":
			return nil, malformed()
		case word == "ng":
			report.Refused[name] = cmp.Or(cause, "no reason given")
		case word != "ok":
			return nil, malformed()
		}
	}
	return nil, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
