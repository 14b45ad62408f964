package build

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/yamlsize"
)

// Limits on the input of a build, which this process parses. Kustomize has no limits, but those of its child process.
const (
	maxReads = 100_000  // file reads; repeated reads count, because bases can refer to the same bases many times
	maxFile  = 16 << 20 // bytes of one file
	maxInput = 64 << 20 // bytes read in total; repeated reads count

	maxLevels  = 200        // nesting depth of lists and maps
	maxLists   = 4          // nesting depth of lists of objects
	maxAliased = 50_000     // values that aliases add to a document
	maxRepeats = 4 << 20    // bytes of text that aliases add to a document
	maxValues  = 2_000_000  // of all documents
	maxWork    = 50_000_000 // values copied, of all documents: about ten seconds
	maxPairs   = 100_000    // of equal keys; the error of the library has a line for each
	maxOutput  = 256 << 20  // bytes of all objects as JSON
)

// Text of up to this many bytes and keys, without aliases, is cheap to process and is not measured.
const (
	harmless     = 2 << 10
	harmlessKeys = 128
)

// keysIn returns how many keys a text has at most.
func keysIn(content []byte) int {
	keys := 0
	for _, c := range []byte{':', ',', '{', '?'} { // in {a, b}, both are keys
		keys += bytes.Count(content, []byte{c})
	}
	return keys
}

// take counts a file of size bytes towards the limits, before the file is read.
func (f *filesystem) take(name string, size int64) error {
	err := f.limits.take(name, size)
	if err == nil {
		err = f.grow(f.needs())
	}
	if err != nil {
		return f.refuse(err)
	}
	return nil
}

// limits count what a build reads. Kustomize reads a base as often as others list it.
type limits struct {
	reads    int
	input    int64 // bytes
	exceeded error // the first refusal
}

func (l *limits) take(name string, size int64) error {
	l.reads++
	l.input += size
	var refused error
	switch {
	case size > maxFile:
		refused = refusal("%s has %d MiB; a build reads files of up to %d MiB", name, size>>20, maxFile>>20).
			WithHint("Leave it out with .sourceignore or spec.ignore, or split it")
	case l.reads > maxReads:
		refused = refusal("the build reads more than %d files, some of them over and over", maxReads).
			WithHint("Look for bases that refer to the same bases more than once")
	case l.input > maxInput:
		refused = refusal("the build reads more than %d MiB; %s is one file too many", maxInput>>20, name).
			WithHint("Split it into several Kustomizations, and look for bases that refer to the same bases more " +
				"than once")
	default:
		return nil
	}
	if l.exceeded == nil {
		l.exceeded = refused
	}
	return refused
}

// weighText refuses text that would cost far more time or memory than its length suggests when it is parsed.
func (f *filesystem) weighText(name string, content []byte) error {
	f.extent.documents += bytes.Count(content, []byte("\n---")) + 1
	hasAliases := bytes.IndexByte(content, '&') >= 0 && bytes.IndexByte(content, '*') >= 0
	if len(content) <= harmless && keysIn(content) <= harmlessKeys && !hasAliases {
		return nil
	}
	if err := yamlsize.CheckDirectives(content); err != nil {
		return refusal("%s cannot be read", name).Because(err)
	}
	if err := f.takeText(content); err != nil {
		return err
	}
	defer f.keepValues()
	weigh := func(doc *yaml.Node) error {
		w, err := (&scale{name: name, weighed: map[*yaml.Node]*weight{}}).weigh(doc)
		f.weight.add(w)
		if err == nil && f.weight.pairs > maxPairs {
			err = refusal("%s is not valid YAML", name).Because(yamlsize.CheckKeys(doc))
		}
		return err
	}
	if err := allDocuments(content, weigh); err != nil {
		return err
	}
	switch {
	case f.weight.values > maxValues:
		return refusal("the build reads more than %d values; %s is one file too many", maxValues, name).
			WithHint("Split it into several Kustomizations")
	case f.weight.work > maxWork:
		return refusal("%s is too large for being so deep, or its maps are too long", name).
			WithHint("Split the file, or reduce its nesting")
	}
	return f.grow(f.needs()) // now, as no further file may be read
}

