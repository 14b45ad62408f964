package build

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Limits on the input of a build, which this process parses. Kustomize has no limits, but those of its child process.
const (
	maxReads = 100_000  // file reads; repeated reads count, because bases can refer to the same bases many times
	maxFile  = 16 << 20 // bytes of one file
	maxInput = 64 << 20 // bytes read in total; repeated reads count

	maxLevels = 200        // nesting depth of lists and maps
	maxLists  = 4          // nesting depth of lists of objects
	maxValues = 2_000_000  // of all documents
	maxWork   = 50_000_000 // values copied, of all documents: about ten seconds
	maxPairs  = 100_000    // of equal keys; the error of the library has a line for each
	maxOutput = 256 << 20  // bytes of all objects as JSON
)

// Text of up to this many bytes and keys, without aliases, is cheap to process and is not measured.
const (
	harmless     = 2 << 10
	harmlessKeys = 128
)

// keysIn returns how many keys a text has at most: in {a, b}, both are keys.
func keysIn(content []byte) int { return countOf(content, ":,{?") }

// countOf returns how many of some characters a text has.
func countOf(content []byte, characters string) (n int) {
	for i := range characters {
		n += bytes.Count(content, []byte{characters[i]})
	}
	return n
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
		scale := yamlsize.Scale{Each: func(n *yaml.Node, w *yamlsize.Weight) error { return f.count(name, n, w) }}
		w, err := scale.Weigh(doc)
		f.weight.Add(w)
		if err == nil && f.weight.Pairs > maxPairs {
			err = refusal("%s is not valid YAML", name).Because(yamlsize.CheckKeys(doc))
		}
		return tooMuch(name, err)
	}
	if err := allDocuments(content, weigh); err != nil {
		return err
	}
	switch {
	case f.weight.Values > maxValues:
		return refusal("the build reads more than %d values; %s is one file too many", maxValues, name).
			WithHint("Split it into several Kustomizations")
	case f.weight.Work > maxWork:
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
	return f.grow(f.needs() + int64(1+countOf(content, ",[{:\n-?&"))*nodeBytes)
}

// needs returns the memory that the build needs in this process for what was read.
func (f *filesystem) needs() int64 {
	return int64(max(f.weight.Values, f.outputValues))*valueBytes +
		(f.limits.input+f.output+int64(f.weight.AddedText))*inputBytes + f.weight.Pairs*pairBytes
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

// count counts what a value costs kustomize: everything below a map is copied again for each map, and entries of long
// maps several times.
func (f *filesystem) count(name string, n *yaml.Node, w *yamlsize.Weight) error {
	if keys := len(n.Content) / 2; n.Kind == yaml.MappingNode {
		w.Work += w.Values + keys*keys/10
		w.Pairs += yamlsize.EqualKeys(n)
	}
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		w.Levels++
	}
	if isList(n) {
		w.Lists++
	}
	switch {
	case w.Levels > maxLevels:
		return refusal("%s, line %d: more than %d levels of nesting", name, n.Line, maxLevels)
	case w.Lists > maxLists:
		return refusal("%s, line %d: more than %d lists of objects are nested in each other", name, n.Line, maxLists).
			WithHint("List the objects themselves, without lists in lists")
	}
	return nil
}

// tooMuch returns the refusal of a file whose aliases stand for too much; other errors are as they were.
func tooMuch(name string, err error) error {
	var excess *yamlsize.Excess
	if !errors.As(err, &excess) {
		return err
	}
	what := excess.What
	if excess.Alias != "" {
		what = fmt.Sprintf("the alias *%s is recursive", excess.Alias)
	}
	return refusal("%s, line %d: %s", name, excess.Line, what).WithHint("%s", excess.Hint)
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
