package build

import (
	"encoding/binary"
	"errors"
)

// The frames between a build and the child that runs kustomize for it, see [sandbox.WriteFrame]. Each contains texts
// that [pack] has packed.
const (
	frameBuild  byte = 'b' // the root, "sorted" or nothing, and what kustomize will probably read
	frameQuery  byte = 'q' // a full path, and "read" if its content is wanted
	frameAnswer byte = 'a' // an entry
	frameObject byte = 'o' // kind, namespace, name, JSON, and the problem with it
	frameDone   byte = 'd' // the last frame of a result
	frameError  byte = 'x' // the message, and "refused" if it is of a limit: the last frame of a failure
)

// entry is what a path of the source leads to.
type entry struct {
	full    string
	kind    string // kindAbsent, kindFile or kindDir
	real    string // the full path without symlinks, of a directory, and of a file that is not read
	problem string // why it cannot be resolved or read
	content string // of a file that was read
	read    bool
}

func (e *entry) pack(out []byte) []byte {
	read := ""
	if e.read {
		read = "read"
	}
	return pack(out, e.full, e.kind, e.real, e.problem, e.content, read)
}

func unpackEntry(in []byte) (*entry, []byte, error) {
	p, rest, err := unpack(in, 6)
	if err != nil {
		return nil, nil, err
	}
	return &entry{full: p[0], kind: p[1], real: p[2], problem: p[3], content: p[4], read: p[5] != ""}, rest, nil
}

// pack appends texts, each with its length before it.
func pack(out []byte, texts ...string) []byte {
	for _, t := range texts {
		out = append(binary.AppendUvarint(out, uint64(len(t))), t...)
	}
	return out
}

var errFrame = errors.New("a frame of another form")

// unpack returns the first n texts, and what follows them.
func unpack(in []byte, n int) (texts []string, rest []byte, err error) {
	for range n {
		size, head := binary.Uvarint(in)
		if head <= 0 || size > uint64(len(in)-head) {
			return nil, nil, errFrame
		}
		texts = append(texts, string(in[head:head+int(size)]))
		in = in[head+int(size):]
	}
	return texts, in, nil
}
