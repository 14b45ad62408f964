package fleet

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Bounds of a report.
const (
	MaxBytes     = 64 << 10 // of the body
	MaxRevisions = 20
	MaxApplied   = 5
	MaxProblems  = 10
	MaxChanges   = 20
	MaxApprovers = 10 // users, and groups, of a change
	MaxLabels    = 20
	MaxKinds     = 40

	MaxText     = 253 // bytes of a name, a URL, a subject
	MaxRevision = 300
	MaxMessage  = 400
	maxCount    = 10_000_000
)

// States lists the states of objects, worst first.
var States = []string{"failed", "waiting", "progressing", "suspended", "ready"}

// ErrNotFound is the error for a cluster that a hub does not know.
var ErrNotFound = errors.New("the hub does not know this cluster")

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	kindName    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
)

// CheckName returns an error if a text cannot be the name of a cluster.
func CheckName(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a cluster: use up to 63 lower case letters, digits, '-' and '.'",
			cut(name))
	}
	return nil
}

// CheckLabels returns an error if labels cannot be those of a cluster.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("a cluster has %d labels: %d are allowed", len(labels), MaxLabels)
	}
	for key, value := range labels {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return fmt.Errorf("%q cannot be a label of a cluster", cut(key+"="+value))
		}
	}
	return nil
}

// Validate returns an error if a report is not one that a reporter makes. The summary is then safe to keep: its size is
// bounded. Its texts come from the cluster and may contain anything, such as HTML.
func (r *Report) Validate(now time.Time) error {
	if err := CheckName(r.Cluster); err != nil {
		return err
	}
	if r.Instance == "" || len(r.Instance) > 64 || r.Sequence <= 0 {
		return errors.New("instance and sequence of the report are not valid")
	}
	if r.Summary == nil {
		return nil
	}
	return r.Summary.Validate(now)
}

// Validate returns an error if the summary exceeds the bounds of its parts, or is of the future.
func (s *Summary) Validate(now time.Time) error {
	if ahead := s.Time.Sub(now); ahead > MaxSkew {
		return fmt.Errorf("the summary is from %s, %s ahead of the hub: synchronize the clocks of the cluster and of "+
			"the hub", s.Time.UTC().Format(time.RFC3339), ahead.Round(time.Second))
	}
	if err := CheckLabels(s.Labels); err != nil {
		return err
	}
	c := &checker{}
	c.number("revisions", len(s.Revisions), MaxRevisions)
	c.number("problems", len(s.Problems), MaxProblems)
	c.number("changes", len(s.Changes), MaxChanges)
	c.number("kinds", len(s.Kinds), MaxKinds)
	c.counts("counts", s.Counts)
	c.texts("the version", MaxText, s.Version)
	for kind, counts := range s.Kinds {
		if !kindName.MatchString(kind) {
			c.fail("%q cannot be a kind", cut(kind))
		}
		c.counts("kinds", counts)
	}
	for i := range s.Revisions {
		s.Revisions[i].check(c)
	}
	for i := range s.Problems {
		s.Problems[i].check(c)
	}
	for i := range s.Changes {
		s.Changes[i].check(c)
	}
	c.number("omitted", max(s.Omitted.Revisions, s.Omitted.Problems, s.Omitted.Changes), maxCount)
	c.number("omitted", -min(s.Omitted.Revisions, s.Omitted.Problems, s.Omitted.Changes), 0)
	return c.err
}

func (r *Revision) check(c *checker) {
	c.texts("a revision", MaxText, r.Source, r.URL, r.Subject, r.Author)
	c.texts("a revision", MaxRevision, r.Revision)
	c.number("objects of a source", r.Objects, maxCount)
	c.number("current objects of a source", r.Current, r.Objects)
	c.number("current objects of a source", -r.Current, 0)
	c.number("applied revisions of a source", len(r.Applied), MaxApplied)
	for _, a := range r.Applied {
		c.texts("an applied revision", MaxRevision, a.Revision, a.Subject)
		c.number("objects of a source", a.Objects, maxCount)
		c.number("objects of a source", -a.Objects, 0)
	}
}

func (p *Problem) check(c *checker) {
	c.texts("a problem", MaxText, p.Object, p.Reason)
	c.texts("a problem", MaxMessage, p.Message)
	c.state(p.State)
	c.number("affected objects", p.Affected, maxCount)
	c.number("affected objects", -p.Affected, 0)
}

func (g *Change) check(c *checker) {
	c.texts("a change", MaxText, g.Gate, g.Object, g.Digest, g.Risk)
	c.texts("a change", MaxRevision, g.Revision)
	c.texts("a change", MaxMessage, g.Message)
	c.texts("the approvers of a change", MaxText, g.Users...)
	c.texts("the approvers of a change", MaxText, g.Groups...)
	c.number("approvers of a change", max(len(g.Users), len(g.Groups)), MaxApprovers)
	c.number("approvals of a change", max(g.Required, g.Approved), maxCount)
	c.number("approvals of a change", -min(g.Required, g.Approved), 0)
}

// checker keeps the first error.
type checker struct{ err error }

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("the summary is not valid: "+format, args...)
	}
}

func (c *checker) number(what string, n, most int) {
	if n > most {
		c.fail("%d %s, at most %d are allowed", n, what, most)
	}
}

func (c *checker) texts(what string, most int, all ...string) {
	for _, text := range all {
		if len(text) > most {
			c.fail("a text of %s has %d bytes, at most %d are allowed", what, len(text), most)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			c.fail("a text of %s has control characters", what)
		}
	}
}

func (c *checker) state(name string) {
	if !slices.Contains(States, name) {
		c.fail("%q is not a state", cut(name))
	}
}

func (c *checker) counts(what string, counts Counts) {
	for state, n := range counts {
		c.state(state)
		c.number(what, n, maxCount)
		c.number(what, -n, 0)
	}
}

func cut(text string) string { return text[:min(len(text), 80)] }
