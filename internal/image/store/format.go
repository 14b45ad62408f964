package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
)

// A file begins with a magic string, followed by records: one head, and the pages. A record is a length and a
// zstd frame, with checksum, of a gob. Tags are stored in columns, which compress to little more than the
// digests.
const (
	magic     = "sluice-tags/1\n"
	maxRecord = maxMemory // bytes of a decompressed record; texts are shorter than what they take in memory
	inMemory  = 8         // a decompressed record usually takes this many times its size while it is decoded
	maxPages  = 1 << 20
	sha256Len = 32
	algorithm = "sha256:"
)

type head struct {
	Image    string
	Excluded []string
	Scanned  time.Time
	Revision string
	Pages    int
}

type page struct {
	URL, ETag, Sum, Next string
	Listed               int
	Names                string   // each followed by a newline
	Known                []byte   // state of each tag, see below
	Digests              []byte   // of known tags, concatenated
	Created              []int64  // Unix time of known tags; 0: unknown
	Platforms            []string // of known tags, comma-separated
	Labels               []map[string]string
}

// States of a tag.
const (
	notKnown byte = iota
	known
	unreadable
)

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(1<<20))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRecord))
)

func encode(w io.Writer, r *Repository) error {
	out := bufio.NewWriter(w)
	if _, err := out.WriteString(magic); err != nil {
		return err
	}
	if err := writeRecord(out, head{Image: r.Image, Excluded: r.Excluded, Scanned: r.Scanned, Revision: r.Revision,
		Pages: len(r.Pages)}); err != nil {
		return err
	}
	for _, p := range r.Pages {
		packed, err := pack(p)
		if err != nil {
			return err
		}
		if err := writeRecord(out, packed); err != nil {
			return err
		}
	}
	return out.Flush()
}

func writeRecord(w io.Writer, v any) error {
	var plain bytes.Buffer
	if err := gob.NewEncoder(&plain).Encode(v); err != nil {
		return err
	}
	frame := encoder.EncodeAll(plain.Bytes(), nil)
	_, err := w.Write(append(binary.AppendUvarint(nil, uint64(len(frame))), frame...))
	return err
}

// decode is the inverse of encode. It returns an error if the data is corrupt, as every record has a checksum, or if it
// takes more than MaxMemory. It takes memory from the budget of ctx before it decodes, until the repository is no
// longer used.
func decode(ctx context.Context, r io.Reader) (_ *Repository, err error) {
	lease := guard.NewLease(ctx, "reading stored tags")
	defer func() {
		if err != nil {
			lease.Release()
		}
	}()
	in := bufio.NewReader(r)
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(in, start); err != nil || string(start) != magic {
		return nil, errors.New("unknown file format")
	}
	var h head
	most := MaxMemory()
	left := most
	if err := readRecord(ctx, in, lease, left, &h); err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	if h.Pages < 0 || h.Pages > maxPages {
		return nil, errors.New("too many pages")
	}
	repo := &Repository{Image: h.Image, Excluded: h.Excluded, Scanned: h.Scanned, Revision: h.Revision}
	for i := range h.Pages {
		var packed page
		if err := readRecord(ctx, in, lease, left, &packed); err != nil {
			return nil, fmt.Errorf("page %d: %w", i, err)
		}
		p, err := unpack(packed)
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", i, err)
		}
		if left -= p.Memory(); left < 0 {
			return nil, errTooLarge
		}
		repo.Pages = append(repo.Pages, p)
		if err := lease.Grow(ctx, max(0, most-left-lease.Bytes())); err != nil {
			return nil, err
		}
		lease.Shrink(most - left)
	}
	guard.HoldWhile(lease, repo)
	return repo, nil
}

// errTooLarge is the error for a file that takes more than MaxMemory.
var errTooLarge = errors.New("it takes too much memory")

// readRecord reads a record. It takes memory for it, besides what the lease has. It returns an error for one that takes
// more than the bytes that are left.
func readRecord(ctx context.Context, r *bufio.Reader, lease *guard.Lease, left int64, v any) error {
	size, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	if size > maxRecord {
		return errors.New("record is too long")
	}
	frame, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		return err
	}
	var header zstd.Header // without a size if that is less than 256
	if err := header.Decode(frame); err != nil {
		return err
	}
	if header.FrameContentSize > uint64(left) {
		return errTooLarge
	}
	if err := lease.Grow(ctx, inMemory*int64(header.FrameContentSize)); err != nil {
		return err
	}
	plain, err := decoder.DecodeAll(frame, nil)
	if err != nil {
		return err
	}
	return gob.NewDecoder(bytes.NewReader(plain)).Decode(v)
}

func pack(p Page) (page, error) {
	out := page{URL: p.URL, ETag: p.ETag, Sum: p.Sum, Next: p.Next, Listed: p.Listed}
	var names strings.Builder
	for _, t := range p.Tags {
		names.WriteString(t.Name + "\n")
		switch {
		case t.Unreadable:
			out.Known = append(out.Known, unreadable)
			continue
		case t.Digest == "":
			out.Known = append(out.Known, notKnown)
			continue
		}
		digest, err := hex.DecodeString(strings.TrimPrefix(t.Digest, algorithm))
		if err != nil || len(digest) != sha256Len {
			return out, fmt.Errorf("the digest '%.100s' of tag '%.200s' is not a SHA-256 digest", t.Digest, t.Name)
		}
		out.Known = append(out.Known, known)
		out.Digests = append(out.Digests, digest...)
		created := int64(0)
		if !t.Created.IsZero() {
			created = t.Created.Unix()
		}
		out.Created = append(out.Created, created)
		out.Platforms = append(out.Platforms, strings.Join(t.Platforms, ","))
		out.Labels = append(out.Labels, t.Labels)
	}
	out.Names = names.String()
	return out, nil
}

func unpack(p page) (Page, error) {
	out := Page{URL: p.URL, ETag: p.ETag, Sum: p.Sum, Next: p.Next, Listed: p.Listed}
	count := bytes.Count(p.Known, []byte{known})
	if strings.Count(p.Names, "\n") != len(p.Known) || len(p.Digests) != count*sha256Len ||
		len(p.Created) != count || len(p.Platforms) != count || len(p.Labels) != count {
		return out, errors.New("columns have different lengths")
	}
	out.Tags = make([]policy.Tag, 0, len(p.Known))
	n, platforms := 0, map[string][]string{}
	for name := range strings.Lines(p.Names) {
		t := policy.Tag{Name: strings.TrimSuffix(name, "\n")}
		switch p.Known[len(out.Tags)] {
		case unreadable:
			t.Unreadable = true
		case known:
			t.Digest = algorithm + hex.EncodeToString(p.Digests[n*sha256Len:(n+1)*sha256Len])
			if len(p.Labels[n]) > 0 {
				t.Labels = p.Labels[n]
			}
			if p.Created[n] != 0 {
				t.Created = time.Unix(p.Created[n], 0).UTC()
			}
			if list := p.Platforms[n]; list != "" { // usually the same for all tags
				if platforms[list] == nil {
					platforms[list] = strings.Split(list, ",")
				}
				t.Platforms = platforms[list]
			}
			n++
		}
		out.Tags = append(out.Tags, t)
	}
	return out, nil
}
