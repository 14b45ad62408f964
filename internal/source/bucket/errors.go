package bucket

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func failed(format string, args ...any) *fault.Fault {
	return fault.New(sourcev1.BucketOperationFailedReason, format, args...)
}

func refused(format string, args ...any) *fault.Fault {
	return fault.New(meta.AuthenticationFailedReason, format, args...)
}

func storageFailed(what string, err error) *fault.Fault {
	return fault.New(meta.StorageOperationFailedReason, "%s", what).Because(err).
		WithHint("Check that --storage-path is writable and has room. The last artifact keeps being served")
}

// answer is what a provider said instead of doing as asked.
type answer struct {
	status  int    // of HTTP; 0 when there was no answer
	code    string // the provider's own, such as NoSuchBucket
	message string
}

// explain makes the fault of a request that failed. Answer tells what the provider said, by what the client made of it.
func explain(what string, err error, said answer) error {
	if inner := fault.As(err); said.status == 0 && inner != nil { // of the way there, or of the login
		f := failed("%s", what).Because(inner).After(inner.RetryAfter)
		if inner.Reason != "" {
			f.Reason = inner.Reason
		}
		f.Terminal = inner.Terminal
		return f
	}
	cause := redacted(err)
	if said.status != 0 {
		cause = errors.New(http.StatusText(said.status))
		if said.code != "" {
			cause = errors.New(shorten(said.code))
		}
		if said.message != "" {
			cause = errors.New(cause.Error() + ": " + shorten(said.message))
		}
	}
	switch {
	case said.code == "NoSuchBucket" || said.code == "ContainerNotFound":
		return failed("%s", what).Because(cause).
			WithHint("Create the bucket, or correct spec.bucketName, spec.endpoint and spec.region")
	case said.status == http.StatusUnauthorized || said.status == http.StatusForbidden:
		return refused("%s", what).Because(cause).
			WithHint("Check the credentials, and that they may list the bucket and read its objects")
	case said.status == http.StatusPreconditionFailed:
		return failed("%s: it changed after it was listed", what).WithHint("It is tried again with a new listing")
	}
	return failed("%s", what).Because(cause)
}

func stsFailed(endpoint string, err error) error {
	f := refused("the Security Token Service at '%s' gave no credentials", fault.RedactURL(endpoint)).
		WithHint("Check spec.sts and what its Secrets hold")
	if inner := fault.As(err); inner != nil {
		return f.Because(inner).After(inner.RetryAfter)
	}
	return f.Because(redacted(err))
}

// redacted takes the URL out of an HTTP client's error: its query may hold a signature.
func redacted(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
