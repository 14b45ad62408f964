package artifact

import (
	"bytes"
	"fmt"
)

// maxChangedFiles bounds how many files a change names.
const maxChangedFiles = 10_000

// ChangedFiles returns the names of the files and symlinks that differ between two trees, in order. A nil tree has no
// files. More than 10,000 names are an error.
func ChangedFiles(before, after *Tree) ([]string, error) {
	c := changes{before: before, after: after, names: []string{}}
	if err := c.compare("", rootOf(before), rootOf(after)); err != nil {
		return nil, err
	}
	return c.names, nil
}

func rootOf(t *Tree) *Dir {
	if t == nil {
		return &Dir{}
	}
	return t.root
}

type changes struct {
	before, after *Tree
	names         []string
}

func (c *changes) tooMany() error {
	if len(c.names) <= maxChangedFiles {
		return nil
	}
	return fmt.Errorf("more than %d files differ", maxChangedFiles)
}

// compare adds the names that differ between two directories. Either may be nil.
func (c *changes) compare(prefix string, before, after *Dir) error {
	if before == nil {
		before = &Dir{}
	}
	if after == nil {
		after = &Dir{}
	}
	if before.ID == after.ID && before.ID != "" {
		return nil
	}
	x, y := before.Entries, after.Entries
	for len(x) > 0 || len(y) > 0 {
		var was, is *Entry
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].Name < y[0].Name:
			was, x = &x[0], x[1:]
		case len(x) == 0 || y[0].Name < x[0].Name:
			is, y = &y[0], y[1:]
		default:
			was, is, x, y = &x[0], &y[0], x[1:], y[1:]
		}
		if err := c.entry(prefix, was, is); err != nil {
			return err
		}
	}
	return nil
}

// entry adds the names that differ between two entries of one name. Either may be nil.
func (c *changes) entry(prefix string, was, is *Entry) error {
	name, wasDir, isDir := prefix, (*Dir)(nil), (*Dir)(nil)
	if was != nil {
		name, wasDir = prefix+was.Name, was.Dir
	}
	if is != nil {
		name, isDir = prefix+is.Name, is.Dir
	}
	isFile, wasFile := is != nil && isDir == nil, was != nil && wasDir == nil
	if isFile || wasFile {
		differ := isFile != wasFile || was.Mode != is.Mode
		if !differ && was.ID != is.ID { // trees of different stores have different IDs
			var err error
			if differ, err = c.contentsDiffer(was, is); err != nil {
				return err
			}
		}
		if differ {
			c.names = append(c.names, name)
		}
		if err := c.tooMany(); err != nil {
			return err
		}
	}
	if wasDir == nil && isDir == nil {
		return nil
	}
	return c.compare(name+"/", wasDir, isDir)
}

func (c *changes) contentsDiffer(was, is *Entry) (bool, error) {
	before, err := c.before.content.Size(was.ID)
	if err != nil {
		return false, err
	}
	after, err := c.after.content.Size(is.ID)
	if err != nil || before != after {
		return true, err
	}
	old, err := c.before.content.Read(was.ID)
	if err != nil {
		return false, err
	}
	text, err := c.after.content.Read(is.ID)
	return !bytes.Equal(old, text), err
}