// weighParsed takes the memory for parsing a kustomization file, and refuses aliases that expand to much text.
func (f *filesystem) weighParsed(name string, content []byte) error {
	if err := f.takeParsed(content); err != nil {
		return err
	}
	if err := yamlsize.Check(content); err != nil {
		return refusal("%s cannot be read", name).Because(err)
	}
	return nil
}

// weighEncrypted takes the memory for decrypting a file, before it is known what its values are.
func (f *filesystem) weighEncrypted(name string, content []byte) error {
	mayBe := bytes.Contains(content, []byte("sops")) || bytes.Contains(content, []byte(decryptAnnotation))
	if !f.secrets.active() || !mayBe || f.secrets.plain[name] != nil {
		return nil
	}
	return f.takeParsed(content)
}

// takeParsed takes the memory for parsing a text as a whole, and gives it back but for the values that are kept.
func (f *filesystem) takeParsed(content []byte) error {
	if err := f.grow(f.needs() + yamlsize.Memory(content)); err != nil {
		return err
	}
	f.keepValues()
	return nil
}

// takeOutput takes the memory for an object before it is decoded. Patches, replacements and other settings may have put
// one value into many fields.
func (f *filesystem) takeOutput(what string, text []byte) error {
	f.output += int64(len(text))
	f.outputValues += jsonValues(text)
	if f.output > maxOutput {
		return refusal("the objects have more than %d MiB; %s is one too many", maxOutput>>20, what).
			WithHint("Look for patches and replacements that put long texts into many objects")
	}
	return f.grow(f.needs())
}

// jsonValues returns the number of values of a JSON text.
func jsonValues(text []byte) int {
	values, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':' || c == '[' || c == '{'):
			values++
		}
	}
	return values
}

// allDocuments calls visit for all documents of a text that kustomize may be able to read: it splits documents by its
// own rule, so it may read parts of a file that is invalid as a whole. Only refusals are returned.
func allDocuments(content []byte, visit func(*yaml.Node) error) error {
	err := documents(content, visit)
	if err == nil || fault.As(err) != nil {
		return err
	}
	for _, text := range separator.Split(strings.ReplaceAll(string(content), "\r\n", "\n"), -1) {
		if problem := documents([]byte(text), visit); fault.As(problem) != nil {
			return problem
		}
	}
	return nil
}

const (
	nodeBytes  = 200  // memory of a value while its text is measured
	valueBytes = 640  // memory of a value that is only decoded
	builtBytes = 300  // memory of a value of the result
	inputBytes = 3    // memory for each byte that is read
	pairBytes  = 1000 // memory for reporting a pair of equal keys
)

// takeText takes memory for measuring text. Each value begins at one of a few characters.
func (f *filesystem) takeText(content []byte) error {
	values := 1
	for _, c := range content {
		switch c {
		case ',', '[', '{', ':', '\n':
			values++
		case '-', '?', '&':
			values++
		}
	}
	return f.grow(f.needs() + int64(values)*nodeBytes)
}

// needs returns the memory that the build needs in this process for what was read.
func (f *filesystem) needs() int64 {
	return int64(max(f.weight.values, f.outputValues))*valueBytes +
		(f.limits.input+f.output+int64(f.weight.repeats))*inputBytes + f.weight.pairs*pairBytes
}

// keepValues gives back what was taken for measuring, but for the values that were found.
func (f *filesystem) keepValues() {
	if f.lease == nil {
		return
	}
	f.most = max(f.most, f.needs())
	f.lease.Shrink(max(f.most, leaseStep))
}

// leaseStep is the number of bytes by which the lease of a build grows at least.
const leaseStep = 1 << 20

// grow makes the lease of the build at least as large as bytes.
func (f *filesystem) grow(bytes int64) error {
	if f.lease == nil { // no build, such as of a single file
		return nil
	}
	more := bytes - f.lease.Bytes()
	if more <= 0 {
		return nil
	}
	return f.lease.Grow(f.ctx, max(more, leaseStep))
}

