package ui

import "testing"

// TestFailuresAreShownAsWarnings has reasons of the kustomize-controller and the helm-controller of Flux.
func TestFailuresAreShownAsWarnings(t *testing.T) {
	for reason, want := range map[string]string{"ArtifactFailed": "Warning", "BuildFailed": "Warning",
		"UpgradeFailed": "Warning", "ReconciliationSucceeded": "Normal", "DependencyNotReady": "Normal"} {
		if got := typeOf("Normal", reason); got != want {
			t.Errorf("%s is shown as %s, want %s", reason, got, want)
		}
	}
	if got := typeOf("Warning", "DriftCorrected"); got != "Warning" {
		t.Errorf("a warning is shown as %s", got)
	}
}
