package stubapi

import "context"

// Feed returns the objects of a resource as they change, without a request.
type Feed struct {
	table    *table
	position int
}

// Feed returns a feed of changes of a resource from now on; resource is its plural name, such as "configmaps".
func (s *Server) Feed(resource string) *Feed {
	for gvr, t := range s.tables {
		if gvr.Resource != resource {
			continue
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		return &Feed{t, t.dropped + len(t.events)}
	}
	return nil
}

// Next waits for changes, and returns the objects after them as JSON, oldest change first. Objects that were deleted
// are left out. It returns false when ctx ends, or if changes were lost because it was called too late.
func (f *Feed) Next(ctx context.Context) (objects [][]byte, ok bool) {
	for {
		events, next, changed, known := f.table.since(f.position)
		if !known {
			return nil, false
		}
		f.position = next
		for _, e := range events {
			if e.now != nil {
				objects = append(objects, e.now.json)
			}
		}
		if len(objects) > 0 {
			return objects, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false
		}
	}
}
