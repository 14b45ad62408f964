package redact

import "github.com/sluice-gitops/sluice/internal/text/fault"

// Error returns an error without secrets in its text. What the error is stays: its chain, its reason, and when it may
// be tried again. An error without secrets is returned as it is.
func Error(err error, secrets ...string) error {
	return Rewrite(err, func(text string) string { return Text(text, secrets...) })
}

// Reword returns an error with another text, and with the chain of the original.
func Reword(err error, text string) error { return Rewrite(err, func(string) string { return text }) }

// Rewrite returns an error whose texts were rewritten, with the chain of the original. If nothing changes, it returns
// the error as it is.
func Rewrite(err error, rewrite func(string) string) error {
	if err == nil {
		return nil
	}
	if text := rewrite(err.Error()); text != err.Error() {
		return reworded(err, text, rewrite)
	}
	return err
}

func reworded(err error, text string, rewrite func(string) string) error {
	if f, isFault := err.(*fault.Fault); isFault { //nolint:errorlint // one below keeps its attributes in the chain
		return clean(f, rewrite)
	}
	return &rewordedError{text: text, err: err, rewrite: rewrite}
}

// clean returns a fault with other texts: reason, hint, and whether it is final or passes stay.
func clean(f *fault.Fault, rewrite func(string) string) *fault.Fault {
	c := *f
	c.What, c.Hint = rewrite(f.What), rewrite(f.Hint)
	if f.Err != nil {
		c.Err = &rewordedError{text: rewrite(f.Err.Error()), err: f.Err, rewrite: rewrite}
	}
	return &c
}

// rewordedError is an error with another text. The original only classifies it: a fault in its chain is reworded too.
type rewordedError struct {
	text    string
	err     error
	rewrite func(string) string
}

func (e *rewordedError) Error() string { return e.text }

func (e *rewordedError) Unwrap() error { return e.err }

// As implements the interface of [errors.As].
func (e *rewordedError) As(target any) bool {
	wanted, ok := target.(**fault.Fault)
	if !ok {
		return false // the chain is searched
	}
	f := fault.As(e.err)
	if f == nil {
		return false
	}
	*wanted = clean(f, e.rewrite)
	return true
}
