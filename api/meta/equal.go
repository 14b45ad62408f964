package meta

import "k8s.io/apimachinery/pkg/api/equality"

var semantic = func() interface{ DeepEqual(a, b any) bool } {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(func(a, b Time) bool { return a.Time.Equal(b.Time) && a.Invalid == b.Invalid }); err != nil {
		panic(err) // the function has the wrong form: a programming error
	}
	return e
}()

// Equal reports whether two API values have the same content, as [equality.Semantic] does, also for [Time]. Empty and
// nil slices and maps are equal.
func Equal(a, b any) bool { return semantic.DeepEqual(a, b) }
