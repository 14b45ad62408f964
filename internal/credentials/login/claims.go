package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Bounds of what a login provider says about a person.
const (
	maxName   = 256 // bytes of a user or group
	maxGroups = 100
)

// Identity is who logged in, as Kubernetes knows them.
type Identity struct {
	User   string
	Groups []string // sorted

	ends time.Time // of the ID token
}

// identity maps claims to a user and groups, as the API server does with the same settings. Names that Kubernetes
// reserves are refused: a provider must not make anybody a part of the cluster.
func (o *OIDC) identity(claims map[string]json.RawMessage) (*Identity, error) {
	var user string
	if err := json.Unmarshal(claims[o.UsernameClaim], &user); err != nil || user == "" {
		return nil, fmt.Errorf("the claim '%s' of the ID token is missing or is not text", o.UsernameClaim)
	}
	if verified, present := claims["email_verified"]; o.UsernameClaim == emailClaim && present &&
		string(verified) != "true" {
		return nil, errors.New("the email address is not verified by the login provider")
	}
	groups, err := groupsOf(claims[o.GroupsClaim])
	if err != nil {
		return nil, fmt.Errorf("the claim '%s' of the ID token %w", o.GroupsClaim, err)
	}
	who := &Identity{User: o.usernamePrefix() + user, Groups: []string{}}
	if err := CheckName(who.User); err != nil {
		return nil, fmt.Errorf("the user %w", err)
	}
	for _, g := range groups {
		name := o.GroupsPrefix + g
		if err := CheckName(name); err != nil {
			return nil, fmt.Errorf("a group %w", err)
		}
		who.Groups = append(who.Groups, name)
	}
	slices.Sort(who.Groups)
	who.Groups = slices.Compact(who.Groups)
	return who, nil
}

// emailClaim is trusted only if the provider does not say that the address is unverified.
const emailClaim = "email"

// usernamePrefix returns what user names start with. As in the API server, names that are not addresses start with the
// issuer by default, since two issuers may use the same ones, and "-" means none.
func (o *OIDC) usernamePrefix() string {
	switch {
	case o.UsernamePrefix == "-":
		return ""
	case o.UsernamePrefix == "" && o.UsernameClaim != emailClaim:
		return o.Issuer + "#"
	}
	return o.UsernamePrefix
}

// groupsOf reads a claim that is absent, text, or a list of texts.
func groupsOf(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var entries []any
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, errors.New("is neither text nor a list of texts")
	}
	if len(entries) > maxGroups {
		return nil, fmt.Errorf("has %d groups, at most %d are accepted: let the login provider send fewer",
			len(entries), maxGroups)
	}
	var groups []string
	for _, e := range entries {
		name, ok := e.(string)
		if !ok {
			return nil, errors.New("contains something that is not text")
		}
		groups = append(groups, name)
	}
	return groups, nil
}

// CheckName refuses names that must not be impersonated.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("has no name")
	case len(name) > maxName:
		return fmt.Errorf("'%s' has a name of more than %d bytes", excerpt.Bytes(name, 40), maxName)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("'%s' has a name that starts or ends with a space, which HTTP does not keep",
			excerpt.Bytes(name, 100))
	case IsReserved(name):
		return fmt.Errorf("'%s' has a name that Kubernetes reserves", excerpt.Bytes(name, 100))
	case !utf8.ValidString(name), strings.ContainsFunc(name, isUnprintable):
		return errors.New("has control characters or invisible characters in its name")
	}
	return nil
}

// IsReserved reports whether a name is reserved for parts of Kubernetes, such as the group system:masters.
func IsReserved(name string) bool { return strings.HasPrefix(name, "system:") }

// AllGroups returns the groups of a user as the API server counts them: with that of everybody who is authenticated. It
// adds that one itself only to users that are impersonated.
func AllGroups(groups []string) []string { return append(slices.Clone(groups), "system:authenticated") }

// isUnprintable reports whether a name with this character can look like another name, or be changed on its way to the
// API server: control characters, and those without a width or a shape of their own.
func isUnprintable(r rune) bool {
	return r == utf8.RuneError || r != ' ' && !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r)
}
