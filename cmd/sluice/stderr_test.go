package main

import (
	"bytes"
	"io"
	"log"
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
)

func TestKustomizePrintsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	real := os.Stderr
	os.Stderr = w
	restore, err := filterStderr()
	if err != nil {
		t.Fatal(err)
	}
	tree := artifact.FromMap(map[string]string{
		"kustomization.yaml": "bases: [base]\ncommonLabels: {a: b}\nsortOptions: {order: fifo}\n" +
			"patchesStrategicMerge: [p.yaml]\nvars: [{name: UNUSED, objref: {kind: ConfigMap, name: a, " +
			"apiVersion: v1}}]\n" +
			"patchesJson6902: [{target: {version: v1, kind: ConfigMap, name: a}, patch: '[{\"op\": \"add\", " +
			"\"path\": \"/data/c\", \"value\": \"d\"}]'}]\n",
		"p.yaml":                  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: c}\n",
		"base/kustomization.yaml": "resources: [a.yaml]\n",
		"base/a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	})
	_, buildErr := build.Build(t.Context(), build.Request{Tree: tree})
	log.Print("ours")
	_, printErr := io.WriteString(os.Stderr, "and this")
	restore()
	os.Stderr = real
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(r)
	if err != nil || buildErr != nil || printErr != nil {
		t.Fatal(err, buildErr, printErr)
	}
	if !bytes.HasSuffix(said, []byte("ours\nand this")) || bytes.Count(said, []byte("\n")) != 1 {
		t.Errorf("printed %q", said)
	}
}
