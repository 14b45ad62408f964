package apply

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// isMissing reports whether the API server refused another object since this one does not exist. Status 404 names the
// missing object. Admission plugins answer with status 403 and name it in words, such as: no PriorityClass with name
// high was found.
func isMissing(o *object, err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch {
	case apierrors.IsNotFound(err):
		d := status.Status().Details
		return d != nil && d.Name == o.ref.Name && d.Group == o.ref.Group &&
			(d.Kind == o.resource.Resource || d.Kind == o.ref.Kind)
	case apierrors.IsForbidden(err):
		words := wordsOf(refusalPrefix.ReplaceAllString(status.Status().Message, ""))
		return slices.Contains(words, "found") &&
			(slices.Contains(words, o.ref.Name) || slices.Contains(words, o.ref.Namespace+"/"+o.ref.Name)) &&
			slices.ContainsFunc(words, func(w string) bool {
				return strings.EqualFold(w, o.ref.Kind) || w == o.resource.Resource ||
					w == o.resource.GroupResource().String()
			})
	}
	return false
}

// wordsOf splits a message of the API server into words; names of objects and of resources are one word each.
func wordsOf(message string) []string {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`,;()[]{}", r) })
	for n, w := range words {
		words[n] = strings.TrimRight(w, ":.")
	}
	return words
}

// isAccountMissing reports whether the API server refused a Pod since its ServiceAccount does not exist.
func isAccountMissing(err error) bool { return err != nil && noAccount.MatchString(err.Error()) }
