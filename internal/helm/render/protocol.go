package render

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The frames between a renderer and its child, see [sandbox.WriteFrame].
//
//	renderer → child   request, archive, then an answer for each query; or templates
//	child → renderer   chart, queries, then either files and values, or an error
const (
	kindRequest byte = 'r' // JSON of wireRequest
	kindArchive byte = 'a' // the chart, as it is
	kindExpand  byte = 'e' // JSON of expand.Request
	kindAnswer  byte = 'l' // JSON of wireAnswer
	kindChart   byte = 'm' // name and version of the chart, for messages
	kindQuery   byte = 'q' // JSON of wireQuery
	kindFile    byte = 'f' // a length of four bytes, the name, the content
	kindValues  byte = 'v' // JSON of values: the last frame of a result
	kindError   byte = 'x' // JSON of wireError: the last frame of a failure
)

const (
	maxFiles  = 16 << 20 // bytes of the rendered files
	maxOutput = 64 << 20 // bytes that a child may send for one render: files, values and frames
)

type wireRequest struct {
	Release                           Release
	Values                            json.RawMessage
	KubeVersion, KubeMajor, KubeMinor string
	APIVersions                       []string
	Lookup, AllowDNS                  bool
	SkipSchemaValidation              bool
}

type wireQuery struct{ APIVersion, Kind, Namespace, Name string }

type wireAnswer struct {
	Object json.RawMessage `json:",omitempty"`
	Error  string          `json:",omitempty"`
}

type wireError struct {
	Message string
	Output  bool // the output is too large
}

func fileFrame(f File) [][]byte {
	size := binary.BigEndian.AppendUint32(nil, uint32(len(f.Name)))
	return [][]byte{size, []byte(f.Name), []byte(f.Content)}
}

func readFile(content []byte) (File, error) {
	if len(content) < 4 {
		return File{}, fmt.Errorf("a file frame of %d bytes", len(content))
	}
	size := int64(binary.BigEndian.Uint32(content))
	if content = content[4:]; size > int64(len(content)) {
		return File{}, fmt.Errorf("a file frame with a name of %d bytes in %d bytes", size, len(content))
	}
	return File{Name: string(content[:size]), Content: string(content[size:])}, nil
}

// encodeValues returns values as JSON that keeps integers and floating-point numbers apart: templates print them
// differently. A floating-point number has an exponent.
func encodeValues(values map[string]any) ([]byte, error) {
	if values == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(markNumbers(values))
}

func markNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = markNumbers(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = markNumbers(x)
		}
		return out
	case float64:
		return json.Number(strconv.FormatFloat(v, 'e', -1, 64))
	}
	return v
}

func decodeValues(text []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	values := map[string]any{}
	if err := d.Decode(&values); err != nil {
		return nil, err
	}
	return readNumbers(values).(map[string]any), nil
}

func readNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = readNumbers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = readNumbers(x)
		}
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			if n, err := v.Int64(); err == nil {
				return n
			}
		}
		n, _ := v.Float64()
		return n
	}
	return v
}