// separator matches what kustomize treats as the end of a document.
var separator = regexp.MustCompile(`\n---.*\n`)

// weighTexts measures the text fields of a kustomization that kustomize parses as YAML, such as inline patches.
func (f *filesystem) weighTexts(file string, k *types.Kustomization) error {
	var texts []string
	for _, list := range [][]string{k.Generators, k.Transformers, k.Validators} {
		texts = append(texts, list...)
	}
	for _, p := range k.PatchesStrategicMerge { //nolint:staticcheck // old but in use
		texts = append(texts, string(p))
	}
	for _, p := range patchesOf(k) {
		texts = append(texts, p.Patch)
	}
	for _, text := range texts {
		if err := f.weighText(file, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// weight is the size of a value after its aliases are expanded.
type weight struct {
	values, aliased, levels, lists int
	text, repeats                  int   // bytes of all texts, and of those that aliases add
	pairs                          int64 // of equal keys
	// values copied: everything below a map is copied again for each map, and entries of long maps several times
	work int
}

func (w *weight) add(below weight) {
	w.values += below.values
	w.aliased += below.aliased
	w.work += below.work
	w.text += below.text
	w.pairs += below.pairs
	w.repeats += below.repeats
	w.levels, w.lists = max(w.levels, below.levels), max(w.lists, below.lists)
}

// scale measures a document.
type scale struct {
	name    string
	weighed map[*yaml.Node]*weight // by the target of aliases; nil while the target is being measured
}

func (s *scale) weigh(n *yaml.Node) (weight, error) {
	if n.Kind == yaml.AliasNode {
		return s.weighAlias(n)
	}
	w := weight{values: 1, text: len(n.Value)}
	for _, c := range n.Content {
		below, err := s.weigh(c)
		if err != nil {
			return w, err
		}
		w.add(below)
	}
	if keys := len(n.Content) / 2; n.Kind == yaml.MappingNode {
		w.work += w.values + keys*keys/10
		w.pairs += yamlsize.EqualKeys(n)
	}
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		w.levels++
	}
	if isList(n) {
		w.lists++
	}
	return w, s.bound(n, w)
}

func (s *scale) weighAlias(n *yaml.Node) (weight, error) {
	if w, seen := s.weighed[n.Alias]; seen {
		if w == nil {
			return weight{}, refusal("%s: the alias *%s is recursive", s.at(n), n.Value).
				WithHint("Replace the alias with its content")
		}
		return *w, nil
	}
	s.weighed[n.Alias] = nil
	w, err := s.weigh(n.Alias)
	w.aliased, w.repeats = w.values, w.text
	s.weighed[n.Alias] = &w
	return w, err
}

func (s *scale) at(n *yaml.Node) string { return fmt.Sprintf("%s, line %d", s.name, n.Line) }

func (s *scale) bound(n *yaml.Node, w weight) error {
	switch {
	case w.levels > maxLevels:
		return refusal("%s: more than %d levels of nesting", s.at(n), maxLevels)
	case w.lists > maxLists:
		return refusal("%s: more than %d lists of objects are nested in each other", s.at(n), maxLists).
			WithHint("List the objects themselves, without lists in lists")
	case w.aliased > maxAliased:
		return refusal("%s: its aliases stand for more than %d values", s.at(n), maxAliased).
			WithHint("Use fewer nested aliases")
	case w.repeats > maxRepeats:
		return refusal("%s: its aliases stand for more than %d MiB of text", s.at(n), maxRepeats>>20).
			WithHint("Use fewer aliases for long texts")
	}
	return nil
}

// isList reports whether a map is a list of objects.
func isList(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	list, items := false, false
	for i := 0; i+1 < len(n.Content); i += 2 {
		value := n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		switch n.Content[i].Value {
		case "<<": // may bring any kind
			list = true
		case "kind":
			list = list || strings.HasSuffix(value.Value, "List")
		case "items":
			items = true
		}
	}
	return list && items
}
