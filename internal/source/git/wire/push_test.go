package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestReadReport(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		want  Report
		err   string
	}{
		"accepted":          {lines: "unpack ok\n|ok refs/heads/main\n|", want: Report{Refused: map[string]string{}}},
		"without line ends": {lines: "unpack ok|ok refs/heads/main|", want: Report{Refused: map[string]string{}}},
		"refused": {lines: "unpack ok\n|ng refs/heads/main hook declined: by us\n|",
			want: Report{Refused: map[string]string{"refs/heads/main": "hook declined: by us"}}},
		"refused without a reason": {lines: "unpack ok\n|ng refs/heads/main\n|",
			want: Report{Refused: map[string]string{"refs/heads/main": "no reason given"}}},
		"not unpacked": {lines: "unpack index-pack abnormal exit\n|ng refs/heads/main unpacker error\n|",
			want: Report{Unpack: "index-pack abnormal exit",
				Refused: map[string]string{"refs/heads/main": "unpacker error"}}},
		"empty":      {want: Report{}, err: "unexpected EOF"},
		"no result":  {lines: "unpack ok\n|", want: Report{}, err: "is incomplete"},
		"error":      {lines: "ERR the repository is read-only", want: Report{}, err: "the repository is read-only"},
		"other text": {lines: "hello", want: Report{}, err: "instead of the result of a push"},
		"unknown result": {lines: "unpack ok\n|maybe refs/heads/main\n|", want: Report{},
			err: "instead of the result of a push"},
	} {
		for _, banded := range []bool{false, true} {
			plain := packets(t, c.lines)
			var got *Report
			var err error
			if banded {
				var b bytes.Buffer
				m := sideband.NewMuxer(sideband.Sideband64k, &b)
				writeAll(t, m, sideband.ProgressMessage, "remote: checking\n")
				writeAll(t, m, sideband.PackData, plain)
				writeAll(t, m, sideband.ProgressMessage, "remote: done\n")
				b.WriteString("0000")
				got, err = readBands(&b, sideband.Sideband64k, &excerpt.Head{Most: maxOutput}, 1)
				if err == nil && got.Output != "remote: checking\nremote: done\n" {
					t.Errorf("%s: the output is %q", name, got.Output)
				}
			} else {
				got, err = readReport(strings.NewReader(plain), 1)
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: got %v, want %q", name, err, c.err)
				}
				continue
			}
			if err != nil || got.Unpack != c.want.Unpack || len(got.Refused) != len(c.want.Refused) ||
				got.Refused["refs/heads/main"] != c.want.Refused["refs/heads/main"] {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
		}
	}
}

func TestReadBandsReturnsErrorMessage(t *testing.T) {
	var b bytes.Buffer
	m := sideband.NewMuxer(sideband.Sideband64k, &b)
	writeAll(t, m, sideband.ErrorMessage, "disk full")
	_, err := readBands(&b, sideband.Sideband64k, &excerpt.Head{Most: maxOutput}, 1)
	if line := (*pktline.ErrorLine)(nil); !errors.As(err, &line) || line.Text != "disk full" {
		t.Errorf("got %v", err)
	}
}

func TestHintOfPushOptions(t *testing.T) {
	conn := &Conn{remote: Remote{URL: "https://git.example/app"}, Refs: packp.NewAdvRefs()}
	_, err := conn.Push(t.Context(), Push{Options: map[string]string{"ci.skip": ""}})
	if f := fault.As(err); f == nil || f.Hint != "Remove spec.git.push.options" {
		t.Errorf("got %v", err)
	}
}

func TestEncodePushUsesSupportedCapabilities(t *testing.T) {
	one := Push{Commands: []Command{{Name: "refs/heads/main", Old: plumbing.ZeroHash,
		New: plumbing.NewHash(strings.Repeat("1", 40))}},
		Pack: []byte("PACK")}
	two := Push{Commands: append(one.Commands, Command{Name: "refs/notes/sluice"}),
		Options: map[string]string{"b": "", "a": "1"}}
	for name, c := range map[string]struct {
		supported string
		push      Push
		want      string
	}{
		"none": {push: one, want: "\x00 "},
		"more than needed": {supported: "report-status atomic push-options side-band-64k delete-refs", push: one,
			want: "\x00 report-status side-band-64k"},
		"all": {supported: "report-status atomic push-options side-band-64k quiet ofs-delta agent=git/2", push: two,
			want: "\x00 report-status quiet ofs-delta atomic push-options side-band-64k agent=git/sluice"},
	} {
		conn := &Conn{Refs: packp.NewAdvRefs()}
		if err := conn.Refs.Capabilities.Decode([]byte(c.supported)); err != nil {
			t.Fatal(err)
		}
		b, caps, err := conn.encodePush(c.push)
		if err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(string(b), "main"); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q", name, b)
		}
		if caps.Supports(capability.PushOptions) && !bytes.Contains(b, []byte("0007a=10005b0000")) {
			t.Errorf("%s: the options are missing in %q", name, b)
		}
	}
}

func packets(t *testing.T, lines string) string {
	t.Helper()
	var b bytes.Buffer
	if lines == "" {
		return ""
	}
	e := pktline.NewEncoder(&b)
	for line := range strings.SplitSeq(lines, "|") {
		if err := e.EncodeString(line); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func writeAll(t *testing.T, m *sideband.Muxer, channel sideband.Channel, text string) {
	t.Helper()
	if _, err := m.WriteChannel(channel, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add([]byte("000eunpack ok\n0019ok refs/heads/main\n0000"), 1)
	f.Add([]byte("000eunpack ok\n0025ng refs/heads/main hook declined\n0000"), 1)
	f.Add([]byte("0012\x01000eunpack ok\n0008\x02hi\n0000"), 0)
	f.Fuzz(func(t *testing.T, data []byte, commands int) {
		plain, err := readReport(bytes.NewReader(data), commands)
		if err == nil && len(plain.Refused)*4 > len(data) {
			t.Errorf("%q: the report has %d references", data, len(plain.Refused))
		}
		output := &excerpt.Head{Most: maxOutput}
		if _, err := readBands(bytes.NewReader(data), sideband.Sideband64k, output, commands); err == nil &&
			len(output.String()) > maxOutput {
			t.Errorf("%q: the output has %d bytes", data, len(output.String()))
		}
	})
}

func FuzzAdvertisement(f *testing.F) {
	hash := strings.Repeat("a", 40)
	f.Add([]byte("001f# service=git-receive-pack\n0000005b" + hash + " refs/heads/main\x00report-status atomic\n003f" +
		hash + " refs/notes/sluice\n0000"))
	f.Add([]byte("0054" + plumbing.ZeroHash.String() + " capabilities^{}\x00report-status\n0000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		refs := packp.NewAdvRefs()
		if err := refs.Decode(&limited{Reader: bytes.NewReader(data), left: maxAdvertisement,
			err: io.ErrShortBuffer}); err == nil && len(refs.References)*42 > len(data) {
			t.Errorf("%q: got %d references", data, len(refs.References))
		}
	})
}
