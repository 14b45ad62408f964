package render

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sluice-gitops/sluice/internal/build/sandbox"
)

const childArgument = "render-templates-for-parent"

func init() { sandbox.Serve(childArgument, handle) }

// server is the child's end of the protocol.
type server struct{ *sandbox.Parent }

// handle answers one request. It returns an error only if the parent cannot be answered.
func handle(p *sandbox.Parent, kind byte, content []byte) error {
	s := server{p}
	if kind == kindExpand {
		return s.expand(content)
	}
	var q wireRequest
	if kind != kindRequest || json.Unmarshal(content, &q) != nil {
		return sandbox.ErrProtocol
	}
	archive, err := s.Next(kindArchive)
	if err != nil {
		return err
	}
	files, values, err := s.renderChart(&q, archive)
	return s.send(files, values, err)
}

// send sends what was rendered, or the error.
func (s server) send(files []File, values []byte, err error) error {
	if err != nil {
		return s.SendJSON(kindError, wireError{Message: sandbox.Shorten(err.Error())})
	}
	size := 0
	for _, f := range files {
		if size += len(f.Name) + len(f.Content); size > maxFiles {
			return s.SendJSON(kindError, wireError{Output: true,
				Message: fmt.Sprintf("its templates render more than %d MiB; %s renders %d MiB",
					maxFiles>>20, f.Name, len(f.Content)>>20)})
		}
	}
	for _, f := range files {
		if err := s.Send(kindFile, fileFrame(f)...); err != nil {
			return err
		}
	}
	return s.Send(kindValues, values)
}

// lookup asks the parent for an object.
func (s server) lookup(apiVersion, kind, namespace, name string) (map[string]any, error) {
	if err := s.SendJSON(kindQuery, wireQuery{apiVersion, kind, namespace, name}); err != nil {
		return nil, err
	}
	content, err := s.Next(kindAnswer)
	var a wireAnswer
	if err != nil || json.Unmarshal(content, &a) != nil {
		return nil, sandbox.ErrProtocol
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return decodeValues(a.Object)
}
