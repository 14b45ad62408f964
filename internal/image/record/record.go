// Package record is the format of the git note that each image commit has: the updated images, their
// policies, the reasons and the author.
package record

import (
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

const (
	maxImages = 100      // listed in a record
	maxPlaces = 20       // listed per image
	maxText   = 32 << 10 // bytes
)

// Record describes the images that a commit updates. Its text form is YAML.
type Record struct {
	By      string   `yaml:"by"`               // the object that made the commit, see [By]
	Author  string   `yaml:"author,omitempty"` // who requested the release; empty for automations
	Reason  string   `yaml:"reason,omitempty"` // given by the author
	Updated []Update `yaml:"updated"`
	More    int      `yaml:"more,omitempty"` // images that are not listed
}

// Update is an image that was updated.
type Update struct {
	Image  string  `yaml:"image"`
	Policy string  `yaml:"policy,omitempty"` // "namespace/name"
	Why    string  `yaml:"why,omitempty"`
	Places []Place `yaml:"places"`
	More   int     `yaml:"more,omitempty"` // places that are not listed
}

// Place is a value that was set.
type Place struct {
	File      string `yaml:"file"` // with the line
	Object    string `yaml:"object,omitempty"`
	Container string `yaml:"container,omitempty"`
	From      string `yaml:"from"`
	To        string `yaml:"to"`
}

// By returns the name of an object that makes commits, such as "ImageUpdateAutomation apps/web".
func By(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// Of returns the record of changes. Images and reasons are by "namespace:name" of the policy.
func Of(by string, changes []edit.Change, images map[string]edit.Ref, why map[string]string) Record {
	r := Record{By: by}
	for _, c := range changes {
		policy := strings.Replace(c.Policy, ":", "/", 1)
		i := slices.IndexFunc(r.Updated, func(u Update) bool { return u.Policy == policy })
		if i < 0 {
			if len(r.Updated) == maxImages {
				r.More++
				continue
			}
			i = len(r.Updated)
			r.Updated = append(r.Updated, Update{Image: images[c.Policy].String(), Policy: policy, Why: why[c.Policy]})
		}
		u := &r.Updated[i]
		if len(u.Places) == maxPlaces {
			u.More++
			continue
		}
		u.Places = append(u.Places, Place{File: fmt.Sprintf("%s:%d", c.File, c.Line), Object: c.Object.String(),
			Container: c.Container, From: c.Old, To: c.New})
	}
	return r
}

// String returns the record as YAML of at most 32 KiB.
func (r Record) String() string {
	for {
		b, err := yaml.Marshal(r)
		if err != nil {
			return fmt.Sprintf("by: %q\n", r.By) // cannot happen: the record has only strings and numbers
		}
		if len(b) <= maxText || len(r.Updated) == 0 {
			return string(b)
		}
		half := len(r.Updated) / 2
		r.More += len(r.Updated) - half
		r.Updated = r.Updated[:half]
	}
}

// Parse parses a record, or the last record of a note with several. Of a truncated record it parses the complete lines.
func Parse(text string) (Record, error) {
	if i := strings.LastIndex(text, "\n\nby: "); i >= 0 {
		text = text[i+2:]
	}
	var r Record
	err := yamlsize.Unmarshal([]byte(text[:min(len(text), 2*maxText)]), &r)
	if end := strings.LastIndexByte(text, '\n'); err != nil && end > 0 {
		r = Record{}
		err = yamlsize.Unmarshal([]byte(text[:min(end, 2*maxText)]), &r)
	}
	return r, err
}
