package git

import "testing"

// TestSubmodulesGetTheLoginOfTheirOwner has URLs of submodules, which whoever may push to the parent chooses.
func TestSubmodulesGetTheLoginOfTheirOwner(t *testing.T) {
	for _, test := range []struct {
		parent, raw string
		shares      bool
	}{
		{parent: "https://host/org/app", raw: "../lib", shares: true},
		{parent: "https://host/org/app", raw: "https://HOST/org/lib.git", shares: true},
		{parent: "https://host/org/sub/app", raw: "../../other/lib", shares: true},
		{parent: "https://host/app", raw: "../lib", shares: true},
		{parent: "https://host/app", raw: "https://host/libs/lib", shares: true},
		{parent: "ssh://git@host/org/app", raw: "git@host:org/lib.git", shares: true},
		{parent: "https://host/org/app", raw: "../../other/secret"},
		{parent: "https://host/org/app", raw: "https://host/other/secret"},
		{parent: "https://host/org/app", raw: "https://host/org/../other/secret"},
		{parent: "https://host/org/app", raw: "https://host/org/%2e%2e/other/secret"},
		{parent: "https://host/org/app", raw: "https://host//other/secret"},
		{parent: "https://host/org/app", raw: "https://host/organization/secret"},
		{parent: "https://host/org/app", raw: "https://host/Org/secret"},
		{parent: "https://host/org/app", raw: "http://host/org/lib"},
		{parent: "https://host/org/app", raw: "https://host:8443/org/lib"},
		{parent: "https://host/org/app", raw: "https://host.evil/org/lib"},
		{parent: "ssh://git@host/org/app", raw: "root@host:org/lib.git"},
	} {
		parent := Remote{URL: test.parent, Identity: "identity",
			Credentials: Credentials{Username: "git", Password: "p"}}
		remote, err := submoduleRemote(parent, test.raw)
		if err != nil {
			t.Errorf("%s in %s: %v", test.raw, test.parent, err)
			continue
		}
		if shares := remote.Credentials.Password != "" || remote.Identity != ""; shares != test.shares {
			t.Errorf("%s in %s: it gets the login: %t", test.raw, test.parent, shares)
		}
	}
}
