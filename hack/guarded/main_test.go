package main

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryWayToStartAGoroutineIsRefused(t *testing.T) {
	for source, want := range map[string]string{
		`func f() { go g() }`:                                                  "go statement",
		`func f() { func() { go g() }() }`:                                     "go statement",
		`import "golang.org/x/sync/errgroup"`:                                  "guard.Group",
		`import e "golang.org/x/sync/errgroup"`:                                "guard.Group",
		`import "golang.org/x/sync/singleflight"`:                              "guard.Flight",
		"import \"sync\"\nvar w sync.WaitGroup":                                "guard.WaitGroup",
		"import s \"sync\"\nvar w s.WaitGroup":                                 "guard.WaitGroup",
		"import . \"sync\"\nvar w WaitGroup":                                   "import of all names",
		"import \"time\"\nvar t = time.AfterFunc(1, f)":                        "guard.AfterFunc",
		"import \"context\"\nvar t = context.AfterFunc(c, f)":                  "guard.AfterDone",
		"func f() { informer.AddEventHandler(h) }":                             "guard.EventHandler",
		"func f() { c.IndexField(ctx, o, field, func() {}) }":                  "guard.Indexer",
		"func f() { p.mgr.Add(cleanup) }":                                      "guard.Runnable",
		"func f() { mgr.Add(&Cleanup{}) }":                                     "guard.Runnable",
		`func f() { mgr.Add(guard.Runnable("work", cleanup)) }`:                "",
		"func f() { mgr.Add(&ctrlmanager.Server{}) }":                          "",
		"import \"sync\"\nvar m sync.Mutex":                                    "",
		"import \"time\"\nvar t = time.After(1)":                               "",
		`func f() { guard.Go("work", g) }`:                                     "",
		`func f() { informer.AddEventHandler(guard.EventHandler("work", h)) }`: "",
	} {
		problems, err := check("x.go", []byte("package x\n"+source))
		if err != nil {
			t.Errorf("%s: %v", source, err)
		}
		found := slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) })
		if want == "" && len(problems) > 0 || want != "" && !found {
			t.Errorf("%s: found %q, want %q", source, problems, want)
		}
	}
}

func TestTheProductStartsNoGoroutineWithoutGuard(t *testing.T) {
	for _, dir := range []string{"../../internal", "../../cmd"} {
		problems, err := checkDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Error(p)
		}
	}
}
